"""The kernel's policy of a file in RAM: set before the pages, seen by everybody, refused by name."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hinan.host.numa import KernelMemory

SIZE_BYTES = 16 * mmap.PAGESIZE


@pytest.fixture
def fd() -> Iterator[int]:
    """An empty file in RAM."""
    path = Path(f"/dev/shm/hinan-numa-{os.getpid()}")
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    path.unlink()
    yield number
    os.close(number)


def prefer(fd: int, node: int) -> None:
    """Set the policy, or skip where the kernel lets nobody (a container's seccomp filter)."""
    try:
        KernelMemory().prefer(fd, SIZE_BYTES, node)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.ENOSYS):
            pytest.skip(f"mbind is refused here: {error.strerror}")
        raise


def test_the_policy_lives_in_the_file(fd: int) -> None:
    """Set before the file has a length or a page; another mapping of it is under the same policy, and so are its pages."""
    prefer(fd, 0)
    assert os.fstat(fd).st_size == 0
    os.posix_fallocate(fd, 0, SIZE_BYTES)
    with mmap.mmap(fd, SIZE_BYTES) as mapped:
        mapped[0] = 1
        lines = Path("/proc/self/numa_maps").read_text().splitlines()
    (line,) = [line for line in lines if f"hinan-numa-{os.getpid()}" in line]
    assert line.split()[1] == "prefer:0"
    assert KernelMemory().node_of(fd, SIZE_BYTES - 1) == 0


def test_a_node_that_is_not_there_is_refused(fd: int) -> None:
    """As an error with the kernel's reason; no page and no length came of it."""
    prefer(fd, 0)
    for node in (63, 64, 1000):
        with pytest.raises(OSError, match="Invalid argument"):
            KernelMemory().prefer(fd, SIZE_BYTES, node)
    assert os.fstat(fd).st_blocks == os.fstat(fd).st_size == 0


def test_no_page_has_no_node(fd: int) -> None:
    """Past the end of the file there is nothing to ask about."""
    assert KernelMemory().node_of(fd, SIZE_BYTES) is None


def test_memory_of_our_own_has_a_node() -> None:
    """A touched page of this process; an address without one has none."""
    with mmap.mmap(-1, mmap.PAGESIZE) as mapped:
        mapped[0] = 1
        view = ctypes.c_char.from_buffer(mapped)
        found = KernelMemory().node_at(ctypes.addressof(view))
        del view
    if found is not None:  # a seccomp filter may refuse
        assert Path(f"/sys/devices/system/node/node{found}").exists()
    assert KernelMemory().node_at(0) is None


def test_near_is_given_back() -> None:
    """The thread runs on the asked CPUs inside, on its own afterwards; none that may be used is an error."""
    before = os.sched_getaffinity(0)
    first = min(before)
    with KernelMemory().near([first]):
        assert os.sched_getaffinity(0) == {first}
    assert os.sched_getaffinity(0) == before
    with pytest.raises(OSError, match="Invalid argument"), KernelMemory().near([]):
        pass
    assert os.sched_getaffinity(0) == before
