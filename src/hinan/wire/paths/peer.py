"""Peer to peer: where the path from one device to another turns, and what sends it up to the root instead.

Owns:      how near two devices are, the kernel's distance between them and its ACS rule.
Promises:  "they meet at the root" only where both paths are known up to it, or bus numbers exclude any other place.
Relies on: Linux drivers/pci/p2pdma.c in its early form: distance is the number of bridges passed on both sides plus the
           steps to them; a redirecting port below the common bridge makes it -2 ("through the root"), no common bridge
           -1. Today's kernel knows more host bridges; the redirect test is the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from itertools import takewhile

import msgspec

from hinan.wire.facts.model import Function, Machine, Port, Role
from hinan.wire.machine.sriov import is_virtual
from hinan.wire.machine.tree import holds_bus
from hinan.wire.paths.path import Path, crossed, path_up


def common_bridge(machine: Machine, one: str, other: str) -> str | None:
    """The lowest bridge above both; None when they meet only at the root complex, or nobody knows."""
    above = [hop.address for hop in path_up(machine, other).hops[1:]]
    return next((hop.address for hop in path_up(machine, one).hops[1:] if hop.address in above), None)


def bridge_above_gap(machine: Machine, one: str, other: str) -> str | None:
    """The lowest bridge that both are known to be below, across gaps in what is told: they meet there, or nearer."""
    above = crossed(machine, other)[1:]
    return next((hop for hop in crossed(machine, one)[1:] if hop in above), None)


def _until(hops: tuple[Function, ...], bridge: str) -> tuple[Function, ...]:
    return tuple(takewhile(lambda hop: hop.address != bridge, hops))


def _ports_below(machine: Machine, device: str, bridge: str) -> tuple[Function, ...]:
    return _until(path_up(machine, device).hops[1:], bridge)


def redirecting_ports(machine: Machine, one: str, other: str) -> tuple[str, ...]:
    """Ports between two devices and their common bridge on which ACS sends peer requests to the root."""
    bridge = common_bridge(machine, one, other)
    if bridge is None:
        return ()
    ports = _ports_below(machine, one, bridge) + _ports_below(machine, other, bridge)
    return tuple(port.address for port in ports if port.acs is not None and port.acs.redirects)


def acs_known(machine: Machine, one: str, other: str) -> bool:
    """Does the source tell ACSCtl of every port on which it could redirect between the two?

    At least one port on each side: below a switch that a source writes as one line (NCCL), or whose ports it leaves out,
    stand ports of which it tells nothing. Below one link's port there are only functions of one device.
    """
    bridge = common_bridge(machine, one, other)
    if bridge is None:
        return False
    sides = [
        [port for port in _ports_below(machine, device, bridge) if port.port not in (Port.UP, Port.LEGACY)]
        for device in (one, other)
    ]
    if any(port.acs is None for side in sides for port in side):
        return False
    return all(sides) or machine.functions[bridge].port in (Port.DOWN, Port.ROOT)


def is_drawn_whole(machine: Machine, one: str, other: str) -> bool:
    """Are all bridges between the two in the source? Not where it writes both ports of a switch as one (NCCL)."""
    return all(hop.port is not Port.SWITCH for device in (one, other) for hop in path_up(machine, device).hops)


class Crossing(msgspec.Struct, frozen=True):
    """The hops from one device up, and those down to another, each in the order of travel.

    turn: address of the hop that turns, the last one of `up`. at_root: the root complex turns. Neither: nobody knows
    where they meet.
    """

    up: tuple[Function, ...] = ()
    down: tuple[Function, ...] = ()
    turn: str | None = None
    at_root: bool = False


def crossing(machine: Machine, one: str, other: str, *, obey_acs: bool = True) -> Crossing:
    """The way between two devices: round in their common bridge, or over the root complex where ACS sends it there."""
    ups, downs = path_up(machine, one), path_up(machine, other)
    bridge = common_bridge(machine, one, other)
    if bridge is not None and not (obey_acs and redirecting_ports(machine, one, other)):
        up = _until(ups.hops, bridge)
        return Crossing((*up, machine.functions[bridge]), _until(downs.hops, bridge)[::-1], bridge)
    return Crossing(ups.hops, downs.hops[::-1], None, ups.complete and downs.complete)


class Meeting(IntEnum):
    """Where the bytes between two devices turn, the nearer first."""

    BELOW_ROOT = 0
    BELOW_GAP = 1  # below the root too: bus numbers put both behind one bridge, and bridges between are missing
    REDIRECTED = 2  # a common bridge, and ACS that sends them up to the root all the same
    AT_ROOT = 3
    UNKNOWN = 4


class Nearness(msgspec.Struct, frozen=True, order=True):
    """How near two devices are; of two of these the smaller one is the nearer. bridges: passed on both sides.

    The kernel's codes are no order (-2 is farther than 4), so they are made of this and never compared.
    """

    where: Meeting
    bridges: int

    @property
    def kernel_distance(self) -> int | None:
        """As p2pdma counts: 4 behind one switch, -2 redirected to the root, -1 no common bridge; None: nobody knows."""
        codes = {Meeting.BELOW_GAP: None, Meeting.REDIRECTED: -2, Meeting.AT_ROOT: -1, Meeting.UNKNOWN: None}
        return codes.get(self.where, self.bridges)


def _meet_at_root(one: Path, other: Path) -> bool:
    """Do two paths without a hop in common meet at the root complex? Bus numbers may say so of one that is not told."""
    if one.complete and other.complete:
        return True
    return any(
        path.complete and path.hops[-1].buses is not None and not holds_bus(path.hops[-1], stranger.hops[0].address)
        for path, stranger in ((one, other), (other, one))
        if stranger.hops
    )


def nearness(machine: Machine, one: str, other: str) -> Nearness:
    """How near two devices are, by the bus."""
    if one == other:
        return Nearness(Meeting.BELOW_ROOT, 0)
    bridge = common_bridge(machine, one, other)
    if bridge is None and bridge_above_gap(machine, one, other) is not None:
        return Nearness(Meeting.BELOW_GAP, 0)
    if bridge is None:
        apart = _meet_at_root(path_up(machine, one), path_up(machine, other))
        return Nearness(Meeting.AT_ROOT if apart else Meeting.UNKNOWN, 0)
    steps = sum(len(_ports_below(machine, device, bridge)) + 1 for device in (one, other))
    return Nearness(Meeting.REDIRECTED if redirecting_ports(machine, one, other) else Meeting.BELOW_ROOT, steps)


def distance(machine: Machine, one: str, other: str) -> int | None:
    """The kernel's distance, to be shown; what is to be compared is `nearness`."""
    return nearness(machine, one, other).kernel_distance


def same_switch(machine: Machine, device: str, roles: Iterable[Role]) -> tuple[Function, ...]:
    """Devices of these roles that share a switch with `device`, nearest first; none where nobody knows of which machine."""
    if machine.mixed is not None:
        return ()
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
