"""Where the pages of a file in RAM come to lie: the kernel's NUMA policy of a tmpfs file, and the node of a page.

Promises:  a policy is set before pages exist, and moves none that do. It is a preference: a full node is passed over.
Relies on: a shared policy of tmpfs living in the file, not in the mapping or process that set it (kernel
           admin-guide/mm/numa_memory_policy), so `posix_fallocate` by descriptor follows it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import platform
from collections.abc import Iterable, Iterator
from typing import Protocol

from hinan.host.signals import suppress_ours

_CALLS = {"x86_64": (237, 239), "aarch64": (235, 236), "riscv64": (235, 236), "ppc64le": (259, 260)}
"""Numbers of mbind and get_mempolicy; glibc has no wrapper for them, and libnuma is not everywhere."""

_MPOL_PREFERRED = 1
_MPOL_F_NODE, _MPOL_F_ADDR = 1, 2  # linux/mempolicy.h
_PROT_NONE, _MAP_FAILED = 0, ctypes.c_void_p(-1).value
_WORD_BITS = 8 * ctypes.sizeof(ctypes.c_ulong)

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.syscall.restype = ctypes.c_long


class NumaMemory(Protocol):
    """What placing needs of the kernel. A fake stands in for it on machines with one node."""

    def prefer(self, fd: int, size_bytes: int, node: int) -> None:
        """Take pages that the file has not got yet from this node, as long as it has some.

        Raises:
            OSError: refused (a container without CAP_SYS_NICE), no such node, or an architecture we do not know.
        """

    def near(self, cpus: Iterable[int]) -> contextlib.AbstractContextManager[None]:
        """Run the block on these CPUs, so that what it allocates lies on their node.

        Raises:
            OSError: the process may not run there.
        """

    def node_of(self, fd: int, offset_bytes: int) -> int | None:
        """The node on which the page at an offset lies; None where the kernel does not say."""


class KernelMemory:
    """The real one."""

    def prefer(self, fd: int, size_bytes: int, node: int) -> None:
        mask = (ctypes.c_ulong * (node // _WORD_BITS + 1))()
        mask[node // _WORD_BITS] = 1 << node % _WORD_BITS
        # Why not Python's mmap: it refuses what lies past the file's end, and the file has no length yet.
        with _mapped(fd, 0, size_bytes, _PROT_NONE) as address:
            # The kernel takes one bit less than it is told.
            _call(0, address, size_bytes, _MPOL_PREFERRED, ctypes.addressof(mask), len(mask) * _WORD_BITS + 1, 0)

    @contextlib.contextmanager
    def near(self, cpus: Iterable[int]) -> Iterator[None]:
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, cpus)
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)

    def node_of(self, fd: int, offset_bytes: int) -> int | None:
        with suppress_ours(OSError), _mapped(fd, offset_bytes, mmap.PAGESIZE, mmap.PROT_READ) as address:
            return self.node_at(address)
        return None

    def node_at(self, address: int) -> int | None:
        """The node on which the page at an address of this process lies; None where the kernel does not say."""
        node = ctypes.c_int(-1)
        with suppress_ours(OSError):
            _call(1, ctypes.addressof(node), 0, 0, address, _MPOL_F_NODE | _MPOL_F_ADDR)
        return node.value if node.value >= 0 else None


@contextlib.contextmanager
def _mapped(fd: int, offset_bytes: int, size_bytes: int, protection: int) -> Iterator[int]:
    start = offset_bytes // mmap.PAGESIZE * mmap.PAGESIZE
    address = _libc.mmap(None, size_bytes, protection, mmap.MAP_SHARED, fd, start)
    if address == _MAP_FAILED:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    try:
        yield address
    finally:
        _libc.munmap(address, size_bytes)


def _call(which: int, *arguments: int) -> None:
    numbers = _CALLS.get(platform.machine())
    if numbers is None:
        raise OSError(errno.ENOSYS, f"the number of this call on {platform.machine()} is not known here")
    if _libc.syscall(ctypes.c_long(numbers[which]), *map(ctypes.c_ulong, arguments)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
