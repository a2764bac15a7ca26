"""What kind of file system a path lies on: in RAM, on this host, or shared with others that see its names late."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from hinan.host.signals import ours, suppress_ours

IN_RAM = frozenset({"tmpfs", "ramfs", "hugetlbfs"})
AT_ONCE = IN_RAM | {"ext4", "ext3", "ext2", "xfs", "btrfs", "zfs", "f2fs", "overlay", "bcachefs"}
"""File systems of one host, on which a name is seen by everybody the moment it stands."""

VISIBILITY_S = 60.0
"""On a shared store a name may stay unseen for this long; until then an incomplete step may be a whole one (rule F1)."""

_LOOK_EVERY_S = 0.2

UNKNOWN = "an unknown file system"


def file_system_type(path: Path, *, root: Path = Path("/")) -> str:
    """The type in /proc/self/mountinfo of the mount that holds a path, or the nearest directory above it that exists.

    Args:
        root: where /proc is looked for.
    """
    there = next(p for p in (path, *path.absolute().parents) if p.exists())
    device = there.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = (root / "proc/self/mountinfo").read_text().splitlines()
    except ours(OSError):
        return UNKNOWN
    kinds = [line.partition(" - ")[2].split()[0] for line in lines if line.split()[2] == number]
    return kinds[-1] if kinds else UNKNOWN


def file_system(path: Path) -> int:
    """Number of the file system that a path lies on, or would lie on if it existed."""
    while True:
        try:
            return path.stat().st_dev
        except ours(FileNotFoundError, NotADirectoryError):
            path = path.parent


def visibility_s(path: Path, shared_s: float) -> float:
    """How long a name that another host published may stay unseen: 0 on this host's own file systems, else `shared_s`."""
    return 0.0 if file_system_type(path) in AT_ONCE else shared_s


def wait_until_seen(seen: Callable[[], bool], directory: Path) -> bool:
    """Look, and on a shared store look again until it is seen or its absence is final; whether it was seen (rule F1).

    Args:
        directory: whose names are waited for; it is listed before each further look, which makes a client ask its server.
    """
    deadline = time.monotonic() + visibility_s(directory, VISIBILITY_S)
    while not seen():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_EVERY_S)  # a name that becomes visible has no event on a network file system
        with suppress_ours(OSError):
            os.listdir(directory)  # noqa: PTH208
    return True
