"""Sources that contradict each other on who is above whom.

Owns:      the verdict. Each source's tree says what is somewhere above a function; two of them agree if both can be right
           of one machine, and a source that draws less contradicts nobody.
Promises:  neither the order of the sources nor an address decides: what is above such a function is unknown, and so is
           everything that follows from it.
Relies on: bus numbers saying the next bridge (its secondary bus is the function's) up to a root port, above which nothing
           is but the root; and NCCL naming every switch of a way, and no other port.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from hinan.wire.facts.address import split_address
from hinan.wire.facts.identity import virtual_vendor
from hinan.wire.facts.join import NCCL
from hinan.wire.facts.model import Function, Machine, Port, Role
from hinan.wire.machine.sriov import with_physical
from hinan.wire.machine.tree import connect

_DRAW_PORTS = {"sysfs", "lspci -vvv", "lspci -tv", "lspci", "hwloc XML"}


def disputed_parents(machines: Sequence[Machine]) -> dict[str, tuple[str, ...]]:
    """Functions of which sources say different things on what is above them -> the next bridge by each."""
    told: dict[str, set[str]] = {}
    for one, other in combinations([_Tree(machine) for machine in machines if machine.functions], 2):
        for address in one.functions.keys() & other.functions.keys():
            mine, theirs = one.above(address), other.above(address)
            if mine and theirs and mine[0] != theirs[0] and _contradict(one, other, address, mine, theirs):
                told.setdefault(address, set()).update((mine[0], theirs[0]))
            for above in mine:
                if address in other.above(above):  # the other way round there
                    told.setdefault(address, set()).add(mine[0])
                    told.setdefault(above, set()).add(other.above(above)[0])
    return {address: tuple(sorted(values)) for address, values in told.items()}


class _Tree:
    """One source's tree, by itself. only_switches: it names switches and no ports, as NCCL does."""

    def __init__(self, machine: Machine) -> None:
        self.told: Mapping[str, Function] = machine.functions
        self.functions = connect(with_physical(machine.functions))
        self.only_switches = not _DRAW_PORTS & set(machine.sources)
        self.with_nccl = NCCL in machine.sources
        self._above: dict[str, tuple[str, ...]] = {}

    def above(self, address: str) -> tuple[str, ...]:
        """Every function that it puts above this one, the next first."""
        if address not in self._above:
            found: dict[str, None] = {}
            at = self.functions.get(address)
            while at is not None and at.parent in self.functions and at.parent not in found:
                found[at.parent] = None
                at = self.functions[at.parent]
            self._above[address] = tuple(found)
        return self._above[address]

    def next_by_bus(self, address: str) -> bool:
        """Is the bridge above it the next one, since the function is on that bridge's own bus?"""
        function = self.functions[address]
        bridge = self.functions.get(function.parent or "")
        return bridge is not None and bridge.buses is not None and bridge.buses.secondary == split_address(address)[1]

    def is_whole(self, address: str) -> bool:
        """Does it tell everything from here to a root port? One that a hypervisor emulates is not the machine's."""
        way = (address, *self.above(address))
        top = self.told[way[-1]]
        at_root = top.port is Port.ROOT or (top.at_root and top.role is Role.BRIDGE and not self.with_nccl)
        return at_root and virtual_vendor(top.vendor_id) is None and all(self.next_by_bus(each) for each in way[:-1])


def _contradict(one: _Tree, other: _Tree, address: str, mine: tuple[str, ...], theirs: tuple[str, ...]) -> bool:
    """Can no one machine have both? mine, theirs: what each puts above the function."""
    added_by_other = theirs[0] not in mine
    added_by_one = mine[0] not in theirs
    if (added_by_other and one.is_whole(address)) or (added_by_one and other.is_whole(address)):
        return True
    if not added_by_one and not added_by_other:
        return True  # each puts the other's next bridge farther up
    same_kind = (one.next_by_bus(address) and other.next_by_bus(address)) or (one.only_switches and other.only_switches)
    return added_by_one and added_by_other and same_kind
