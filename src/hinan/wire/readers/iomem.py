"""/proc/iomem: who claims which physical address. Nesting is derived from containment, not from indentation.

Owns:      the lines, and the question "who is the deepest claimant of this address".
Promises:  without root the kernel prints zeros; those lines are dropped and the note says so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hinan.wire.facts.model import IomemRange, Machine, NumaNode, Window
from hinan.wire.facts.text import whole_lines

_LINE = re.compile(r"^\s*([0-9a-f]{8,16})-([0-9a-f]{8,16}) : (\S.*?)\s*$", re.I)


def read(text: str) -> Machine | None:
    """The ranges in file order; None when no line looks like one."""
    ranges: list[IomemRange] = []
    zeros = 0
    for line in whole_lines(text)[0]:
        match = _LINE.match(line)
        if match is None:
            continue
        first, last = int(match[1], 16), int(match[2], 16)
        if last == 0:
            zeros += 1
        elif first <= last:
            ranges.append(IomemRange(first, last, match[3]))
    if not ranges and not zeros:
        return None
    notes = ("/proc/iomem was read without root: the kernel prints zeros",) if zeros and not ranges else ()
    return Machine(iomem=tuple(ranges), sources=("/proc/iomem",), notes=notes)


def claimants(ranges: Sequence[IomemRange], address: int) -> tuple[IomemRange, ...]:
    """Ranges that hold `address`, outermost first; the last one is the claimant. Equal ranges keep the file's order."""
    holding = [(r.first - r.last, order, r) for order, r in enumerate(ranges) if r.first <= address <= r.last]
    return tuple(r for _, _, r in sorted(holding, key=lambda entry: entry[:2]))


_SRAT = re.compile(r"ACPI: SRAT: Node ([0-9]{1,5}) PXM [0-9]+ \[mem 0x([0-9a-f]{1,16})-0x([0-9a-f]{1,16})\](.*)", re.I)
_NO_RAM_YET = re.compile(r"\bhotplug\b|\bnon-volatile\b")  # room for DIMMs that may come, and memory of another kind


def read_srat(text: str) -> Machine | None:
    """Which physical addresses belong to which node, from the kernel log (`dmesg | grep SRAT`); else None."""
    ranges: dict[int, list[Window]] = {}
    for line in whole_lines(text)[0]:
        match = _SRAT.search(line)
        if match is not None and int(match[2], 16) <= int(match[3], 16) and not _NO_RAM_YET.search(match[4]):
            ranges.setdefault(int(match[1]), []).append(Window(int(match[2], 16), int(match[3], 16)))
    if not ranges:
        return None
    nodes = tuple(NumaNode(index=index, ranges=tuple(ranges[index])) for index in sorted(ranges))
    return Machine(nodes=nodes, sources=("SRAT",))
