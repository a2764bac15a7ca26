"""Joining descriptions of one machine, then drawing the conclusions that every reader leaves to us.

Owns:      precedence between sources, parents from bus numbers, port kinds from the tree, and GPU numbering.
Promises:  order of the sources does not matter; a fact once known is never overwritten by a weaker source. What they
           contradict each other on is unknown (`join`).
Relies on: `nvidia-smi`, NVML and nvbandwidth counting GPUs in PCI address order, unless the source says an index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from hinan.wire.address import split_address
from hinan.wire.identity import gpu_name, virtual_vendor
from hinan.wire.join import NCCL, dispute_note, join_functions, mixed_evidence
from hinan.wire.missing import lost_from_measurements, lost_from_topology
from hinan.wire.missing import notes as missing_notes
from hinan.wire.model import Function, Gpu, Link, Machine, NumaNode, Port, Role
from hinan.wire.numbering import indices_of
from hinan.wire.sriov import is_virtual, with_physical
from hinan.wire.suspects import mark_suspects

_RANK = ("sysfs", "lspci -vvv", "hwloc XML", "NCCL topology", "lspci -tv", "lspci")


def merge(machines: Sequence[Machine]) -> Machine:
    """One machine of several descriptions; the more detailed source wins where two know the same field."""
    ordered = sorted(machines, key=lambda m: (min((_rank(s) for s in m.sources), default=99), m.sources))
    merged: dict[str, Any] = {}
    for machine in ordered:
        smaller_end = NCCL in machine.sources and NCCL not in merged.get("sources", ())
        for name in Machine.__struct_fields__:
            merged[name] = _join(name, merged.get(name), getattr(machine, name), smaller_end=smaller_end)
    merged["mixed"] = merged.get("mixed") or mixed_evidence(machines)
    for address, evidence in lost_from_topology(machines).items():
        merged["functions"][address] = msgspec.structs.replace(merged["functions"][address], off_bus=evidence)
    return Machine(**merged)


def _rank(source: str) -> int:
    return _RANK.index(source) if source in _RANK else len(_RANK)


def _join(name: str, known: Any, new: Any, *, smaller_end: bool) -> Any:
    """One field of the machine from two sources; `known` is the stronger."""
    if known is None:
        return new
    if name == "functions":
        both = {a: join_functions(known[a], new[a], smaller_end=smaller_end) for a in known.keys() & new.keys()}
        return {**new, **known, **both}
    if name == "nodes":
        return _join_nodes(known, new)
    if isinstance(known, tuple):
        return known + tuple(item for item in new if item not in known)
    return new | known if isinstance(known, dict) else known


def _join_nodes(known: tuple[NumaNode, ...], new: tuple[NumaNode, ...]) -> tuple[NumaNode, ...]:
    nodes = {node.index: node for node in known}
    for node in new:
        mine = nodes.get(node.index, node)
        changes = {f: getattr(node, f) for f in NumaNode.__struct_fields__ if getattr(mine, f) in (None, {}, ())}
        nodes[node.index] = msgspec.structs.replace(mine, **changes)
    return tuple(nodes[index] for index in sorted(nodes))


def assemble(machine: Machine) -> Machine:
    """The machine with parents, ports, suspects, GPU numbers and signs of virtualisation."""
    functions = _connect(with_physical(machine.functions))
    functions = _name_ports(functions)
    functions = mark_suspects(_without_emulated_links(functions))
    virtual = machine.virtual + _hypervisors(functions)
    gpus, notes = _number_gpus(functions, machine.gpus)
    notes += dispute_note(functions)
    if machine.mixed is not None:
        notes += (f"these files are not of one machine ({machine.mixed}): who shares a link with whom is unknown",)
    return msgspec.structs.replace(
        machine, functions=functions, gpus=gpus, virtual=tuple(dict.fromkeys(virtual)), notes=machine.notes + notes
    )


def _connect(functions: dict[str, Function]) -> dict[str, Function]:
    """Parents from bus numbers, where the source drew none."""
    bridges = [f for f in functions.values() if f.buses is not None]
    found = {}
    for address, function in sorted(functions.items()):
        placed = function
        if function.parent is None and not function.at_root:
            placed = _placed(function, bridges)
        if placed.parent is not None and placed.parent not in functions:
            placed = msgspec.structs.replace(placed, parent=None)
        found[address] = placed
    return _without_loops(found)


def _placed(function: Function, bridges: list[Function]) -> Function:
    """Below the bridge whose range holds the bus most tightly; another secondary bus means a gap."""
    domain, bus, _, _ = split_address(function.address)
    holding = [b for b in bridges if split_address(b.address)[0] == domain and _covers(b, bus) and b is not function]
    above = min(holding, key=lambda b: (b.buses.subordinate - b.buses.secondary if b.buses else 0, b.address), default=None)
    if above is not None and above.buses is not None:
        return msgspec.structs.replace(function, parent=above.address, gap_above=above.buses.secondary != bus)
    top = function.role is Role.BRIDGE and function.port is None and function.buses is not None
    return msgspec.structs.replace(function, at_root=top)


def _covers(bridge: Function, bus: int) -> bool:
    return bridge.buses is not None and bridge.buses.primary < bridge.buses.secondary <= bus <= bridge.buses.subordinate


def _without_loops(functions: dict[str, Function]) -> dict[str, Function]:
    """A parent chain that returns to itself (damaged bus numbers) is cut at the function where it was noticed."""
    for address, function in list(functions.items()):
        seen = {address}
        at = functions.get(address, function)
        while at.parent is not None and at.parent in functions:
            if at.parent in seen:
                functions[at.address] = msgspec.structs.replace(at, parent=None, gap_above=False)
                break
            seen.add(at.parent)
            at = functions[at.parent]
    return functions


def _name_ports(functions: dict[str, Function]) -> dict[str, Function]:
    """Ports where the source has no Express capability: root port, then upstream and downstream in turns."""
    named: dict[str, Function] = {}

    def port_of(function: Function) -> Port | None:
        if function.port is not None or function.role is not Role.BRIDGE:
            return function.port or Port.ENDPOINT
        if function.at_root:
            return Port.ROOT
        parent = functions.get(function.parent or "")
        above = port_of(parent) if parent is not None else None
        bridges_below = any(f.parent == function.address and f.role is Role.BRIDGE for f in functions.values())
        if above in (Port.ROOT, Port.DOWN):
            return Port.UP if bridges_below else Port.LEGACY
        return Port.DOWN if above is Port.UP else None

    for address, function in functions.items():
        named[address] = msgspec.structs.replace(function, port=port_of(function))
    return named


def _without_emulated_links(functions: dict[str, Function]) -> dict[str, Function]:
    """Ports that a hypervisor emulates tell speeds (2.5 GT/s x1 is QEMU's default) of links that do not exist."""
    return {
        address: msgspec.structs.replace(f, link=Link())
        if f.role is Role.BRIDGE and virtual_vendor(f.vendor_id) is not None
        else f
        for address, f in functions.items()
    }


def _hypervisors(functions: dict[str, Function]) -> tuple[str, ...]:
    names = sorted({name for f in functions.values() if (name := virtual_vendor(f.vendor_id))})
    return (f"{' and '.join(names)} devices on the bus",) if names else ()


def _number_gpus(functions: dict[str, Function], told: tuple[Gpu, ...]) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    """GPUs by index: those on the bus first, what other sources told joined by address, else by index."""
    on_bus = [f for _, f in sorted(functions.items()) if f.role is Role.GPU and not is_virtual(f, functions)]
    indices = [f.gpu_index for f in on_bus]
    counted = len(set(indices)) == len(indices) and None not in indices
    found: dict[int, Gpu] = {}
    for rank, function in enumerate(on_bus):
        index = function.gpu_index if counted and function.gpu_index is not None else rank
        name = function.name or gpu_name(function.vendor_id, function.device_id)
        found[index] = Gpu(
            index=index, address=function.address, vendor_id=function.vendor_id, name=name, numa_node=function.numa_node,
            off_bus=function.off_bus,
        )  # fmt: skip
    listed = tuple(found.values())
    index_of = {gpu.address: index for index, gpu in found.items()}
    lost = lost_from_measurements(told, functions)
    index_of |= {address: free for free, address in enumerate(sorted(lost), max(found, default=-1) + 1)}
    for gpu in told:
        if gpu.address is not None and on_bus and gpu.address not in index_of:
            continue
        place = index_of.get(gpu.address, gpu.index) if gpu.address else _index_of(listed, gpu)
        if place is None:
            continue
        found[place] = _join_gpu(found.get(place), gpu, place, lost.get(gpu.address or ""))
    return tuple(found[index] for index in sorted(found)), missing_notes(told, functions, lost)


def _index_of(listed: tuple[Gpu, ...], told: Gpu) -> int | None:
    """Our index of a GPU that a tool tells by its number; None if it is none of those on the bus."""
    indices = indices_of(listed, told.vendor_id)
    others = len(indices) < len(listed)  # GPUs of other vendors, which the tool does not count, have numbers too
    return indices.get(told.index, None if others else told.index)


def _join_gpu(known: Gpu | None, told: Gpu, index: int, off_bus: str | None) -> Gpu:
    if known is None:
        return msgspec.structs.replace(told, index=index, off_bus=off_bus or told.off_bus)
    changes = {f: getattr(told, f) for f in Gpu.__struct_fields__ if f != "index" and getattr(known, f) in (None, (), {})}
    return msgspec.structs.replace(known, **changes)
