"""`numactl --hardware`: nodes, their CPUs, memory, and distances.

Owns:      the lines of that output. No library on PyPI reads them.
Promises:  a node without CPUs is a node of memory only, which is known, not unknown. Which nodes
           there are, its first line says; without that the list may be cut.
"""

from __future__ import annotations

import re

from hinan.wire.facts.model import Machine, NumaNode
from hinan.wire.facts.text import int_list, whole_lines

_ALL = re.compile(r"^available: [0-9]{1,5} nodes \(([0-9,-]+)\)\s*$")
_CPUS = re.compile(r"^node ([0-9]{1,5}) cpus:((?: +[0-9]{1,5})*)\s*$")
_SIZE = re.compile(r"^node ([0-9]{1,5}) (size|free): ([0-9]{1,12}) ([KMG])B\s*$")
_HEADER = re.compile(r"^node((?: +[0-9]{1,5})+)\s*$")
_ROW = re.compile(r"^ *([0-9]{1,5}):((?: +[0-9]{1,5})+)\s*$")
_UNIT = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def read(text: str) -> Machine | None:
    """The nodes; None when the text has none."""
    cpus: dict[int, tuple[int, ...]] = {}
    sizes: dict[tuple[int, str], int] = {}
    distances: dict[int, dict[int, int]] = {}
    order: list[int] = []
    listed: tuple[int, ...] | None = None
    lines, last = whole_lines(text)
    if last is not None and (_SIZE.match(last) or _closes_matrix(last, order := _order(lines))):
        lines.append(last)
    order = _order(lines)
    for line in lines:
        if match := _ALL.match(line):
            listed = int_list(match[1])
        elif match := _CPUS.match(line):
            cpus.setdefault(int(match[1]), tuple(int(word) for word in match[2].split()))
        elif match := _SIZE.match(line):
            sizes.setdefault((int(match[1]), match[2]), int(match[3]) * _UNIT[match[4]])
        elif (match := _ROW.match(line)) and len(values := match[2].split()) == len(order) and int(match[1]) in order:
            distances.setdefault(int(match[1]), dict(zip(order, (int(value) for value in values), strict=True)))
    indices = sorted({*cpus, *(index for index, _ in sizes)})
    if not indices:
        return None
    nodes = tuple(
        NumaNode(
            index=index,
            cpus=cpus.get(index),
            size_bytes=sizes.get((index, "size")),
            free_bytes=sizes.get((index, "free")),
            distances=distances.get(index, {}),
        )
        for index in indices
    )
    return Machine(nodes=nodes, node_set=listed, sources=("numactl -H",))


def _order(lines: list[str]) -> list[int]:
    header = next((match for match in map(_HEADER.match, lines) if match), None)
    return [int(word) for word in header[1].split()] if header else []


def _closes_matrix(line: str, order: list[int]) -> bool:
    """Is the unterminated `line` the whole last row? It must end with the distance of a node to itself, 10."""
    match = _ROW.match(line)
    return bool(
        match
        and order
        and int(match[1]) == order[-1]
        and match[2].split()[-1] == "10"
        and len(match[2].split()) == len(order)
    )
