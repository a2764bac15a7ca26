"""Which NIC belongs to a GPU: its rail.

Owns:      the choice, as a pure function with its reason. Whoever picks a NIC or a peer for a rank asks here.
Promises:  the bus decides (same switch, fewest bridges), then the labels of `nvidia-smi topo -m`; ties by name, so that
           every rank of a node that asks gets the same answer.
"""

from __future__ import annotations

import msgspec

from hinan.wire.address import short_address
from hinan.wire.legs import nearest
from hinan.wire.model import Machine, Role
from hinan.wire.peer import common_bridge
from hinan.wire.placement import gpu_by_index

_NEARNESS = ("PIX", "PXB", "PHB", "NODE", "SYS")


class Rail(msgspec.Struct, frozen=True):
    """The NIC's name (mlx5_0) or short address; None: unknown. And why."""

    nic: str | None
    why: str


def nic_for_gpu(machine: Machine, index: int) -> Rail:
    """The NIC through which GPU `index` should reach other hosts.

    On Grace every label is SYS; then the choice is by name only, and the reason says so.
    """
    gpu = gpu_by_index(machine, index)
    if gpu is None:
        return Rail(None, f"there is no GPU {index}")
    device = nearest(machine, gpu.address, Role.NIC)
    if device is not None and gpu.address is not None and common_bridge(machine, gpu.address, device.address) is not None:
        return Rail(_name(machine, device.address), "same switch")
    labelled = sorted(
        (_NEARNESS.index(label), other)
        for other, label in gpu.relations.items()
        if label in _NEARNESS and not other.startswith("GPU")
    )
    if labelled:
        rank, name = labelled[0]
        alike = sum(other_rank == rank for other_rank, _ in labelled)
        return Rail(name, f"{_NEARNESS[rank]} in topo -m" + (f", like {alike - 1} others" if alike > 1 else ""))
    if device is None:
        return Rail(None, "no NIC is known")
    same = device.numa_node is not None and device.numa_node == _node(machine, gpu.address)
    return Rail(_name(machine, device.address), "same NUMA node, no switch in common" if same else "the first of all NICs")


def _name(machine: Machine, address: str) -> str:
    names = sorted(name for name, where in machine.nic_names.items() if where == address)
    return names[0] if names else short_address(address)


def _node(machine: Machine, address: str | None) -> int | None:
    function = machine.functions.get(address or "")
    return function.numa_node if function else None
