"""How much RAM is left: every limit by name, from files of a machine that is not this one."""

from __future__ import annotations

from pathlib import Path

import pytest

from hinan.core.budget import MARGIN_BYTES, Need, slots_that_fit
from hinan.core.errors import BudgetError
from hinan.host.limits import room

GIB = 1 << 30


def machine(root: Path, cgroup: str, files: dict[str, str], available_bytes: int = 64 * GIB) -> Path:
    """A root directory with /proc/meminfo, /proc/self/cgroup and cgroup files."""
    files = files | {
        "proc/meminfo": f"MemTotal: 99999999 kB\nMemAvailable: {available_bytes >> 10} kB\n",
        "proc/self/cgroup": cgroup,
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def v2(path: str, limit: str, usage: int, inactive_file: int = 0) -> dict[str, str]:
    base = f"sys/fs/cgroup{path}"
    return {
        f"{base}/memory.max": limit,
        f"{base}/memory.current": str(usage),
        f"{base}/memory.stat": f"anon 1\ninactive_file {inactive_file}\n",
    }


def test_all_ancestors_of_a_cgroup_count(tmp_path: Path) -> None:
    """A-PLATFORM-5: the pod's limit counts although the container itself has none; clean file cache is not in the way."""
    files = v2("/pod/box", "max", 5 * GIB) | v2("/pod", str(24 * GIB), 12 * GIB, inactive_file=2 * GIB)
    root = machine(tmp_path, "0::/pod/box\n", files)
    assert room(tmp_path, root=root)["cgroup /pod"] == 14 * GIB


def test_version_one_cgroups(tmp_path: Path) -> None:
    """The memory controller of version 1; a limit near 2^63 is no limit."""
    base = "sys/fs/cgroup/memory"
    files = {
        f"{base}/job/memory.limit_in_bytes": str(8 * GIB),
        f"{base}/job/memory.usage_in_bytes": str(3 * GIB),
        f"{base}/job/memory.stat": "total_inactive_file 0\n",
        f"{base}/memory.limit_in_bytes": str(2**63 - 4096),
        f"{base}/memory.usage_in_bytes": "1",
        f"{base}/memory.stat": "total_inactive_file 0\n",
    }
    found = room(tmp_path, root=machine(tmp_path, "4:memory:/job\n3:cpu:/x\n", files))
    assert found["cgroup /job"] == 5 * GIB
    assert "cgroup /" not in found


def test_the_smallest_limit_decides_and_is_named(tmp_path: Path) -> None:
    """A-PLATFORM-5: df says 32 GiB, the pod has 14 left: the sum is refused with the limit's name and three ways out."""
    limits = {"/dev/shm": 32 * GIB, "cgroup /pod": 14 * GIB, "MemAvailable": 60 * GIB}
    assert slots_that_fit(Need(ranks=1, slots=3, image_bytes=4 * GIB), limits) == 3
    assert slots_that_fit(Need(ranks=2, slots=3, image_bytes=3 * GIB), limits) == 2
    with pytest.raises(
        BudgetError, match=r"8 ranks x 2 slots x 3.0 GiB = 48.0 GiB, but cgroup /pod leaves 13.9 GiB"
    ) as refused:
        slots_that_fit(Need(ranks=8, slots=3, image_bytes=3 * GIB), limits)
    assert refused.value.evidence["room_bytes"] == 14 * GIB - MARGIN_BYTES
    assert all(way in str(refused.value) for way in ("tmpfs", "keep less", "fewer ranks"))


def test_a_budget_of_the_users_is_a_limit_too(tmp_path: Path) -> None:
    """`ram="1GiB"` is one of the limits."""
    root = machine(tmp_path, "0::/\n", {})
    assert room(tmp_path, GIB, root=root)["the ram budget"] == GIB
