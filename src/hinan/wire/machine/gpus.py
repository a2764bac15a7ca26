"""GPUs by index: those on the bus, and what tools tell of them by number or by address.

Owns:      which told GPU is which, and which facts the tools and the bus must agree on.
Promises:  what they contradict each other on is unknown and stands in `disputed`. A GPU that a tool numbers and the bus
           cannot have (another vendor's) is left out.
Relies on: a GPU's index being that of a source which numbers GPUs itself (NCCL), else its place in PCI address order. What
           tools mean by a number, `numbering` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import msgspec

from hinan.wire.facts.disputes import Disputed, contradicted
from hinan.wire.facts.identity import gpu_name
from hinan.wire.facts.missing import lost_from_measurements
from hinan.wire.facts.missing import notes as missing_notes
from hinan.wire.facts.model import Function, Gpu, NumaNode, Role
from hinan.wire.facts.numbering import indices_of, surely_differ
from hinan.wire.machine.sriov import is_virtual


def number_gpus(
    functions: Mapping[str, Function], told: tuple[Gpu, ...], nodes: Sequence[NumaNode]
) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    """GPUs by index, what was told of them joined by address, else by number; and notes on those that are missing."""
    on_bus = [f for _, f in sorted(functions.items()) if f.role is Role.GPU and not is_virtual(f, functions)]
    indices = [f.gpu_index for f in on_bus]
    counted = len(set(indices)) == len(indices) and None not in indices
    found: dict[int, Gpu] = {}
    for rank, function in enumerate(on_bus):
        index = function.gpu_index if counted and function.gpu_index is not None else rank
        name = function.name or gpu_name(function.vendor_id, function.device_id)
        found[index] = Gpu(
            index=index, address=function.address, vendor_id=function.vendor_id, name=name, numa_node=function.numa_node,
            off_bus=function.off_bus, smi_index=function.smi_index,
        )  # fmt: skip
    listed = tuple(found.values())
    index_of = {gpu.address: index for index, gpu in found.items()}
    lost = lost_from_measurements(told, functions)
    index_of |= {address: free for free, address in enumerate(sorted(lost), max(found, default=-1) + 1)}
    by_place: dict[int, list[Gpu]] = {}
    for gpu in told:
        if gpu.address is not None and on_bus and gpu.address not in index_of:
            continue
        place = index_of.get(gpu.address, gpu.index) if gpu.address else _index_of(listed, gpu)
        if place is not None:
            by_place.setdefault(place, []).append(gpu)
    memory_only = frozenset(node.index for node in nodes if node.cpus == ())
    for place, tells in by_place.items():
        evidence = next((lost[gpu.address] for gpu in tells if gpu.address in lost), None)
        found[place] = _joined(functions, found.get(place), tells, place, memory_only, evidence)
    return tuple(found[index] for index in sorted(found)), missing_notes(told, functions, lost)


def _index_of(listed: tuple[Gpu, ...], told: Gpu) -> int | None:
    """Our index of a GPU that a tool tells by its number; None if it is none of those on the bus."""
    indices = indices_of(listed, told.vendor_id)
    others = len(indices) < len(listed)  # GPUs of other vendors, which the tool does not count, have numbers too
    return indices.get(told.index, None if others else told.index)


def _joined(
    functions: Mapping[str, Function],
    listed: Gpu | None,
    told: Sequence[Gpu],
    index: int,
    memory_only: frozenset[int],
    off_bus: str | None,
) -> Gpu:
    """One GPU of what the bus and the tools say, without what they contradict each other on."""
    known = (
        listed if listed is not None else msgspec.structs.replace(told[0], index=index, off_bus=off_bus or told[0].off_bus)
    )
    for each in told:
        unset = {f: getattr(each, f) for f in Gpu.__struct_fields__ if getattr(known, f) in (None, (), {})}
        known = msgspec.structs.replace(known, **unset)
    disputed = _disputes(functions, known, listed, told, memory_only)
    changes: dict[str, Any] = {name: None for name in disputed if name != "relations"}
    if "numa_node" in disputed:
        changes["numa_affinity"] = ()
    labels = _labels(told)
    relations = {other: next(iter(words)) for other, words in labels.items() if len(words) == 1}
    return msgspec.structs.replace(known, relations=relations, disputed=disputed, **changes)


def _disputes(
    functions: Mapping[str, Function],
    known: Gpu,
    listed: Gpu | None,
    told: Sequence[Gpu],
    memory_only: frozenset[int],
) -> Disputed:
    before: dict[str, list[str]] = {}
    for each in told:
        for name, values in each.disputed.items():
            before.setdefault(name, []).extend(values)
    names = [each.name for each in told if each.name] if listed is None or listed.name is None else []
    said = {
        "numa_node": _nodes(functions, known.address, told, memory_only),
        "memory_node": [str(each.memory_node) for each in told if each.memory_node is not None],
        "name": names if any(surely_differ(one, other) for one, other in combinations(names, 2)) else [],
        "relations": [f"{other} {word}" for other, words in _labels(told).items() if len(words) > 1 for word in words],
    }
    found = {name: contradicted(values, before.get(name, ())) for name, values in said.items()}
    return {name: values for name, values in found.items() if values}


def _nodes(
    functions: Mapping[str, Function], address: str | None, told: Sequence[Gpu], memory_only: frozenset[int]
) -> list[str]:
    """The first node of each tool's affinity; and the bus's, unless one of these lists has it, or it has no CPUs."""
    lists = [each.numa_affinity or (each.numa_node,) for each in told if each.numa_node is not None]
    firsts = {each[0] for each in lists}
    at = functions.get(address or "")
    while at is not None and at.numa_node is None and "numa_node" not in at.disputed:
        at = functions.get(at.parent or "")
    on_bus = at.numa_node if at is not None else None
    if on_bus is not None and on_bus not in memory_only and any(on_bus not in each for each in lists):
        firsts.add(on_bus)
    return [str(node) for node in firsts]


def _labels(told: Sequence[Gpu]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for each in told:
        for other, word in each.relations.items():
            found.setdefault(other, set()).add(word)
    return found
