"""The SR-IOV capability in a block of `lspci -vvv`: what is switched on, where the VFs are, where their BARs begin.

Promises:  only lines below the capability's own count. lspci prints no size of a VF BAR, so each holds the smallest that
           SR-IOV allows, a page of 4 KiB per VF.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hinan.wire.facts.model import Sriov, Window

_PAGE = 4096
_CAPABILITY = re.compile(r"^Capabilities: \[[^\]]*\] (.*)")
_ENABLED = re.compile(r"^IOVCtl:\s+Enable([+-])")
_COUNT = re.compile(r"\bNumber of VFs: ([0-9]{1,5}),")
_PLACE = re.compile(r"^VF offset: ([0-9]{1,5}), stride: ([0-9]{1,5}),")
_REGION = re.compile(r"^Region ([0-5]): Memory at ([0-9a-f]{1,16}) \((?:32|64)-bit, (non-)?prefetchable\)", re.I)


def read(lines: Sequence[tuple[int, str]]) -> Sriov | None:
    """The capability of a block's lines (indentation, text); None where it is not there or not whole."""
    body = list(_body(lines))
    enabled, count, place = (_first(pattern, body) for pattern in (_ENABLED, _COUNT, _PLACE))
    if enabled is None or count is None or place is None:
        return None
    vfs = int(count[1])
    regions = [match for text in body if (match := _REGION.match(text)) and int(match[2], 16)]
    bars = tuple(_window(match, vfs) for match in regions) if vfs else ()
    return Sriov(enabled=enabled[1] == "+", vfs=vfs, offset=int(place[1]), stride=int(place[2]), bars=bars)


def _body(lines: Sequence[tuple[int, str]]) -> Iterator[str]:
    base = min((indent for indent, _ in lines), default=0)
    inside = False
    for indent, text in lines:
        if indent == base:
            started = _CAPABILITY.match(text)
            inside = started is not None and "SR-IOV" in started[1]
        elif inside:
            yield text


def _first(pattern: re.Pattern[str], body: Sequence[str]) -> re.Match[str] | None:
    return next((match for text in body if (match := pattern.search(text))), None)


def _window(match: re.Match[str], vfs: int) -> Window:
    first = int(match[2], 16)
    return Window(first, first + vfs * _PAGE - 1, match[3] is None, int(match[1]))
