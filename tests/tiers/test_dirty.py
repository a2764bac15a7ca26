"""A drain does not fill the page cache: its own file's cached pages are counted while 1.5 GB are written."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import pytest

from hinan.tiers.durable import ImageWriter

SIZE_BYTES = 1536 << 20
LIMIT_BYTES = 128 << 20
PAGE_BYTES = mmap.PAGESIZE

mincore = ctypes.CDLL(None).mincore
mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


def cached_bytes(path: Path) -> int:
    """Bytes of a file that lie in the page cache, dirty or clean: dirty ones cannot be more."""
    with path.open("rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        mapped = mmap.mmap(file.fileno(), size_bytes, access=mmap.ACCESS_COPY)
    pages = -(-size_bytes // PAGE_BYTES)
    present = ctypes.create_string_buffer(pages)
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    assert mincore(address, size_bytes, present) == 0
    return sum(byte & 1 for byte in present.raw) * PAGE_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("odd_bytes", [0, 1], ids=["direct", "buffered"])
def test_dirty_pages_stay_bounded(tmp_path: Path, odd_bytes: int) -> None:
    """A-PLATFORM-6: at most 128 MiB of the file are in the page cache at any moment, past it (O_DIRECT) and through it."""
    size_bytes = SIZE_BYTES + odd_bytes  # an odd length cannot be written past the page cache
    source = memoryview(mmap.mmap(-1, size_bytes))
    writer = ImageWriter(tmp_path, "image", size_bytes)
    seen: list[int] = []

    def look(offset: int, piece: memoryview) -> None:
        if offset % (64 << 20) == 56 << 20:  # when most is cached: just before it is dropped
            seen.append(cached_bytes(next(tmp_path.glob(".image.*"))))

    try:
        writer.write_aside(source, look)
        writer.sync()
        writer.name()
        writer.sync_directory()
    finally:
        writer.discard()
    assert (tmp_path / "image").stat().st_size == size_bytes
    assert writer.direct == (odd_bytes == 0)
    assert len(seen) >= 20
    assert max(seen) <= LIMIT_BYTES
    assert cached_bytes(tmp_path / "image") <= 8 << 20
