"""Who claims an address: bridge windows, BARs, and what is left for the root complex.

Owns:      the routing of a memory write from its requester, hop by hop, with the reason at each.
Promises:  exactly the rules of PCIe decode. An endpoint sends everything up; a port sends down what lies in a sibling's
           window, unless ACS redirects; what lies in its own window it never sends up; the root complex sends down
           what a window of its own holds, and `root_complex` says what the rest is. Where an IOMMU translates, the root
           complex compares what its page tables answer, which nobody tells.
Relies on: windows and BARs being in the source (lspci -vvv, sysfs). Where they are not, the step says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from hinan.wire.facts.address import short_address
from hinan.wire.facts.model import Function, Machine, Port, Role, Window
from hinan.wire.machine.root_complex import NOWHERE, UNKNOWN, claimant_at_root, translated_at_root
from hinan.wire.paths.path import Path, below, path_up


class Step(msgspec.Struct, frozen=True):
    """What one hop did with the write: up, turn, down, redirect, stays, claim, memory, walk, lost, unknown."""

    at: str
    action: str
    why: str


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """All steps, and where the write ends: "BAR 2 of 19:00.0", "system memory", a range's name, "nowhere" or "unknown"."""

    steps: tuple[Step, ...]
    destination: str
    node: int | None = None


class _Claim(msgspec.Struct, frozen=True):
    """kind: window, BAR or VF BAR."""

    kind: str
    window: Window

    def destination(self, function: Function) -> str:
        return f"{self.kind} {self.window.bar} of {short_address(function.address)}"


def route_write(machine: Machine, requester: str, address: int) -> Route:
    """The way of a memory write (untranslated, AT = 00) of `requester` to a bus address."""
    path = path_up(machine, requester)
    if not path.hops:
        return Route(steps=(), destination=NOWHERE)
    steps = [Step(requester, "up", _first_words(path.hops[0]))]
    redirected = False
    for order, hop in enumerate(path.hops[1:], start=1):
        inside = _own_window(hop, address) if not redirected else None
        if inside is None and hop.port in (Port.DOWN, Port.ROOT) and hop.acs is not None and hop.acs.redirects_requests:
            redirected = True
            steps.append(Step(hop.address, "redirect", "ACS redirect is on: peers are reached through the root only"))
            continue
        own = _claim_of(hop, address)
        if own is not None and own.kind != "window" and not redirected:
            return _claimed(hop, own, steps)
        sibling = _sibling(machine, hop, path.hops[order - 1], address) if not redirected else None
        if sibling is not None:
            untold = [port for port in path.hops[1:order] if port.port is Port.DOWN and port.acs is None]
            unless = f", unless ACS redirects at {short_address(untold[0].address)}, which is unknown" if untold else ""
            why = f"in the window of {short_address(sibling.address)}: peer to peer{unless}"
            steps.append(Step(hop.address, "turn", why))
            return _down(machine, sibling, address, steps)
        if inside is not None:
            why = f"inside its own window {inside.first:#x}-{inside.last:#x}: what lies behind it is not sent up"
            steps.append(Step(hop.address, "stays", why))
            return _unclaimed(machine, hop, address, steps)
        steps.append(Step(hop.address, "up", _why_up(hop, redirected=redirected)))
    return _at_root(machine, path, address, steps)


def ranges_on_bus(machine: Machine) -> Iterator[tuple[int, int]]:
    """First and last address of all that bridges and BARs compare with: between two such ends a route is the same."""
    for function in machine.functions.values():
        virtual = function.sriov.bars if function.sriov is not None else ()
        for window in (*function.windows, *function.bars, *virtual):
            yield window.first, window.last


def windows_told(machine: Machine, requester: str) -> bool:
    """Does the source tell a window of any bridge on the requester's path?"""
    return any(hop.windows for hop in path_up(machine, requester).hops)


def _first_words(requester: Function) -> str:
    bridge = requester.role is Role.BRIDGE
    return "what a port writes itself leaves on its upstream side" if bridge else "an endpoint has one way out"


def _own_window(bridge: Function, address: int) -> Window | None:
    return next((window for window in bridge.windows if window.holds(address)), None)


def _claim_of(function: Function, address: int) -> _Claim | None:
    """What of the function holds the address; BARs first, since a bridge's own lie in no window of its own."""
    virtual = function.sriov.bars if function.sriov is not None and function.sriov.enabled else ()
    kinds: tuple[tuple[str, Iterable[Window]], ...] = (
        ("BAR", function.bars),
        ("VF BAR", virtual),
        ("window", function.windows if function.role is Role.BRIDGE else ()),
    )
    return next((_Claim(kind, window) for kind, windows in kinds for window in windows if window.holds(address)), None)


def _takes(machine: Machine, function: Function, address: int) -> bool:
    """By positive decode, or as a subtractive bridge with a claimant behind it."""
    if _claim_of(function, address) is not None:
        return True
    return function.subtractive and any(_takes(machine, child, address) for child in machine.children(function.address))


def _one_of(machine: Machine, functions: Iterable[Function], address: int) -> Function | None:
    """The one that claims the address: positive decode goes before subtractive."""
    taking = [f for f in functions if _takes(machine, f, address)]
    return min(taking, key=lambda f: _claim_of(f, address) is None, default=None)


def _sibling(machine: Machine, hop: Function, below_it: Function, address: int) -> Function | None:
    """Another function under `hop` that claims the address."""
    return _one_of(machine, (c for c in machine.children(hop.address) if c.address != below_it.address), address)


def _why_up(hop: Function, *, redirected: bool) -> str:
    if not hop.windows:
        return "its windows are not told; taken as outside"
    if redirected:
        return "redirected: whatever its windows, it goes to the root"
    return f"outside its windows {', '.join(f'{w.first:#x}-{w.last:#x}' for w in hop.windows)}"


def _down(machine: Machine, function: Function, address: int, steps: list[Step]) -> Route:
    at = function
    while True:
        claim = _claim_of(at, address)
        if claim is not None and claim.kind != "window":
            return _claimed(at, claim, steps)
        rule = "subtractive decode: nobody else claims it"
        if claim is not None:
            rule = f"window {claim.window.first:#x}-{claim.window.last:#x}"
        steps.append(Step(at.address, "down", rule))
        child = _one_of(machine, machine.children(at.address), address)
        if child is None:
            return _unclaimed(machine, at, address, steps)
        at = child


def _claimed(function: Function, claim: _Claim, steps: list[Step]) -> Route:
    shown = f"{claim.kind} {claim.window.bar} {claim.window.first:#x}-{claim.window.last:#x}"
    steps.append(Step(function.address, "claim", shown))
    return Route(steps=tuple(steps), destination=claim.destination(function))


def _unclaimed(machine: Machine, bridge: Function, address: int, steps: list[Step]) -> Route:
    """In the bridge's window, and nothing below is known to claim it. lspci prints no sizes of VF BARs."""
    for function in below(machine, bridge.address):
        told = function.sriov
        if told is not None and told.enabled and not told.sized and any(bar.first <= address for bar in told.bars):
            why = f"VF BARs of {short_address(function.address)} begin below it, and their size is not told"
            steps.append(Step(bridge.address, "unknown", why))
            return Route(steps=tuple(steps), destination=UNKNOWN)
    steps.append(Step(bridge.address, "lost", "no other function behind it claims it: unsupported request"))
    return Route(steps=tuple(steps), destination=NOWHERE)


def _at_root(machine: Machine, path: Path, address: int, steps: list[Step]) -> Route:
    if not path.complete:
        steps.append(Step(steps[-1].at, "up", "what is above is not told"))
    behind = translated_at_root(machine, address, path.hops[0].address)
    if behind is not None:
        steps.append(Step("root complex", behind.action, behind.why))
        return Route(steps=tuple(steps), destination=behind.destination)
    tops = [f for f in machine.functions.values() if f.at_root or f.parent is None]
    top = _one_of(machine, tops, address)
    if top is not None:
        claim = _claim_of(top, address)
        held = "a window" if claim is None or claim.kind == "window" else f"{claim.kind} {claim.window.bar}"
        steps.append(Step("root complex", "down", f"in {held} of {short_address(top.address)}: back down"))
        return _down(machine, top, address, steps)
    found = claimant_at_root(machine, address, path.hops[0].address)
    steps.append(Step("root complex", found.action, found.why))
    return Route(steps=tuple(steps), destination=found.destination, node=found.node)
