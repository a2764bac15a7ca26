"""Which NUMA node a GPU's host memory belongs on.

Owns:      the choice, as a pure function with its reason. Whoever places memory asks here.
Promises:  a node with CPUs, or None; of equally near nodes the first, and the others are as right. A list of nodes is all
           of them only where a source says which there are. A GPU's own memory node (Grace: 2, 10, 18, ...) is never
           answered, because `numactl --cpunodebind` and mbind of host buffers fail or misplace there.
Never:     says that another node is slower: that must be measured (0.98x to 5x was seen).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from hinan.wire.facts.model import Gpu, Machine, NumaNode


class Placement(msgspec.Struct, frozen=True):
    """The node, or None, and why. equal: all nodes that are as near as it, where several are."""

    node: int | None
    why: str
    equal: tuple[int, ...] = ()

    @property
    def near(self) -> tuple[int, ...]:
        """Nodes on which a buffer is right: the one, or any of those that are equally near; none where it is unknown."""
        return self.equal or (() if self.node is None else (self.node,))


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
    if not told:
        alone = only_node(machine)
        if alone is not None and not why:
            return Placement(alone, "the machine has one node")
        return Placement(None, why or "no source tells the node of this GPU")
    node = nodes.get(told[0])
    if node is None or node.cpus != ():
        near = tuple(index for index in told if index not in nodes or nodes[index].cpus != ())
        return Placement(told[0], _equal_words(near), near) if len(near) > 1 else Placement(told[0], why)
    nearest = _nearest_with_cpus(node, nodes, gpu.numa_affinity)
    if nearest is None:
        return Placement(None, f"node {node.index} has no CPUs, and no distance to one that has is known")
    return Placement(nearest, f"node {node.index} has no CPUs; node {nearest} is the nearest with CPUs")


def has_all_nodes(machine: Machine) -> bool:
    """Are the nodes that are known all there are? Only where a source says which there are, and nothing names another."""
    named = {f.numa_node for f in machine.functions.values()} | {gpu.numa_node for gpu in machine.gpus}
    return machine.node_set is not None and {*machine.node_set, *named} - {None} <= {node.index for node in machine.nodes}


def only_node(machine: Machine) -> int | None:
    """The node of a machine that has one; None where it has several, or there may be more."""
    return machine.nodes[0].index if len(machine.nodes) == 1 and has_all_nodes(machine) else None


def _told(machine: Machine, gpu: Gpu) -> tuple[tuple[int, ...], str]:
    """Equally near nodes, mostly one; none where no source tells, or why."""
    at = machine.functions.get(gpu.address or "")
    if "numa_node" in gpu.disputed:
        return (), f"sources contradict each other: {' or '.join(gpu.disputed['numa_node'])}"
    while at is not None:
        if "numa_node" in at.disputed:
            return (), f"sources contradict each other: {' or '.join(at.disputed['numa_node'])}"
        if at.numa_node is not None:
            own = at.address == gpu.address
            return (at.numa_node,), "numa_node of the GPU" if own else f"numa_node of {at.address} above the GPU"
        if at.numa_affinity and len(at.numa_affinity) < max(len(machine.nodes), 2):
            memory_only = {node.index for node in machine.nodes if node.cpus == ()}
            near = [index for index in at.numa_affinity if index not in memory_only] or list(at.numa_affinity)
            return tuple(near), "the only near node with CPUs"
        at = machine.functions.get(at.parent or "")
    if gpu.numa_node is not None:
        return gpu.numa_affinity or (gpu.numa_node,), "NUMA affinity of the GPU"
    return (), ""


def _equal_words(near: Sequence[int]) -> str:
    return f"the first of nodes {', '.join(map(str, near))}, which are equally near"


def _nearest_with_cpus(node: NumaNode, nodes: dict[int, NumaNode], affinity: tuple[int, ...]) -> int | None:
    with_cpus = [other for other in nodes.values() if other.cpus]
    measured = [(node.distances[o.index], o.index) for o in with_cpus if o.index in node.distances]
    if measured:
        return min(measured)[1]
    return next((index for index in affinity if nodes.get(index) and nodes[index].cpus), None)
