"""Who stands above whom: one tree of what bus numbers say and what sources drew.

Owns:      parents. Both kinds of source only claim that a bridge is *somewhere above* a function: bus numbers where the
           bridge between is missing in the dump, NCCL because it writes a switch as one line and leaves root ports out.
           The nearest bridge of all claims is the parent: a source that draws less takes nothing from one that draws more.
Promises:  connecting what is connected changes nothing. A gap in the bus numbers is one only until a source draws what is
           there; a chain that returns to itself is cut. Two bridges that claim the same buses, and one that is drawn above
           a root port, leave what is above a function unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from hinan.wire.facts.address import split_address
from hinan.wire.facts.identity import virtual_vendor
from hinan.wire.facts.model import Function, Port, Role

PARENT = "parent"
"""The name of a function's place among what sources contradict each other on."""


def connect(functions: Mapping[str, Function]) -> dict[str, Function]:
    """The functions with their parents."""
    bridges: dict[int, list[Function]] = {}
    for function in functions.values():
        if function.buses is not None:
            bridges.setdefault(split_address(function.address)[0], []).append(function)
    found: dict[str, Function] = {}
    farther: list[tuple[str, str, str]] = []  # function, its bridge by numbers, one drawn above it and not below that one
    for address, function in sorted(functions.items()):
        claims = _by_bus(function, bridges.get(split_address(address)[0], []))
        numbered = claims[0] if claims else None
        drawn = functions.get(function.parent or "")
        if PARENT in function.disputed or len(claims) > 1:
            found[address] = with_unknown_parent(function, [bridge.address for bridge in claims[1:] and claims])
        elif numbered is None:
            found[address] = _drawn(function, drawn)
        elif drawn is None or drawn.buses is not None:
            found[address] = _numbered(function, numbered)
        elif holds_bus(numbered, drawn.address):
            found[address] = _below(function, drawn.address)
        else:
            found[address] = _numbered(function, numbered)
            farther.append((address, numbered.address, drawn.address))
    for address, bridge, above in farther:
        if not _lift(found, bridge, above):
            found[address] = with_unknown_parent(functions[address], (bridge, above))
    return _without_loops(found)


def holds_bus(bridge: Function, address: str) -> bool:
    """Is the bus of this address one of those behind the bridge, by its numbers?"""
    (domain, bus, _, _), behind = split_address(address), bridge.buses
    return (
        behind is not None and split_address(bridge.address)[0] == domain and behind.secondary <= bus <= behind.subordinate
    )


def with_unknown_parent(function: Function, told: Iterable[str]) -> Function:
    """The function without a place, and with what was told of it beside what had been told before."""
    values = tuple(sorted({*function.disputed.get(PARENT, ()), *told}))
    disputed = dict(sorted({**function.disputed, PARENT: values}.items()))
    return msgspec.structs.replace(function, parent=None, gap_above=False, at_root=False, disputed=disputed)


def _by_bus(function: Function, bridges: list[Function]) -> list[Function]:
    """The bridge of its domain whose range holds the function's bus most tightly; several, if they claim the same range.

    Nothing is above a root port.
    """
    if function.port is Port.ROOT:
        return []
    holding = [
        b for b in bridges if b.address != function.address and _counts_up(b) and holds_bus(b, function.address)
    ]  # fmt: skip
    tightest = min(map(_width, holding), default=0)
    return sorted((b for b in holding if _width(b) == tightest), key=lambda b: b.address)


def _width(bridge: Function) -> int:
    return bridge.buses.subordinate - bridge.buses.secondary if bridge.buses else 0


def _counts_up(bridge: Function) -> bool:
    return bridge.buses is not None and bridge.buses.primary < bridge.buses.secondary


def _below(function: Function, parent: str, *, gap: bool = False) -> Function:
    return msgspec.structs.replace(function, parent=parent, gap_above=gap, at_root=False)


def _numbered(function: Function, above: Function) -> Function:
    """Below the bridge that bus numbers say; another secondary bus means a gap, unless a source draws none there."""
    gap = above.buses is not None and above.buses.secondary != split_address(function.address)[1]
    return _below(function, above.address, gap=gap and (function.gap_above or function.parent != above.address))


def _drawn(function: Function, drawn: Function | None) -> Function:
    """As drawn. A bridge of which only its buses are known, and nothing above it, is taken for the top."""
    if drawn is not None:
        return function
    top = function.role is Role.BRIDGE and function.port is None and function.buses is not None
    return msgspec.structs.replace(function, parent=None, gap_above=False, at_root=function.at_root or top)


def _lift(functions: dict[str, Function], bridge: str, above: str) -> bool:
    """Put `above` between the bridge and what is above both: two bridges above one function are above one another.

    False where the way ends at a root port of the machine, above which nothing is: then the two contradict each other.
    """
    at, seen = functions[bridge], {above}
    while at.address not in seen:
        if at.port is Port.ROOT and virtual_vendor(at.vendor_id) is None:
            return False
        seen.add(at.address)
        parent = functions.get(at.parent or "")
        if parent is None or holds_bus(parent, above):
            functions[at.address] = _below(at, above)
            return True
        at = parent
    return True


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
