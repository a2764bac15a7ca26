"""Reserves the pages of a file on a tmpfs: huge ones where the kernel has them, and every byte in any case.

Why huge: a page of 4 KiB costs its entry in every process that maps it, and its place in every direct write. Mapping an
image of 1.5 GB takes a tenth of a second with small pages and a thousandth with huge ones, and it is mapped by whoever
proves, drains or restores it (docs/design/huge-pages.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable

from hinan.tiers.mapping import HUGE_BYTES, collapse, map_descriptor

PIECE_BYTES = 32 * HUGE_BYTES
"""How much is reserved between two looks at `stop`."""


def reserve(fd: int, size_bytes: int, stop: Callable[[], bool] = lambda: False) -> int:
    """Give a new, empty file its length and all its pages, zeroed; how many bytes lie in huge pages.

    Args:
        stop: asked now and then; True ends the search for huge pages.
    Raises:
        OSError: ENOSPC when the tmpfs or a memory limit has no room for all of it.
    """
    os.ftruncate(fd, size_bytes)
    huge_bytes = _in_huge_pages(fd, size_bytes, stop)
    # Why: tmpfs promises room only for allocated pages; without this a full tmpfs is a SIGBUS in the trainer.
    os.posix_fallocate(fd, 0, size_bytes)
    return huge_bytes


def _in_huge_pages(fd: int, size_bytes: int, stop: Callable[[], bool]) -> int:
    whole_bytes = size_bytes // HUGE_BYTES * HUGE_BYTES
    view = map_descriptor(fd, whole_bytes, writable=True)
    for at in range(0, whole_bytes, PIECE_BYTES):
        piece = view[at : at + PIECE_BYTES]
        for extent in range(at, at + len(piece), HUGE_BYTES):
            os.posix_fallocate(fd, extent, 1)  # the kernel passes over an extent of which there is no page
        if stop() or not collapse(piece):
            return at  # an older kernel, no huge page to be had, or a limit: the rest is made of small ones
    return whole_bytes
