"""A drain does not fill the page cache: measured on the whole machine while 1.5 GB are written."""

from __future__ import annotations

import mmap
import os
import threading
from pathlib import Path

import pytest

from hinan.tiers.durable import ImageWriter

SIZE_BYTES = 1536 << 20
LIMIT_BYTES = 128 << 20


def dirty_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("Dirty:", "Writeback:")))


@pytest.mark.slow
@pytest.mark.parametrize("odd_bytes", [0, 1], ids=["direct", "buffered"])
def test_dirty_pages_stay_bounded(tmp_path: Path, odd_bytes: int) -> None:
    """A-PLATFORM-6: dirty and writing pages grow by at most 128 MiB, past the page cache (O_DIRECT) and through it."""
    size_bytes = SIZE_BYTES + odd_bytes  # an odd length cannot be written past the page cache
    source = memoryview(mmap.mmap(-1, size_bytes))
    os.sync()
    before, highest, done = dirty_bytes(), 0, threading.Event()

    def watch() -> None:
        nonlocal highest
        while not done.wait(0.01):
            highest = max(highest, dirty_bytes() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    writer = ImageWriter(tmp_path, "image", size_bytes)
    try:
        writer.write_aside(source)
        writer.sync()
        writer.name()
        writer.sync_directory()
    finally:
        done.set()
        watcher.join()
        writer.discard()
    assert (tmp_path / "image").stat().st_size == size_bytes
    assert writer.direct == (odd_bytes == 0)
    assert highest <= LIMIT_BYTES, f"{highest >> 20} MiB became dirty"
