"""NUMA nodes in the terminal, a few lines for a machine of dozens.

Owns:      the words for a node's memory, CPUs and distances.
Promises:  each distance is told once per node, and nodes that hold neither memory nor CPUs in one line together.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from hinan.wire.facts.model import NumaNode


def node_lines(nodes: Sequence[NumaNode], width: int) -> list[str]:
    """One paragraph for each node that holds anything."""
    lines: list[str] = []
    empty = [node.index for node in nodes if node.size_bytes == 0 and not node.cpus]
    for node in nodes:
        if node.index in empty:
            continue
        cpus = "CPUs unknown" if node.cpus is None else f"{len(node.cpus)} CPUs" if node.cpus else "no CPUs (memory only)"
        size = gb(node.size_bytes) if node.size_bytes is not None else "size unknown"
        far = _distances(node, empty)
        word = "RAM " if node.cpus != () else "mem "  # memory only: a GPU's own as a node (GB200), or an expander
        row = f"{word} node {node.index}   {size}, {free_words(node)}, {cpus}{'   distance ' + far if far else ''}"
        lines += textwrap.wrap(row, width, subsequent_indent=" " * 14)
    if empty:
        lines += textwrap.wrap(f"mem  {_nodes(empty)}: no memory, no CPUs", width, subsequent_indent=" " * 14)
    return lines


def _distances(node: NumaNode, empty: Sequence[int]) -> str:
    """To the other nodes that hold anything, the near ones first, each distance once."""
    to: dict[int, list[int]] = {}
    for other, distance in node.distances.items():
        if other != node.index and other not in empty:
            to.setdefault(distance, []).append(other)
    return ", ".join(f"{distance} to {_nodes(others)}" for distance, others in sorted(to.items()))


def _nodes(indices: Sequence[int]) -> str:
    """node 1, or nodes 1-3,5."""
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    words = ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
    return f"{'node' if len(indices) == 1 else 'nodes'} {words}"


def free_words(node: NumaNode | None) -> str:
    """How much is free, as far as that is told."""
    return f"{gb(node.free_bytes)} free" if node and node.free_bytes is not None else "free memory unknown"


def gb(size_bytes: int) -> str:
    """A size in GB."""
    return f"{size_bytes / 1e9:.1f} GB"
