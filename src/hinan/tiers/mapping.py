"""Mapped files: bytes of a slot or an image as a memoryview that keeps its mapping alive."""

from __future__ import annotations

import ctypes
import mmap
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hinan.core.errors import FormatError
from hinan.formats.image import Header, header_bytes, parse_header
from hinan.host.signals import ours, suppress_ours

HUGE_BYTES = 2 << 20
"""A huge page of x86 and of most ARM kernels. Where they are larger, maps are as they were: pages of the usual size."""

_MADV_POPULATE_READ, _MADV_POPULATE_WRITE, _MADV_COLLAPSE = 22, 23, 25  # linux/mman.h; not in Python's mmap module
_MAP_FIXED, _MAP_NORESERVE = 0x10, 0x4000
_MREMAP_MOVE = 1 | 2 | 4  # linux/mman.h: MAYMOVE | FIXED | DONTUNMAP; the last leaves no hole where the pages were
_LIBC = ctypes.CDLL(None, use_errno=True)
_madvise = _LIBC.madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_mmap = _LIBC.mmap
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_mmap.restype = ctypes.c_void_p
_mremap = _LIBC.mremap
_mremap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
_mremap.restype = ctypes.c_void_p


def open_regular(path: Path, flags: int) -> int:
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
    fd = open_regular(path, os.O_RDWR if writable else os.O_RDONLY)
    try:
        return map_descriptor(fd, os.fstat(fd).st_size, writable=writable)
    finally:
        os.close(fd)


def map_descriptor(fd: int, size_bytes: int, *, writable: bool) -> memoryview:
    """Map the first bytes of an open file, as `map_file` does; a huge page of it takes one entry."""
    if size_bytes == 0:
        return memoryview(b"")
    if size_bytes < HUGE_BYTES:
        mapped = mmap.mmap(fd, size_bytes, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_COPY)
        start = 0
    else:
        # Why over a mapping of nothing: only a file mapped at a multiple of the huge page has it in one entry, Python
        # cannot ask for an address, and the object that owns all of it unmaps what lies in it.
        room = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        mapped = mmap.mmap(-1, size_bytes + HUGE_BYTES, flags=room)
        start = -_address(memoryview(mapped)) % HUGE_BYTES
        _map_over(memoryview(mapped)[start : start + size_bytes], fd, writable=writable)
    mapped.madvise(mmap.MADV_DONTFORK)
    return memoryview(mapped)[start : start + size_bytes]


def _map_over(view: memoryview, fd: int, *, writable: bool) -> None:
    flags = (mmap.MAP_SHARED if writable else mmap.MAP_PRIVATE) | _MAP_FIXED
    address = _address(view)
    if _mmap(address, len(view), mmap.PROT_READ | mmap.PROT_WRITE, flags, fd, 0) != address:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _address(view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


def collapse(view: memoryview) -> bool:
    """Put the pages of a shared mapping into huge ones, whole multiples of `HUGE_BYTES`; whether all of them are.

    Works on any tmpfs, whatever its `huge=`, from Linux 6.1 on. The address must be a multiple of the huge page, as that of
    `map_descriptor` is. An extent of which no page exists yet is refused. Releases the GIL.
    """
    return bool(_madvise(_address(view), len(view), _MADV_COLLAPSE) == 0)


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
        _madvise(_address(view), len(view), advice)


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
    with suppress_ours(OSError):  # a kernel without huge pages
        mapped.madvise(mmap.MADV_HUGEPAGE)
    mapped.madvise(mmap.MADV_DONTFORK)
    return memoryview(mapped)


def take_out(view: memoryview) -> memoryview | None:
    """Take a stretch out of `anonymous` memory: the same bytes in a mapping of their own, which forked children inherit.

    Its whole pages are moved, not copied, and read as zeros where they were; those on its edges, which belong to neighbours
    too, are copied. None, and nothing has changed, where the system cannot (Linux before 5.7).

    Ownership: the new mapping lives as long as any view of it, and its end gives all of it back. That end is one call of
    C's: no code of Python's, in which a signal's handler could raise, runs where a tensor is dropped.
    """
    start, size_bytes = _address(view), len(view)
    first = -start % mmap.PAGESIZE
    inner = (size_bytes - first) // mmap.PAGESIZE * mmap.PAGESIZE
    if inner <= 0:
        return None
    try:
        room = mmap.mmap(-1, size_bytes + HUGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
    except ours(OSError):
        return None
    # At the same place within a huge page: those that lie in the stretch as a whole are moved as a whole.
    offset = (start - _address(memoryview(room))) % HUGE_BYTES
    taken = memoryview(room)[offset : offset + size_bytes]
    to = _address(taken) + first
    if _mremap(start + first, inner, inner, _MREMAP_MOVE, to) != to:
        _HOLED.append(room)
        return None
    if _madvise(to, inner, mmap.MADV_DOFORK) != 0:  # a forked child would find nothing there: all of it goes back
        if _mremap(to, inner, inner, _MREMAP_MOVE, start + first) != start + first:
            raise OSError(ctypes.get_errno(), "moved pages could not be moved back")
        return None
    taken[:first], taken[first + inner :] = view[:first], view[first + inner :]
    return taken


_HOLED: list[mmap.mmap] = []
"""Mappings into which a move failed. It may have left a hole, and what is mapped there by somebody else would go with the
mapping: so these never end. Nothing was written there, so they take no memory."""


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
