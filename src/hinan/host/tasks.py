"""Threads of this process as the kernel sees them, Python's and all others."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from hinan.host.signals import suppress_ours

_TASKS = Path("/proc/self/task")


def task_ids() -> frozenset[int]:
    """The kernel's numbers of all threads there are (`threading.get_native_id` gives one's own)."""
    return frozenset(int(task.name) for task in _TASKS.iterdir())


def asleep(tasks: Collection[int]) -> dict[int, int]:
    """Those of some threads that sleep, with how often each has gone to sleep so far.

    One that is here twice with the same number has slept all the time between: it has done nothing. A thread that waits for
    a processor or a disk, or was stopped, does not sleep. Where the kernel does not tell, none does.
    """
    found = {}
    for task in tasks:
        with suppress_ours(OSError, ValueError):  # it has ended
            known = dict(line.split(":", 1) for line in _TASKS.joinpath(str(task), "status").read_text().splitlines())
            times = known.get("voluntary_ctxt_switches")
            if times is not None and known.get("State", "").strip().startswith("S"):
                found[task] = int(times)
    return found
