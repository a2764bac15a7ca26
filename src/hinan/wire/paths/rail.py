"""Which NIC belongs to a GPU, and which GPU of another machine is its peer: the rail.

Owns:      the choice, as pure functions with their reasons. Whoever picks a NIC or a peer for a rank asks here.
Promises:  a NIC without RDMA is taken only where there is no other, and a narrow link only where none is wider. Then
           the bus decides (same switch, fewest bridges), then the labels of `nvidia-smi topo -m`, then the node. GPUs to
           which the same NICs are equally near take them in turns, by number, so that all are used and every rank of a
           node that asks gets the same answer.
"""

from __future__ import annotations

import re

import msgspec

from hinan.wire.facts.address import short_address
from hinan.wire.facts.join import OF_SEVERAL_MACHINES
from hinan.wire.facts.memo import remembered
from hinan.wire.facts.model import Function, Gpu, Machine, Role
from hinan.wire.facts.nics import best, usable
from hinan.wire.facts.placement import gpu_by_index
from hinan.wire.paths.peer import Meeting, Nearness, nearness

_NEARNESS = ("PIX", "PXB", "PHB", "NODE", "SYS")


class Rail(msgspec.Struct, frozen=True):
    """The NIC's name (mlx5_0) or short address; None: unknown. And why. `address`: where it is on the bus, if known."""

    nic: str | None
    why: str
    address: str | None = None


class Peer(msgspec.Struct, frozen=True):
    """The number of a GPU on another machine; None: none is on that rail. And why."""

    gpu: int | None
    why: str


def nic_for_gpu(machine: Machine, index: int) -> Rail:
    """The NIC through which GPU `index` should reach other hosts.

    On Grace every label is SYS; then the choice is by number only, and the reason says so.
    """
    gpu = gpu_by_index(machine, index)
    if gpu is None:
        return Rail(None, f"there is no GPU {index}")
    if machine.mixed is not None:
        return Rail(None, OF_SEVERAL_MACHINES)
    return _in_turns(machine, gpu, labels=True)


def nic_on_bus(machine: Machine, index: int) -> str | None:
    """Address of the NIC whose way can be drawn for GPU `index`: that of its rail, if its place is known.

    `topo -m` names NICs and does not say where they are. Then it is the nearest by the bus alone, as without topo -m.
    """
    gpu, rail = gpu_by_index(machine, index), nic_for_gpu(machine, index)
    if gpu is None or rail.nic is None or rail.address is not None:
        return rail.address
    return _in_turns(machine, gpu, labels=False).address


def _in_turns(machine: Machine, gpu: Gpu, *, labels: bool) -> Rail:
    near, why = _near(machine, gpu, labels=labels)
    if not near:
        return Rail(None, why)
    alike = [other.index for other in machine.gpus if _near(machine, other, labels=labels)[0] == near]
    turn = alike.index(gpu.index) % len(near)
    tied = f", one of {len(near)} alike" if len(near) > 1 else ""
    return Rail(near[turn][0], why + tied, near[turn][1])


def rails(machine: Machine) -> dict[int, int]:
    """Rail number of each GPU that has a NIC: the NICs in use, in order of their names, are numbered from 0."""
    nics = {gpu.index: rail.nic for gpu in machine.gpus if (rail := nic_for_gpu(machine, gpu.index)).nic is not None}
    order = sorted({nic for nic in nics.values() if nic is not None}, key=_natural)
    return {index: order.index(nic) for index, nic in nics.items() if nic is not None}


def peer_on_rail(here: Machine, index: int, there: Machine) -> Peer:
    """The GPU of another machine that a copy from GPU `index` should go to: same rail, so one switch of the fabric.

    Of several on that rail the one in the same place among them.
    """
    mine, theirs = rails(here), rails(there)
    if index not in mine:
        return Peer(None, f"no NIC is known for GPU {index}")
    rail = mine[index]
    place = sorted(i for i, r in mine.items() if r == rail).index(index)
    there_on_it = sorted(i for i, r in theirs.items() if r == rail)
    if not there_on_it:
        return Peer(None, f"the other machine has no GPU on rail {rail}")
    return Peer(there_on_it[place % len(there_on_it)], f"rail {rail}")


_Nics = tuple[tuple[str, str | None], ...]
"""Names with addresses, in order of the names."""


def _near(machine: Machine, gpu: Gpu, *, labels: bool) -> tuple[_Nics, str]:
    """The NICs nearest to a GPU, all equally near, and by what. Virtual functions do not count beside their own.

    labels: may the words of topo -m decide, where the bus shows no switch in common?
    """
    return remembered(machine, f"near {gpu.index} {labels}", lambda: _nearest(machine, gpu, labels=labels))


_SWITCHED = {
    Meeting.BELOW_ROOT: "same switch",
    Meeting.BELOW_GAP: "same switch, of which ports are missing in the source",
    Meeting.REDIRECTED: "same switch, by way of the root complex (ACS)",
}


def _nearest(machine: Machine, gpu: Gpu, *, labels: bool) -> tuple[_Nics, str]:
    physical = (
        f for f in machine.functions.values() if f.role is Role.NIC and f.physical_function not in machine.functions
    )
    nics = usable(list(physical))
    place = machine.functions.get(gpu.address or "")
    steps: dict[str, Nearness] = {}
    if place is not None:
        steps = {f.address: nearness(machine, place.address, f.address) for f in nics}
        nearest = min(steps.values(), default=None)
        if nearest is not None and nearest.where <= Meeting.REDIRECTED:
            return _named(machine, [f for f in nics if steps[f.address] == nearest]), _SWITCHED[nearest.where]
    ranks = {other: _NEARNESS.index(word) for other, word in gpu.relations.items() if word in _NEARNESS}
    useless = machine.functions.keys() - {f.address for f in nics}
    ranks = {
        other: rank
        for other, rank in ranks.items()
        if not other.startswith("GPU") and machine.nic_names.get(other) not in useless
    }
    if labels and ranks and "relations" not in gpu.disputed:
        best = min(ranks.values())
        names = sorted((other for other, rank in ranks.items() if rank == best), key=_natural)
        return tuple((name, machine.nic_names.get(name)) for name in names), f"{_NEARNESS[best]} in topo -m"
    local = [f for f in nics if place is not None and f.numa_node is not None and f.numa_node == place.numa_node]
    if local:
        told = place is not None and all(steps[f.address].where is not Meeting.UNKNOWN for f in local)
        return _named(machine, local), "same NUMA node, " + ("no switch in common" if told else "the switches are not told")
    return _named(machine, nics), "nothing says which is near" if nics else "no NIC is known"


def _named(machine: Machine, nics: list[Function]) -> _Nics:
    """The best of these NICs under the system's names, else their short addresses."""
    names = {}
    for address in (nic.address for nic in best(nics)):
        known = sorted((name for name, where in machine.nic_names.items() if where == address), key=_natural)
        names[known[0] if known else short_address(address)] = address
    return tuple(sorted(names.items(), key=lambda item: _natural(item[0])))


def _natural(name: str) -> list[tuple[int, int | str]]:
    """mlx5_2 before mlx5_10."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"([0-9]+)", name) if part]
