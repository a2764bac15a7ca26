"""Small file systems of a test's own: a full disk, a read-only one, one that goes away; and what stands in a directory."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

MARGIN = 64 << 20  # what the RAM budget leaves free


class Disks:
    """Mounts, and what must be unmounted when the test ends."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._mounts: list[Path] = []

    def tmpfs(self, name: str, size_bytes: int) -> Path:
        """A tmpfs of this size."""
        return self._mount(name, "-t", "tmpfs", "-o", f"size={size_bytes},mode=700", "tmpfs")

    def read_only(self, name: str, of: Path) -> Path:
        """A directory, seen through a mount that cannot be written."""
        path = self._mount(name, "--bind", str(of))
        subprocess.run(["mount", "-o", "remount,ro,bind", str(path)], check=True)
        return path

    def bind(self, name: str, of: Path) -> Path:
        """A directory under a second name, which can be taken away and brought back."""
        return self._mount(name, "--bind", str(of))

    def _mount(self, name: str, *arguments: str) -> Path:
        path = self._root / name
        path.mkdir(exist_ok=True)
        done = subprocess.run(["mount", *arguments, str(path)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"this machine does not let us mount ({done.stderr.strip()})")
        self._mounts.append(path)
        return path

    def unmount(self, path: Path) -> None:
        """Take a file system away, also from under those who use it."""
        subprocess.run(["umount", "-l", str(path)], check=True)
        self._mounts.remove(path)

    def close(self) -> None:
        """Unmount everything."""
        for path in reversed(self._mounts.copy()):
            self.unmount(path)


def fill(path: Path, leave_bytes: int = 0) -> Path:
    """Write a file that takes all room of a file system but `leave_bytes`; unlink it to free the disk again."""
    filler = path / "filler"
    stat = os.statvfs(path)
    size_bytes = stat.f_bavail * stat.f_frsize - leave_bytes
    fd = os.open(filler, os.O_WRONLY | os.O_CREAT)
    try:
        try:
            os.posix_fallocate(fd, 0, max(1, size_bytes))
        except OSError as error:  # somebody has written since; what is left is taken page by page
            assert error.errno == errno.ENOSPC and not leave_bytes
        while not leave_bytes:
            try:
                os.posix_fallocate(fd, os.fstat(fd).st_size, os.sysconf("SC_PAGE_SIZE"))
            except OSError as error:
                assert error.errno == errno.ENOSPC
                break
    finally:
        os.close(fd)
    return filler


def names(directory: Path) -> list[str]:
    """What stands in a directory, sorted."""
    return sorted(p.name for p in directory.iterdir())
