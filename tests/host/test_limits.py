"""How much RAM is left: every limit by name, from files of a machine that is not this one."""

from __future__ import annotations

from pathlib import Path

import pytest

from hinan.core.budget import MARGIN_BYTES, RAM_BUDGET, Limit, Need, slots_that_fit
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
    assert room(tmp_path, root=root)["cgroup /pod"] == Limit(14 * GIB, 24 * GIB)


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
    assert found["cgroup /job"] == Limit(5 * GIB, 8 * GIB)
    assert "cgroup /" not in found


def test_the_smallest_limit_decides_and_is_named() -> None:
    """A-PLATFORM-5: df says 32 GiB, the pod has 14 left: the sum is refused with the limit's name and three ways out."""
    limits = {
        "/dev/shm": Limit(32 * GIB, 32 * GIB, files_only=True),
        "cgroup /pod": Limit(14 * GIB, 24 * GIB),
        "MemAvailable": Limit(60 * GIB, 64 * GIB),
    }
    assert slots_that_fit(Need(ranks=1, slots=3, image_bytes=4 * GIB), limits) == 3
    assert slots_that_fit(Need(ranks=2, slots=3, image_bytes=3 * GIB), limits) == 2
    with pytest.raises(
        BudgetError, match=r"8 ranks x 2 slots x 3.0 GiB = 48.0 GiB, but cgroup /pod leaves 13.9 GiB"
    ) as refused:
        slots_that_fit(Need(ranks=8, slots=3, image_bytes=3 * GIB), limits)
    assert refused.value.evidence["room_bytes"] == 14 * GIB - MARGIN_BYTES
    assert all(way in str(refused.value) for way in ("tmpfs", "keep less", "fewer ranks"))


def test_a_platform_5_the_size_of_a_memory_backed_volume_is_not_its_room(tmp_path: Path) -> None:
    """A-PLATFORM-5: df shows 32 GiB, sizeLimit is 4 GiB (which only the user knows: ram="4GiB"), the memory limit 24 GiB of
    which 10 GiB are used: two slots of 1.9 GiB fit, of 2 GiB not, and the sum names the budget; without it the pod's
    limit decides."""
    root = machine(tmp_path, "0::/pod\n", v2("/pod", str(24 * GIB), 10 * GIB))
    mount = {"/dev/shm": Limit(32 * GIB, 32 * GIB, files_only=True)}
    seen = room(tmp_path, 4 * GIB, root=root).items()
    found = {n: limit for n, limit in seen if n == RAM_BUDGET or not limit.files_only} | mount
    assert slots_that_fit(Need(1, 3, int(1.9 * GIB)), found) == 2
    with pytest.raises(BudgetError, match=r"4.0 GiB  left by the ram budget"):
        slots_that_fit(Need(1, 3, 2 * GIB), found)
    unsaid = {n: limit for n, limit in found.items() if n != RAM_BUDGET}
    assert slots_that_fit(Need(1, 3, int(4.6 * GIB)), unsaid) == 3
    with pytest.raises(BudgetError, match=r"14.0 GiB  left by cgroup /pod of its 24.0 GiB"):
        slots_that_fit(Need(1, 3, 7 * GIB), unsaid)


def test_each_limit_knows_its_size_and_what_counts_against_it(tmp_path: Path) -> None:
    """`ram="1GiB"` and the file system count files alone; memory counts everything; sizes are those of the whole."""
    found = room(tmp_path, GIB, root=machine(tmp_path, "0::/\n", {}))
    assert found[RAM_BUDGET] == Limit(GIB, files_only=True)
    assert found["MemAvailable"] == Limit(64 * GIB, 99999999 * 1024)
    (disk,) = (name for name in found if name not in (RAM_BUDGET, "MemAvailable"))
    assert Path(disk).is_mount() and tmp_path.is_relative_to(disk)
    assert found[disk].files_only and 0 < found[disk].left_bytes <= (found[disk].of_bytes or 0)
