"""NUMA nodes that several sources tell of.

Owns:      which facts on a node they must agree on: its CPUs, its memory, its distances.
Promises:  what they contradict each other on is unknown and stands in `disputed`.
Never:     compares free memory, which changes by itself: of several moments the least is taken.
"""

from __future__ import annotations

from collections.abc import Sequence

from hinan.wire.facts.disputes import Disputed, contradicted
from hinan.wire.facts.join import NCCL
from hinan.wire.facts.model import Machine, NumaNode

_PARTIAL = {"hwloc XML", NCCL}  # they list the CPUs that the program was allowed to use
_SAME_SIZE = 0.01  # numactl rounds to MB


def join_nodes(machines: Sequence[Machine]) -> tuple[NumaNode, ...]:
    """Every node that a source names, by index, with what the sources agree on."""
    told: dict[int, list[tuple[bool, NumaNode]]] = {}
    for machine in machines:
        for node in machine.nodes:
            told.setdefault(node.index, []).append((bool(_PARTIAL & set(machine.sources)), node))
    return tuple(_node(index, told[index]) for index in sorted(told))


def join_node_sets(machines: Sequence[Machine]) -> tuple[int, ...] | None:
    """Every node that there is, by any source which says so: one that was confined to some does not see the others."""
    told = [machine.node_set for machine in machines if machine.node_set is not None]
    return tuple(sorted({index for each in told for index in each})) if told else None


def _node(index: int, told: Sequence[tuple[bool, NumaNode]]) -> NumaNode:
    """What sources tell of one node. told: does the source list some of the CPUs only, and what it tells."""
    nodes = [node for _, node in told]
    found: Disputed = {}
    for name, values in (("cpus", _cpus(told)), ("size", _sizes(nodes)), ("distance", _distances(nodes))):
        if words := contradicted(values, (each for node in nodes for each in node.disputed.get(name, ()))):
            found[name] = words
    free = [node.free_bytes for node in nodes if node.free_bytes is not None]
    lists = [node.cpus for node in nodes if node.cpus is not None]
    return NumaNode(
        index=index,
        cpus=max(lists, key=len, default=None) if "cpus" not in found else None,
        size_bytes=next((n.size_bytes for n in nodes if n.size_bytes is not None), None) if "size" not in found else None,
        free_bytes=min(free, default=None) if "size" not in found else None,
        distances=_joined(nodes) if "distance" not in found else {},
        ranges=next((node.ranges for node in nodes if node.ranges), ()),
        disputed=found,
    )


def _cpus(told: Sequence[tuple[bool, NumaNode]]) -> list[str]:
    """Lists of CPUs that cannot be of one node: other ones, or fewer from a source that lists them all."""
    lists = [(partial, frozenset(node.cpus)) for partial, node in told if node.cpus is not None]
    whole = max((cpus for _, cpus in lists), key=lambda cpus: (len(cpus), sorted(cpus)), default=frozenset())
    strange = {cpus for partial, cpus in lists if cpus != whole and not (partial and cpus and cpus < whole)}
    return [_cpu_words(cpus) for cpus in (strange | {whole} if strange else ())]


def _cpu_words(cpus: frozenset[int]) -> str:
    return f"{len(cpus)} ({min(cpus)} to {max(cpus)})" if cpus else "none"


def _sizes(nodes: Sequence[NumaNode]) -> list[str]:
    sizes = [node.size_bytes for node in nodes if node.size_bytes is not None]
    same = not sizes or max(sizes) - min(sizes) <= _SAME_SIZE * max(sizes)
    return [] if same else [f"{size / 1e9:.1f} GB" for size in sizes]


def _distances(nodes: Sequence[NumaNode]) -> list[str]:
    rows = [node.distances for node in nodes if node.distances]
    for other in sorted({key for row in rows for key in row}):
        values = {row[other] for row in rows if other in row}
        if len(values) > 1:
            return [f"{value} to node {other}" for value in values]
    return []


def _joined(nodes: Sequence[NumaNode]) -> dict[int, int]:
    found: dict[int, int] = {}
    for node in nodes:
        found = {**node.distances, **found}
    return found
