"""How much RAM a run may take on this host: every limit by its name, with the bytes left under it.

A memory-backed volume shows half of the host's RAM as its size whatever its own limit is, and its pages count against
the container's memory limit: so all limits are asked, and the smallest counts.
"""

from __future__ import annotations

import os
from pathlib import Path

from hinan.core.budget import RAM_BUDGET, Limit
from hinan.host.signals import ours

_UNLIMITED_BYTES = 1 << 60


def room(tmpfs: Path, cap_bytes: int | None = None, *, root: Path = Path("/")) -> dict[str, Limit]:
    """The room under each limit that the arena's pages count against.

    Args:
        tmpfs: an existing directory on the arena's file system.
        cap_bytes: the user's own budget per node, if any.
        root: where /proc and /sys are looked for.
    """
    limits = {str(_mount_point(tmpfs)): _file_system(tmpfs), "MemAvailable": _available(root)}
    limits |= _cgroup_room(root)
    if cap_bytes is not None:
        limits[RAM_BUDGET] = Limit(cap_bytes, files_only=True)
    return {name: limit for name, limit in limits.items() if limit.left_bytes < _UNLIMITED_BYTES}


def _mount_point(directory: Path) -> Path:
    """Where the file system of a directory is mounted: what a user would make larger."""
    return next(p for p in (directory, *directory.absolute().parents) if os.path.ismount(p) or p == p.parent)


def _file_system(directory: Path) -> Limit:
    stat = os.statvfs(directory)
    return Limit(stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize, files_only=True)


def _available(root: Path) -> Limit:
    lines = (line.partition(":") for line in (root / "proc/meminfo").read_text().splitlines())
    found = {name: int(value.split()[0]) * 1024 for name, _, value in lines if name in ("MemTotal", "MemAvailable")}
    return Limit(found.get("MemAvailable", _UNLIMITED_BYTES), found.get("MemTotal"))


def _cgroup_room(root: Path) -> dict[str, Limit]:
    """Memory left under this process's cgroup and all its ancestors, version 1 and 2."""
    found: dict[str, Limit] = {}
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            base, names = root / "sys/fs/cgroup/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat")
        elif controllers == "":
            unified = root / "sys/fs/cgroup/unified"
            base = unified if unified.is_dir() else root / "sys/fs/cgroup"
            names = ("memory.max", "memory.current", "memory.stat")
        else:
            continue
        at = base / path.strip("/")
        while True:
            left = _left_under(at, *names)
            if left is not None:
                found[f"cgroup {'/' + str(at.relative_to(base)) if at != base else '/'}"] = left
            if at == base:
                break
            at = at.parent
    return found


def _left_under(directory: Path, limit_name: str, usage_name: str, stat_name: str) -> Limit | None:
    try:
        limit_text = (directory / limit_name).read_text().strip()
        usage = int((directory / usage_name).read_text())
        stat = dict(line.split() for line in (directory / stat_name).read_text().splitlines())
    except ours(OSError, ValueError):
        return None
    if limit_text == "max" or int(limit_text) >= _UNLIMITED_BYTES:
        return None
    # Clean file cache is given back under pressure; it is not in the way.
    reclaimable = int(stat.get("inactive_file", stat.get("total_inactive_file", "0")))
    return Limit(int(limit_text) - usage + reclaimable, int(limit_text))
