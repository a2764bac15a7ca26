"""Writes an image so that it survives power loss: aside, synced, renamed, directory synced; each its own step.

Promises:  at most 64 MiB of dirty pages of its own at any moment (rule: training's page cache is not ours to fill), and
           none left in the page cache afterwards; a write that is short or fails leaves nothing under the final name.
Relies on: the source staying unchanged while it is written (a drain pins its slot).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from hinan.formats.image import ALIGNMENT_BYTES
from hinan.host.signals import ours, suppress_ours
from hinan.tiers.publish import part_name, sync_directory

PIECE_BYTES = 8 << 20
DIRTY_BYTES = 64 << 20

Progress = Callable[[int, memoryview], None]


class ImageWriter:
    """One image on its way to a directory. Call the four methods in the order they stand; `discard` at any time."""

    def __init__(self, directory: Path, name: str, size_bytes: int) -> None:
        self._final = directory / name
        self._aside = directory / part_name(name)
        self._size_bytes = size_bytes
        self._fd = -1
        self.direct = False
        """Whether the bytes bypass the page cache (O_DIRECT)."""

    def write_aside(self, source: memoryview, progress: Progress = lambda offset, piece: None) -> None:
        """Write all bytes under a temporary name.

        Args:
            source: the image, page-aligned (a mapped slot); length as announced.
            progress: called before each piece is written, with its offset and bytes; may raise to stop.
        Raises:
            OSError: with errno; ENOSPC before the first byte is written where the file system can tell.
        """
        self._fd, self.direct = self._open()
        self._reserve()
        dirty = 0
        for offset in range(0, self._size_bytes, PIECE_BYTES):
            piece = source[offset : offset + PIECE_BYTES]
            progress(offset, piece)
            self._write_piece(piece, offset)
            dirty += 0 if self.direct else len(piece)
            if dirty >= DIRTY_BYTES:
                self._drop_behind()
                dirty = 0

    def sync(self) -> None:
        """Make the bytes survive power loss; drop them from the page cache."""
        os.fsync(self._fd)
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)
        written = os.fstat(self._fd).st_size
        if written != self._size_bytes:
            raise OSError(errno.EIO, f"{written} bytes instead of {self._size_bytes}", str(self._aside))

    def name(self) -> None:
        """Give the file its final name, replacing an earlier try of the same image."""
        self._aside.rename(self._final)
        self._close()

    def sync_directory(self) -> None:
        """Make the name survive power loss."""
        sync_directory(self._final.parent)

    def discard(self) -> None:
        """Close and remove what is unfinished. Safe to call after any method, also twice."""
        self._close()
        with suppress_ours(OSError):
            self._aside.unlink(missing_ok=True)

    def _open(self) -> tuple[int, bool]:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        if self._size_bytes % ALIGNMENT_BYTES == 0:
            try:
                return os.open(self._aside, flags | os.O_DIRECT, 0o600), True
            except ours(OSError) as error:
                if error.errno != errno.EINVAL:
                    raise
                with suppress_ours(FileNotFoundError):  # some file systems create the file, then refuse the flag
                    self._aside.unlink()
        return os.open(self._aside, flags, 0o600), False

    def _reserve(self) -> None:
        """Meet a full disk before the first byte is written. Where that cannot be asked (NFS 3, FUSE), the write tells.

        EINVAL: the C library falls back to writing single bytes, which a file opened for direct writes refuses.
        """
        try:
            os.posix_fallocate(self._fd, 0, self._size_bytes)
        except ours(OSError) as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                raise

    def _write_piece(self, piece: memoryview, offset: int) -> None:
        while piece:
            try:
                written = os.pwrite(self._fd, piece, offset)
            except ours(OSError) as error:
                if not (self.direct and error.errno == errno.EINVAL):
                    raise
                self._leave_direct()
                continue
            if written == 0:
                raise OSError(errno.EIO, "nothing was written", str(self._aside))
            if self.direct and written % ALIGNMENT_BYTES and written < len(piece):
                self._leave_direct()  # a short write at an odd place: the rest cannot be direct
            piece, offset = piece[written:], offset + written

    def _leave_direct(self) -> None:
        fd = os.open(self._aside, os.O_WRONLY | os.O_CLOEXEC)
        os.close(self._fd)
        self._fd, self.direct = fd, False

    def _drop_behind(self) -> None:
        os.fdatasync(self._fd)
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
