"""Reads a whole file from a disk into memory of our own: in large pieces, past the page cache, several at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import queue
import threading
from pathlib import Path
from typing import Self

from hinan.core.errors import FormatError
from hinan.formats.image import ALIGNMENT_BYTES
from hinan.host.signals import ours
from hinan.tiers.mapping import anonymous, open_regular

READ_BYTES = 8 << 20
READERS = 3
"""While one piece is on its way from the disk, the memory of others is made, which takes a third as long."""


class Reading:
    """A whole file on its way into memory of our own: large pieces, past the page cache, a few at a time.

    `view` fills while this lives; `wait_for` says how far. Close it (or leave its `with`) before anything else.
    Why past the page cache: its copy would cost a second pass over memory, and nobody reads the file again.
    """

    def __init__(self, path: Path) -> None:
        """
        Raises:
            OSError: it cannot be opened.
            FormatError: it is not a regular file.
        """
        self._path, self._fd = path, open_regular(path, os.O_RDONLY)
        self.size_bytes = os.fstat(self._fd).st_size
        self.view = anonymous(self.size_bytes)
        self._direct = self.size_bytes % ALIGNMENT_BYTES == 0 and _set_direct(self._fd, wanted=True)
        if not self._direct:
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        self._lock = threading.Lock()
        self._news: queue.SimpleQueue[None] = queue.SimpleQueue()
        """A word for each piece, and for a failure: what has arrived may have become more. Why a queue: a signal's handler
        that raises would leave a Condition locked for the readers."""
        self._next, self._arrived, self._done = 0, 0, set[int]()
        self._failure: Exception | None = None
        self._threads = [threading.Thread(target=self._work, name="hinan-read", daemon=True) for _ in range(READERS)]
        for thread in self._threads:
            thread.start()

    def wait_for(self, end_bytes: int) -> int:
        """Wait until the file has arrived up to a byte; how many have arrived.

        Raises:
            OSError: it cannot be read.
            FormatError: it became shorter while it was read.
        """
        while self._failure is None and self._arrived < end_bytes:
            self._news.get()
        if self._failure is not None:
            raise self._failure
        return self._arrived

    def close(self) -> None:
        """Stop reading."""
        with self._lock:
            self._next = self.size_bytes
        for thread in self._threads:
            thread.join()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._failure = None  # it has the frames of whoever it was raised to

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _work(self) -> None:
        while True:
            with self._lock:
                at, self._next = self._next, self._next + READ_BYTES
                if at >= self.size_bytes or self._failure is not None:
                    return
            try:
                self._read(at, min(at + READ_BYTES, self.size_bytes))
            except Exception as error:  # noqa: BLE001 - raised where the bytes are waited for
                with self._lock:
                    self._failure = self._failure or error
                self._news.put(None)
                return
            with self._lock:
                self._done.add(at)
                while self._arrived in self._done:
                    self._done.discard(self._arrived)
                    self._arrived = min(self._arrived + READ_BYTES, self.size_bytes)
            self._news.put(None)

    def _read(self, at: int, end: int) -> None:
        while at < end:
            direct = self._direct
            try:
                got = os.preadv(self._fd, [self.view[at:end]], at)
            except ours(OSError) as error:
                if not (direct and error.errno == errno.EINVAL):
                    raise
                self._leave_direct()
                continue
            if got == 0:
                raise FormatError(
                    f"{self._path} ended at byte {at} of {self.size_bytes} while it was read", file=str(self._path)
                )
            at += got  # to an odd place, after a short read: the next one is refused, and the cache serves it

    def _leave_direct(self) -> None:
        # Ordering: the flag first. Another reader that takes the file for one behind the cache must not be refused for it.
        _set_direct(self._fd, wanted=False)
        self._direct = False


def _set_direct(fd: int, *, wanted: bool) -> bool:
    """Bypass the page cache from now on, or no longer; False where the file system refuses."""
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_DIRECT if wanted else flags & ~os.O_DIRECT)
    except ours(OSError):
        return False
    return True


def read_file(path: Path) -> memoryview:
    """Read a whole file into memory of our own.

    Raises:
        FormatError: it became shorter while it was read.
    """
    with Reading(path) as reading:
        reading.wait_for(reading.size_bytes)
        return reading.view
