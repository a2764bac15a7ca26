"""What the machine can do at best, measured in the same run: memmove, a sequential write, a sequential cold read."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

PIECE_BYTES = 8 << 20
ALIGNMENT_BYTES = 4096


class Floors:
    """The floors of one set of memory ranges (the tensors of a state) and one directory."""

    def __init__(self, ranges: Callable[[], Sequence[tuple[int, int]]], directory: Path) -> None:
        """
        Args:
            ranges: (address, bytes) of each tensor; asked each time, for a restore may replace tensors.
            directory: on the file system of the target.
        """
        self._ranges, self._directory = ranges, directory
        self.size_bytes = sum(size for _, size in ranges())
        self._whole_bytes = -(-self.size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self._buffer = mmap.mmap(-1, self._whole_bytes)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._buffer))
        ctypes.memset(self._address, 1, self._whole_bytes)  # touched: the floor meets no page fault

    def ram_s(self) -> float:
        """memmove of the same tensors, one by one, into touched memory."""
        ranges = self._ranges()
        at, began = self._address, time.perf_counter()
        for address, size_bytes in ranges:
            ctypes.memmove(at, address, size_bytes)
            at += size_bytes
        return time.perf_counter() - began

    def ram_one_piece_s(self) -> float:
        """memmove of as many bytes in one piece (two halves, each onto the other)."""
        half = self.size_bytes // 2
        began = time.perf_counter()
        ctypes.memmove(self._address + half, self._address, half)
        ctypes.memmove(self._address, self._address + half, half)
        return time.perf_counter() - began

    def disk_s(self) -> float:
        """One sequential O_DIRECT write of the same bytes into a new file, and its fsync."""
        path, view = self._directory / "floor.bin", memoryview(self._buffer)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        fd = open_direct(path, flags)
        try:
            began = time.perf_counter()
            for at in range(0, self._whole_bytes, PIECE_BYTES):
                piece = view[at : at + PIECE_BYTES]
                while piece:
                    piece = piece[os.pwrite(fd, piece, at + min(PIECE_BYTES, self._whole_bytes - at) - len(piece)) :]
            os.fsync(fd)
            return time.perf_counter() - began
        finally:
            os.close(fd)
            path.unlink()


def cold_read_s(path: Path) -> float:
    """One sequential read, past the page cache where that works, of a file that lies in no cache of this machine.

    Into new memory of the file's length: the bytes of a restore must lie somewhere before they are trusted, and on
    some machines making that memory takes as long as reading.
    """
    drop_from_cache(path)
    fd = open_direct(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size_bytes, at = os.fstat(fd).st_size, 0
        began = time.perf_counter()
        view = memoryview(mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        while at < size_bytes:
            at += os.preadv(fd, [view[at : at + PIECE_BYTES]], at)
        return time.perf_counter() - began
    finally:
        os.close(fd)


def open_direct(path: Path, flags: int) -> int:
    """Open past the page cache; through it on a file system that refuses."""
    try:
        return os.open(path, flags | os.O_DIRECT, 0o600)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.open(path, flags, 0o600)


def drop_from_cache(path: Path) -> None:
    """Write what is dirty, and let the page cache forget a file."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
