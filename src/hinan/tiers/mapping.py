"""Mapped files: bytes of a slot or an image as a memoryview that keeps its mapping alive."""

from __future__ import annotations

import ctypes
import mmap
import os
import stat
from pathlib import Path

from hinan.core.errors import FormatError
from hinan.formats.image import Header, header_bytes, parse_header

_MADV_POPULATE_WRITE = 23  # linux/mman.h; not in Python's mmap module
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
    if len(view):
        _madvise(ctypes.addressof(ctypes.c_char.from_buffer(view)), len(view), _MADV_POPULATE_WRITE)


def read_file(path: Path, piece_bytes: int = 8 << 20) -> memoryview:
    """Read a whole file into memory of our own, in large pieces.

    Raises:
        FormatError: it became shorter while it was read.
    """
    fd = _open(path, os.O_RDONLY)
    try:
        size_bytes = os.fstat(fd).st_size
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        buffer = mmap.mmap(-1, size_bytes) if size_bytes else bytearray()
        view = memoryview(buffer)
        at = 0
        while at < size_bytes:
            got = os.preadv(fd, [view[at : at + piece_bytes]], at)
            if got == 0:
                raise FormatError(f"{path} ended at byte {at} of {size_bytes} while it was read", file=str(path))
            at += got
        return view
    finally:
        os.close(fd)


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
