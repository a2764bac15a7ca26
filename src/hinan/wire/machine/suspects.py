"""Which links are told at a speed that nobody should take for what they can do.

Owns:      the mark "suspect": of sources that have one figure per link (hwloc: the present one; NCCL), of tunnels, and
           of cards that tell no link.
Promises:  generation 1 or 2 is believed only where the GPU is known to be that old: what we do not know may be new.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from hinan.wire.facts.families import is_tunnel, max_gt_s_of_gpu, tells_no_link, told_gt_s
from hinan.wire.facts.model import Function, Link, Role

SLOW_GT_S = 5.0  # generations 1 and 2: what a link idles at, and what no GPU of the last ten years is limited to


def mark_suspects(functions: Mapping[str, Function]) -> dict[str, Function]:
    """The functions, with those marked that stand on the way of a GPU and tell less than it can do."""
    marked: set[str] = set()
    for function in functions.values():
        if function.role is Role.GPU:
            limit = _limit_gt_s(function)
            way = _way(functions, function)
            marked |= {f.address for f in way if _one_figure(f.link) and max(told_gt_s(f.link)) < limit}
            marked |= {f.address for f in way if is_tunnel(f)}
            if tells_no_link(function):
                marked |= {f.address for f in way[:2] if max(told_gt_s(f.link), default=SLOW_GT_S) < SLOW_GT_S}
    return {
        address: msgspec.structs.replace(f, link=msgspec.structs.replace(f.link, suspect=True)) if address in marked else f
        for address, f in functions.items()
    }


def _way(functions: Mapping[str, Function], gpu: Function) -> list[Function]:
    way, above = [gpu], functions.get(gpu.parent or "")
    while above is not None:
        way.append(above)
        above = functions.get(above.parent or "")
    return way


def _limit_gt_s(gpu: Function) -> float:
    """Below which speed a link of this GPU is not believed: its own where it is known to be old, else whatever idles."""
    known = max_gt_s_of_gpu(gpu.vendor_id, gpu.device_id)
    if known is not None and known <= SLOW_GT_S and min(told_gt_s(gpu.link), default=0.0) <= SLOW_GT_S:
        return known
    return SLOW_GT_S + 1


def _one_figure(link: Link) -> bool:
    """Only where no state is told beside the capability: where it is, `check` judges it."""
    return bool(told_gt_s(link)) and (link.cap_gt_s is None or link.now_gt_s is None)
