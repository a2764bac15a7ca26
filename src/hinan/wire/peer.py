"""Peer to peer: where the path from one device to another turns, and what sends it up to the root instead.

Owns:      the kernel's distance between two devices and its ACS rule.
Relies on: Linux drivers/pci/p2pdma.c in its early form: distance is the number of bridges passed on both sides plus the
           steps to them; a redirecting port below the common bridge makes it -2 ("through the root"), no common bridge
           -1. Today's kernel knows more host bridges; the redirect test is the same.
"""

from __future__ import annotations

from collections.abc import Iterable

from hinan.wire.model import Function, Machine, Port, Role
from hinan.wire.path import path_up
from hinan.wire.sriov import is_virtual

NO_COMMON_BRIDGE, THROUGH_ROOT = -1, -2


def common_bridge(machine: Machine, one: str, other: str) -> str | None:
    """The lowest bridge above both; None when they meet only at the root complex, or nobody knows."""
    above = [hop.address for hop in path_up(machine, other).hops[1:]]
    return next((hop.address for hop in path_up(machine, one).hops[1:] if hop.address in above), None)


def _ports_below(machine: Machine, device: str, bridge: str) -> list[Function]:
    ports = []
    for hop in path_up(machine, device).hops[1:]:
        if hop.address == bridge:
            break
        ports.append(hop)
    return ports


def redirecting_ports(machine: Machine, one: str, other: str) -> tuple[str, ...]:
    """Ports between two devices and their common bridge on which ACS sends peer requests to the root."""
    bridge = common_bridge(machine, one, other)
    if bridge is None:
        return ()
    ports = _ports_below(machine, one, bridge) + _ports_below(machine, other, bridge)
    return tuple(port.address for port in ports if port.acs is not None and port.acs.redirects)


def acs_known(machine: Machine, one: str, other: str) -> bool:
    """Is ACSCtl told for every downstream port between the two and their common bridge?"""
    bridge = common_bridge(machine, one, other)
    if bridge is None:
        return False
    ports = _ports_below(machine, one, bridge) + _ports_below(machine, other, bridge)
    return all(port.acs is not None for port in ports if port.port in (Port.DOWN, Port.ROOT, Port.SWITCH))


def distance(machine: Machine, one: str, other: str) -> int:
    """The kernel's distance: 4 behind one switch; -2 redirected to the root; -1 no common bridge; 0 for itself."""
    if one == other:
        return 0
    bridge = common_bridge(machine, one, other)
    if bridge is None:
        return NO_COMMON_BRIDGE
    if redirecting_ports(machine, one, other):
        return THROUGH_ROOT
    steps = (len(_ports_below(machine, device, bridge)) + 1 for device in (one, other))
    return sum(steps)


def same_switch(machine: Machine, device: str, roles: Iterable[Role]) -> tuple[Function, ...]:
    """Devices of these roles that share a switch with `device`, nearest first."""
    wanted = set(roles)
    found = []
    for function in machine.functions.values():
        if function.role not in wanted or function.address == device or is_virtual(function, machine.functions):
            continue
        bridge = common_bridge(machine, device, function.address)
        if bridge is not None and machine.functions[bridge].port in (Port.UP, Port.DOWN, Port.SWITCH, None):
            near = len(_ports_below(machine, device, bridge)) + len(_ports_below(machine, function.address, bridge))
            found.append((near, function.address, function))
    return tuple(function for _, _, function in sorted(found, key=lambda item: item[:2]))
