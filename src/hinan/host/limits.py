"""How much RAM a run may take on this host: every limit by its name, in bytes left under it.

A memory-backed volume shows half of the host's RAM as its size whatever its own limit is, and its pages count against
the container's memory limit: so all limits are asked, and the smallest counts.
"""

from __future__ import annotations

import os
from pathlib import Path

_UNLIMITED_BYTES = 1 << 60


def room(tmpfs: Path, cap_bytes: int | None = None, *, root: Path = Path("/")) -> dict[str, int]:
    """Bytes left under each limit that the arena's pages count against.

    Args:
        tmpfs: an existing directory on the arena's file system.
        cap_bytes: the user's own budget per node, if any.
        root: where /proc and /sys are looked for.
    """
    limits = {str(tmpfs): _free_bytes(tmpfs), "MemAvailable": _available_bytes(root)}
    limits |= _cgroup_room(root)
    if cap_bytes is not None:
        limits["the ram budget"] = cap_bytes
    return {name: left for name, left in limits.items() if left < _UNLIMITED_BYTES}


def _free_bytes(directory: Path) -> int:
    stat = os.statvfs(directory)
    return stat.f_bavail * stat.f_frsize


def _available_bytes(root: Path) -> int:
    for line in (root / "proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return _UNLIMITED_BYTES


def _cgroup_room(root: Path) -> dict[str, int]:
    """Memory left under this process's cgroup and all its ancestors, version 1 and 2."""
    found: dict[str, int] = {}
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


def _left_under(directory: Path, limit_name: str, usage_name: str, stat_name: str) -> int | None:
    try:
        limit_text = (directory / limit_name).read_text().strip()
        usage = int((directory / usage_name).read_text())
        stat = dict(line.split() for line in (directory / stat_name).read_text().splitlines())
    except (OSError, ValueError):
        return None
    if limit_text == "max" or int(limit_text) >= _UNLIMITED_BYTES:
        return None
    # Clean file cache is given back under pressure; it is not in the way.
    reclaimable = int(stat.get("inactive_file", stat.get("total_inactive_file", "0")))
    return int(limit_text) - usage + reclaimable
