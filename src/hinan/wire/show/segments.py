"""What lies between two hops of a report: a link with two ends, the inside of a switch, or the root complex.

Owns:      which gap between two boxes of a picture is a link, so that each is drawn once.
Promises:  a link is narrow if either end is the narrowest hop. How fast it is, `ends` has said of both ends alike.
"""

from __future__ import annotations

import msgspec

from hinan.wire.show.answer import Hop, Report

_FACING_DOWN = ("root port", "downstream port")


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """Below the box of one hop, towards RAM. kind: link, switch (its inside), root (on the CPU's die), or coherent: the
    link by which a GPU reaches RAM past all PCIe ports.

    port: the other end of a link, where it is told.
    """

    kind: str
    hop: Hop
    port: Hop | None = None
    ceiling_bytes_per_s: float | None
    narrow: bool


UNTOLD = "the way from here to the root complex is not told"


def drawn_of(report: Report) -> tuple[Segment, ...]:
    """What carries the copy: of a GPU that reaches RAM by another link than PCIe that link, and none of its ports."""
    if report.coherent_link is None or not report.hops:
        return segments_of(report)
    return (Segment(kind="coherent", hop=report.hops[0], ceiling_bytes_per_s=None, narrow=False),)


def is_broken(report: Report) -> bool:
    """Is something between the last hop and RAM that no source tells?"""
    return not report.path_complete and report.coherent_link is None


def segments_of(report: Report) -> tuple[Segment, ...]:
    """One segment under each hop."""
    found = []
    rated = {hop.ceiling_bytes_per_s for hop in report.hops if hop.ceiling_bytes_per_s is not None}
    for order, hop in enumerate(report.hops):
        after = report.hops[order + 1] if order + 1 < len(report.hops) else None
        if hop.kind in _FACING_DOWN:
            kind = "root" if hop.kind == "root port" else "switch"
            found.append(Segment(kind=kind, hop=hop, ceiling_bytes_per_s=None, narrow=False))
            continue
        port = after if after is not None and after.kind in _FACING_DOWN else None
        narrow = len(rated) > 1 and report.narrowest in (hop.address, port.address if port else None)
        rate = hop.ceiling_bytes_per_s
        found.append(Segment(kind="link", hop=hop, port=port, ceiling_bytes_per_s=rate, narrow=narrow))
    return tuple(found)
