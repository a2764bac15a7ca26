"""One machine of several descriptions: which source is asked first, and what none of them may decide alone.

Owns:      precedence between sources, and joining what they tell of the whole machine. Functions are joined by `join`,
           their places compared by `parents`; NUMA nodes are joined by `nodes`, GPUs by `gpus`, when it is known which is
           which.
Promises:  the order of the sources does not matter. A fact that is known is never overwritten by a weaker source, and
           what sources contradict each other on is unknown, whatever a third one says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from hinan.wire.facts.disputes import PLACE_OF, Disputed, contradicted
from hinan.wire.facts.join import NCCL, join_functions, mixed_evidence
from hinan.wire.facts.missing import lost_from_topology
from hinan.wire.facts.model import Function, Gds, Machine
from hinan.wire.machine.nodes import join_node_sets, join_nodes
from hinan.wire.machine.parents import disputed_parents
from hinan.wire.machine.tree import with_unknown_parent

_RANK = ("sysfs", "lspci -vvv", "hwloc XML", NCCL, "lspci -tv", "lspci")
_SPELLED = {"aarch64": "arm64"}


def merge(machines: Sequence[Machine]) -> Machine:
    """One machine, not yet assembled; the more detailed source wins where two know what cannot be compared."""
    ordered = sorted(machines, key=lambda m: (min(map(_rank, m.sources), default=99), m.sources, msgspec.json.encode(m)))
    merged: dict[str, Any] = {}
    for machine in ordered:
        smaller_end = NCCL in machine.sources and NCCL not in merged.get("sources", ())
        for name in Machine.__struct_fields__:
            merged[name] = _join(name, merged.get(name), getattr(machine, name), smaller_end=smaller_end)
    if not ordered:
        return Machine()
    merged["nodes"], merged["node_set"] = join_nodes(ordered), join_node_sets(ordered)
    merged["gds"], in_gds = _gds([machine.gds for machine in ordered if machine.gds is not None])
    merged["disputed"] = _facts(ordered, merged) | in_gds | _names(ordered, merged["nic_names"])
    merged["mixed"] = merged.get("mixed") or mixed_evidence(ordered)
    if merged["mixed"] is None:
        for address, told in disputed_parents(ordered).items():
            merged["functions"][address] = with_unknown_parent(merged["functions"][address], told)
    for address, evidence in lost_from_topology(ordered).items():
        merged["functions"][address] = msgspec.structs.replace(merged["functions"][address], off_bus=evidence)
    return Machine(**merged)


def _rank(source: str) -> int:
    return _RANK.index(source) if source in _RANK else len(_RANK)


def _join(name: str, known: Any, new: Any, *, smaller_end: bool) -> Any:
    """One field of the machine from two sources; `known` is the stronger."""
    if known is None:
        return dict(new) if isinstance(new, dict) else new
    if new is None:
        return known
    if name == "functions":
        return _functions(known, new, smaller_end=smaller_end)
    if isinstance(known, tuple):
        return known + tuple(item for item in new if item not in known)
    return new | known if isinstance(known, dict) else known


def _functions(known: dict[str, Function], new: dict[str, Function], *, smaller_end: bool) -> dict[str, Function]:
    both = {a: join_functions(known[a], new[a], smaller_end=smaller_end) for a in known.keys() & new.keys()}
    return {**new, **known, **both}


def _facts(machines: Sequence[Machine], merged: dict[str, Any]) -> Disputed:
    """Facts on the whole machine that sources disagree on; they are None in `merged` afterwards."""
    found: Disputed = {}
    for name in ("iommu_mode", "packages", "cpu_arch"):
        told = [_SPELLED.get(str(value), str(value)) for m in machines if (value := getattr(m, name)) is not None]
        before = [each for machine in machines for each in machine.disputed.get(name, ())]
        if values := contradicted(told, before):
            found[name], merged[name] = values, None
    return found


def _names(machines: Sequence[Machine], merged: dict[str, str]) -> Disputed:
    """Interfaces that sources place at different addresses; they are not in `merged` afterwards."""
    found: Disputed = {}
    for name in sorted({name for machine in machines for name in machine.nic_names}):
        told = [machine.nic_names[name] for machine in machines if name in machine.nic_names]
        before = [each for machine in machines for each in machine.disputed.get(f"{PLACE_OF}{name}", ())]
        if values := contradicted(told, before):
            found[f"{PLACE_OF}{name}"] = values
            merged.pop(name)
    kept = {k: v for machine in machines for k, v in machine.disputed.items() if k.startswith((PLACE_OF, "gdscheck"))}
    return kept | found


def _gds(told: Sequence[Gds]) -> tuple[Gds | None, Disputed]:
    """What all gdscheck outputs agree on."""
    if not told:
        return None, {}
    found: Disputed = {}
    changes: dict[str, Any] = {}
    for name in Gds.__struct_fields__:
        values = [getattr(each, name) for each in told if getattr(each, name) not in (None, {})]
        if any(value != values[0] for value in values):
            found[f"gdscheck's {name}"] = contradicted(map(str, values))
            changes[name] = None if not isinstance(values[0], dict) else {}
        elif values:
            changes[name] = values[0]
    return Gds(**changes), found
