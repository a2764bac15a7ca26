"""Which NUMA node a GPU's host memory belongs on.

Owns:      the choice, as a pure function with its reason. Whoever places memory asks here.
Promises:  a node with CPUs, or None; a GPU's own memory node (Grace: 2, 10, 18, ...) is never answered, because
           `numactl --cpunodebind` and mbind of host buffers fail or misplace there.
Never:     says that another node is slower: that must be measured (0.98x to 5x was seen).
"""

from __future__ import annotations

from itertools import pairwise

import msgspec

from hinan.wire.model import Gpu, Machine, NumaNode


class Placement(msgspec.Struct, frozen=True):
    """The node, or None, and why."""

    node: int | None
    why: str


_WITHIN, _ACROSS = 12, 20
"""Distances (SLIT; 10 is the node itself) that say by themselves: parts of one socket (NPS, SNC) say 11 or 12; another
socket is 20 or more (Linux assumes 20). EPYC 7001 says 16 within, old Opterons 16 between: only a gap can tell there."""
_GAP_RATIO = 1.5


def in_one_socket(machine: Machine, one: int, other: int) -> bool | None:
    """Are two nodes parts of one socket? By the number of sockets, else by their distance; None: no source tells."""
    rows = {node.index: node.distances for node in machine.nodes if node.cpus != ()}
    if machine.packages == 1 or one == other:
        return True
    if machine.packages is not None and machine.packages == len(rows):
        return False
    told = [rows[a][b] for a, b in ((one, other), (other, one)) if b in rows.get(a, {})]
    if not told:
        return None
    within = _within_a_socket({d for node, row in rows.items() for far, d in row.items() if far in rows and far != node})
    return True if min(told) <= within else False if min(told) >= _ACROSS else None


def _within_a_socket(distances: set[int]) -> int:
    """The largest distance within a socket: below the gap in this machine's distances, else what says so by itself."""
    order = sorted(distances)
    below = [near for near, far in pairwise(order) if near < _ACROSS <= far and far >= near * _GAP_RATIO]
    return max((_WITHIN, *below))


def gpu_by_index(machine: Machine, index: int) -> Gpu | None:
    """The GPU that ranks call `index`."""
    return next((gpu for gpu in machine.gpus if gpu.index == index), None)


def node_for_slots(machine: Machine, address: str) -> Placement:
    """The NUMA node on which slots that the device at a PCI address writes should be made; None: leave it to the kernel."""
    if len(machine.nodes) < 2:
        return Placement(None, "the machine has one NUMA node")
    gpu = next((gpu for gpu in machine.gpus if gpu.address == address), None)
    if gpu is None:
        return Placement(None, f"no GPU is known at {address}")
    return node_for_gpu(machine, gpu.index)


def node_for_gpu(machine: Machine, index: int) -> Placement:
    """The NUMA node on which host memory for GPU `index` should lie.

    The bus says it (numa_node of the GPU, else of the bridge above); else the first node of its NUMA affinity. A node
    without CPUs is replaced by the nearest one with CPUs. With one node in the machine, it is that one.
    """
    gpu = gpu_by_index(machine, index)
    if gpu is None:
        return Placement(None, f"there is no GPU {index}")
    told, why = _told(machine, gpu)
    nodes = {node.index: node for node in machine.nodes}
    if told is None:
        if len(nodes) == 1 and not why:
            return Placement(next(iter(nodes)), "the machine has one node")
        return Placement(None, why or "no source tells the node of this GPU")
    node = nodes.get(told)
    if node is None or node.cpus != ():
        return Placement(told, why)
    near = _nearest_with_cpus(node, nodes, gpu.numa_affinity)
    if near is None:
        return Placement(None, f"node {told} has no CPUs, and no distance to one that has is known")
    return Placement(near, f"node {told} has no CPUs; node {near} is the nearest with CPUs")


def _told(machine: Machine, gpu: Gpu) -> tuple[int | None, str]:
    at = machine.functions.get(gpu.address or "")
    if "numa_node" in gpu.disputed:
        return None, f"sources contradict each other: {' or '.join(gpu.disputed['numa_node'])}"
    while at is not None:
        if "numa_node" in at.disputed:
            return None, f"sources contradict each other: {' or '.join(at.disputed['numa_node'])}"
        if at.numa_node is not None:
            own = at.address == gpu.address
            return at.numa_node, "numa_node of the GPU" if own else f"numa_node of {at.address} above the GPU"
        if at.numa_affinity and len(at.numa_affinity) < max(len(machine.nodes), 2):
            memory_only = {node.index for node in machine.nodes if node.cpus == ()}
            near = [index for index in at.numa_affinity if index not in memory_only] or list(at.numa_affinity)
            if len(near) == 1:
                return near[0], "the only near node with CPUs"
            return near[0], f"the first of nodes {', '.join(map(str, near))}, which are equally near"
        at = machine.functions.get(at.parent or "")
    if gpu.numa_node is not None:
        return gpu.numa_node, "NUMA affinity of the GPU"
    return None, ""


def _nearest_with_cpus(node: NumaNode, nodes: dict[int, NumaNode], affinity: tuple[int, ...]) -> int | None:
    with_cpus = [other for other in nodes.values() if other.cpus]
    measured = [(node.distances[o.index], o.index) for o in with_cpus if o.index in node.distances]
    if measured:
        return min(measured)[1]
    return next((index for index in affinity if nodes.get(index) and nodes[index].cpus), None)
