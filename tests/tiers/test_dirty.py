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
@pytest.mark.parametrize("direct", [True, False], ids=["direct", "buffered"])
def test_dirty_pages_stay_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direct: bool) -> None:
    """A-PLATFORM-6: dirty and writing pages grow by at most 128 MiB, past the page cache (O_DIRECT) and through it."""
    if not direct:
        monkeypatch.setattr(os, "O_DIRECT", 0)  # the flag of a file system that has none
    source = memoryview(mmap.mmap(-1, SIZE_BYTES))
    os.sync()
    before, highest, done = dirty_bytes(), 0, threading.Event()

    def watch() -> None:
        nonlocal highest
        while not done.wait(0.01):
            highest = max(highest, dirty_bytes() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    writer = ImageWriter(tmp_path, "image", SIZE_BYTES)
    try:
        writer.write_aside(source)
        writer.sync()
        writer.name()
        writer.sync_directory()
    finally:
        done.set()
        watcher.join()
        writer.discard()
    assert (tmp_path / "image").stat().st_size == SIZE_BYTES
    assert highest <= LIMIT_BYTES, f"{highest >> 20} MiB became dirty"
