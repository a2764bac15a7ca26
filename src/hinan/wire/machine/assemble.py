"""The conclusions on a machine that every reader leaves to us.

Owns:      port kinds from the tree, which `tree` draws. GPUs are numbered by `gpus`; several descriptions are one before
           they come here (`merge`).
Promises:  assembling what is assembled changes nothing.
Relies on: `nvidia-smi`, NVML and nvbandwidth counting GPUs in PCI address order, unless the source says an index.
"""

from __future__ import annotations

import msgspec

from hinan.wire.facts import disputes
from hinan.wire.facts.identity import MELLANOX, VIRTIO, virtual_vendor
from hinan.wire.facts.model import Function, Link, Machine, Port, Role
from hinan.wire.machine.gpus import number_gpus
from hinan.wire.machine.ports import is_on_no_port
from hinan.wire.machine.sriov import with_physical
from hinan.wire.machine.suspects import mark_suspects
from hinan.wire.machine.tree import connect


def assemble(machine: Machine) -> Machine:
    """The machine with parents, ports, suspects, GPU numbers and signs of virtualisation."""
    functions = connect(with_physical(machine.functions))
    functions = _name_ports(functions)
    functions = mark_suspects(_without_emulated_links(functions))
    virtual = machine.virtual + _hypervisors(functions)
    functions = _without_ports_left_out(functions) if virtual else functions
    gpus, notes = number_gpus(functions, machine.gpus, machine.nodes)
    known = msgspec.structs.replace(machine, functions=functions, gpus=gpus, virtual=tuple(dict.fromkeys(virtual)))
    notes += disputes.note(known)
    if machine.mixed is not None:
        notes += (f"{machine.mixed}: who shares a link with whom is unknown",)
    return msgspec.structs.replace(known, notes=tuple(dict.fromkeys(machine.notes + notes)))


def _name_ports(functions: dict[str, Function]) -> dict[str, Function]:
    """Ports where the source has no Express capability: root port, then upstream and downstream in turns.

    A switch in one line (NCCL) of which another source tells bus numbers is one of its ports there.
    """
    functions = {a: msgspec.structs.replace(f, port=None) if _is_one_port(f) else f for a, f in functions.items()}
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


def _is_one_port(function: Function) -> bool:
    return function.port is Port.SWITCH and function.buses is not None


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
    told = (f for f in functions.values() if not _is_of_a_dpu(f, functions))
    names = sorted({name for f in told if (name := virtual_vendor(f.vendor_id))})
    signs = [f"{' and '.join(names)} devices on the bus"] if names else []
    if any(is_on_no_port(f, functions) for f in functions.values()):
        signs.append("GPUs at addresses that no port gives")
    return tuple(signs)


def _is_of_a_dpu(function: Function, functions: dict[str, Function]) -> bool:
    """A DPU shows virtio devices to bare metal too: in one slot with its own functions, or below its own ports.

    Of a machine that passes a NIC through to a guest neither is so: its virtio devices have other slots.
    """
    first_of_slot = functions.get(f"{function.address.rpartition('.')[0]}.0")
    own = (first_of_slot, functions.get(function.parent or ""))
    return function.vendor_id == VIRTIO and any(f is not None and f.vendor_id == MELLANOX for f in own)


def _without_ports_left_out(functions: dict[str, Function]) -> dict[str, Function]:
    """A VM that draws a GPU on no port does not tell what is above it."""
    return {
        address: msgspec.structs.replace(f, at_root=False) if f.role is Role.GPU and f.at_root else f
        for address, f in functions.items()
    }
