"""Mapped files: bytes of a slot or an image as a memoryview that keeps its mapping alive."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from hinan.core.errors import FormatError
from hinan.formats.image import ALIGNMENT_BYTES, Header, header_bytes, parse_header

READ_BYTES = 8 << 20
READERS = 3
"""While one piece is on its way from the disk, the memory of others is made, which takes a third as long."""

_MADV_POPULATE_READ, _MADV_POPULATE_WRITE = 22, 23  # linux/mman.h; not in Python's mmap module
_madvise = ctypes.CDLL(None).madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def _open(path: Path, flags: int) -> int:
    """Open a regular file; anything else (a pipe would make the opener wait for ever) is refused."""
    fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FormatError(f"{path} is not a regular file", file=str(path))
    return fd


def map_file(path: Path, *, writable: bool = False) -> memoryview:
    """Map a whole existing file. It is never created or grown; forked children do not inherit the mapping.

    Args:
        writable: share writes with the file. Otherwise the file is never changed: the mapping is private.

    Ownership: the mapping lives as long as any view of it; nothing closes it under a reader.
    """
    fd = _open(path, os.O_RDWR if writable else os.O_RDONLY)
    try:
        size_bytes = os.fstat(fd).st_size
        if size_bytes == 0:
            return memoryview(b"")
        mapped = mmap.mmap(fd, size_bytes, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_COPY)
    finally:
        os.close(fd)
    mapped.madvise(mmap.MADV_DONTFORK)
    return memoryview(mapped)


def populate(view: memoryview) -> None:
    """Touch all pages of a writable mapping, so that the first copy into it meets no page fault.

    Through ctypes, which releases the GIL. A kernel before 5.14 cannot; then the first copy is slower, and nothing else.
    """
    _advise(view, _MADV_POPULATE_WRITE)


def populate_for_reading(view: memoryview, threads: int = 1) -> None:
    """Map all pages of a private mapping at once, as `populate` does, but without a copy of any."""
    _advise_in_parts(view, _MADV_POPULATE_READ, threads)


def let_go(view: memoryview, threads: int = 1) -> None:
    """Unmap all pages of a private mapping of a file, which nobody needs any more; one that is read again comes back.

    Why not leave it to the end of the mapping: that is one thread, which holds the GIL.
    """
    _advise_in_parts(view, mmap.MADV_DONTNEED, threads)


def _advise_in_parts(view: memoryview, advice: int, threads: int) -> None:
    part = -(-len(view) // threads // mmap.PAGESIZE) * mmap.PAGESIZE
    with ThreadPoolExecutor(threads, "hinan-map") as pool:
        for start in range(0, len(view), part or 1):
            pool.submit(_advise, view[start : start + part], advice)


def _advise(view: memoryview, advice: int) -> None:
    if len(view):
        _madvise(ctypes.addressof(ctypes.c_char.from_buffer(view)), len(view), advice)


def use_huge_pages(address: int, size_bytes: int) -> None:
    """Ask for huge pages where an allocation has not been touched yet; a kernel without them changes nothing."""
    start = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (address + size_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if end > start:
        _madvise(start, end - start, mmap.MADV_HUGEPAGE)


def anonymous(size_bytes: int) -> memoryview:
    """Zeroed memory of our own, in huge pages where the system has them: its first use costs a tenth."""
    if size_bytes == 0:
        return memoryview(bytearray())
    mapped = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without huge pages
        mapped.madvise(mmap.MADV_HUGEPAGE)
    mapped.madvise(mmap.MADV_DONTFORK)
    return memoryview(mapped)


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
        self._path, self._fd = path, _open(path, os.O_RDONLY)
        self.size_bytes = os.fstat(self._fd).st_size
        self.view = anonymous(self.size_bytes)
        self._direct = self.size_bytes % ALIGNMENT_BYTES == 0 and _set_direct(self._fd, wanted=True)
        if not self._direct:
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        self._changed = threading.Condition()
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
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or self._arrived >= end_bytes)
            if self._failure is not None:
                raise self._failure
            return self._arrived

    def close(self) -> None:
        """Stop reading."""
        with self._changed:
            self._next = self.size_bytes
        for thread in self._threads:
            thread.join()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _work(self) -> None:
        while True:
            with self._changed:
                at, self._next = self._next, self._next + READ_BYTES
                if at >= self.size_bytes or self._failure is not None:
                    return
            try:
                self._read(at, min(at + READ_BYTES, self.size_bytes))
            except Exception as error:  # noqa: BLE001 - raised where the bytes are waited for
                with self._changed:
                    self._failure = self._failure or error
                    self._changed.notify_all()
                return
            with self._changed:
                self._done.add(at)
                while self._arrived in self._done:
                    self._done.discard(self._arrived)
                    self._arrived = min(self._arrived + READ_BYTES, self.size_bytes)
                self._changed.notify_all()

    def _read(self, at: int, end: int) -> None:
        while at < end:
            direct = self._direct
            try:
                got = os.preadv(self._fd, [self.view[at:end]], at)
            except OSError as error:
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
        self._direct = False
        _set_direct(self._fd, wanted=False)


def _set_direct(fd: int, *, wanted: bool) -> bool:
    """Bypass the page cache from now on, or no longer; False where the file system refuses."""
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_DIRECT if wanted else flags & ~os.O_DIRECT)
    except OSError:
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


def read_header(image: memoryview, name: str) -> tuple[bytes, Header]:
    """The raw header and its parsed form.

    Raises:
        FormatError: not an image, or its length is not the one the header describes.
    """
    length = header_bytes(image[:8], name)
    if length > len(image):
        raise FormatError(f"{name} ends inside its header", file=name)
    raw = bytes(image[:length])
    return raw, parse_header(raw, len(image), name)
