"""The conclusions on a machine that every reader leaves to us.

Owns:      parents from bus numbers, port kinds from the tree. GPUs are numbered by `gpus`; several
           descriptions are one before they come here (`merge`).
Promises:  assembling what is assembled changes nothing.
Relies on: `nvidia-smi`, NVML and nvbandwidth counting GPUs in PCI address order, unless the source says an index.
"""

from __future__ import annotations

import msgspec

from hinan.wire import disputes
from hinan.wire.address import split_address
from hinan.wire.gpus import number_gpus
from hinan.wire.identity import virtual_vendor
from hinan.wire.model import Function, Link, Machine, Port, Role
from hinan.wire.sriov import with_physical
from hinan.wire.suspects import mark_suspects


def assemble(machine: Machine) -> Machine:
    """The machine with parents, ports, suspects, GPU numbers and signs of virtualisation."""
    functions = _connect(with_physical(machine.functions))
    functions = _name_ports(functions)
    functions = mark_suspects(_without_emulated_links(functions))
    virtual = machine.virtual + _hypervisors(functions)
    gpus, notes = number_gpus(functions, machine.gpus, machine.nodes)
    known = msgspec.structs.replace(machine, functions=functions, gpus=gpus, virtual=tuple(dict.fromkeys(virtual)))
    notes += disputes.note(known)
    if machine.mixed is not None:
        notes += (f"these files are not of one machine ({machine.mixed}): who shares a link with whom is unknown",)
    return msgspec.structs.replace(known, notes=tuple(dict.fromkeys(machine.notes + notes)))


def _connect(functions: dict[str, Function]) -> dict[str, Function]:
    """Parents from bus numbers, where the source drew none."""
    bridges: dict[int, list[Function]] = {}
    for function in functions.values():
        if function.buses is not None:
            bridges.setdefault(split_address(function.address)[0], []).append(function)
    found = {}
    for address, function in sorted(functions.items()):
        placed = function
        if function.parent is None and not function.at_root:
            placed = _placed(function, bridges.get(split_address(address)[0], []))
        if placed.parent is not None and placed.parent not in functions:
            placed = msgspec.structs.replace(placed, parent=None)
        found[address] = placed
    return _without_loops(found)


def _placed(function: Function, bridges: list[Function]) -> Function:
    """Below the bridge of its domain whose range holds the bus most tightly; another secondary bus means a gap."""
    bus = split_address(function.address)[1]
    holding = [b for b in bridges if _covers(b, bus) and b is not function]
    above = min(holding, key=lambda b: (b.buses.subordinate - b.buses.secondary if b.buses else 0, b.address), default=None)
    if above is not None and above.buses is not None:
        return msgspec.structs.replace(function, parent=above.address, gap_above=above.buses.secondary != bus)
    top = function.role is Role.BRIDGE and function.port is None and function.buses is not None
    return msgspec.structs.replace(function, at_root=top)


def _covers(bridge: Function, bus: int) -> bool:
    return bridge.buses is not None and bridge.buses.primary < bridge.buses.secondary <= bus <= bridge.buses.subordinate


def _without_loops(functions: dict[str, Function]) -> dict[str, Function]:
    """A parent chain that returns to itself (damaged bus numbers) is cut at the function where it was noticed."""
    sound: set[str] = set()  # from here up there is no loop
    for address, function in list(functions.items()):
        seen = {address}
        at = functions.get(address, function)
        while at.parent is not None and at.parent in functions and at.address not in sound:
            if at.parent in seen:
                functions[at.address] = msgspec.structs.replace(at, parent=None, gap_above=False)
                break
            seen.add(at.parent)
            at = functions[at.parent]
        sound |= seen
    return functions


def _name_ports(functions: dict[str, Function]) -> dict[str, Function]:
    """Ports where the source has no Express capability: root port, then upstream and downstream in turns."""
    with_bridges = {f.parent for f in functions.values() if f.role is Role.BRIDGE}
    ports: dict[str, Port | None] = {}
    for function in functions.values():
        chain: list[Function] = []  # up to a port that is known; not by recursion, which a deep tree would exhaust
        at: Function | None = function
        while at is not None and at.address not in ports:
            chain.append(at)
            at = functions.get(at.parent or "")
        for each in reversed(chain):
            ports[each.address] = _port(each, ports.get(each.parent or ""), each.address in with_bridges)
    return {address: msgspec.structs.replace(f, port=ports[address]) for address, f in functions.items()}


def _port(function: Function, above: Port | None, bridges_below: bool) -> Port | None:
    if function.port is not None or function.role is not Role.BRIDGE:
        return function.port or Port.ENDPOINT
    if function.at_root:
        return Port.ROOT
    if above in (Port.ROOT, Port.DOWN):
        return Port.UP if bridges_below else Port.LEGACY
    return Port.DOWN if above is Port.UP else None


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
