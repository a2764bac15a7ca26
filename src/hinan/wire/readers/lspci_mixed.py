"""Blocks of `lspci -vvv` that hold lines of another function: text that was sorted, filtered by a script, or pasted twice.

Owns:      the signs: a field that a function has once and the block has twice with different values, and a link outside
           the Express capability. (A state above the capability is none: lspci knows it as "overdriven".)
Promises:  none of these is in what lspci prints. Without a sign nobody can tell whose lines they are (docs/wire.md).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_EXPRESS = r"Capabilities: \[[0-9a-f]+(?: v[0-9]+)?\] Express"
_ONCE = re.compile(rf"(LnkCap|LnkSta|DevCap|NUMA node|IOMMU group|Bus|ACSCtl|MaxPayload|{_EXPRESS})\b", re.I)
_CAPABILITY = re.compile(r"Capabilities: \[[^\]]*\] (\w+)")


def is_mixed(lines: Sequence[tuple[int, str]]) -> bool:
    """Does the block (indentation, text) hold lines of another function?"""
    seen: dict[str, str] = {}
    inside: str | None = None
    for _, text in lines:
        if started := _CAPABILITY.match(text):
            inside = started[1]
        once = _ONCE.match(text)
        field = re.sub(r"\[.*\] ", "", once[1]) if once else ""
        if once and seen.setdefault(field, text) != text:
            return True
        if text.startswith(("LnkCap:", "LnkSta:")) and inside not in (None, "Express"):
            return True
    return False
