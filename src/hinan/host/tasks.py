"""Threads of this process as the kernel sees them, Python's and all others."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path

from hinan.host.signals import suppress_ours

_TASKS = Path("/proc/self/task")

_THREADS_CLOCK = 6
"""CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED: with a thread's number, its clock, as `pthread_getcpuclockid` makes it."""


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


def processor_ns(tasks: Collection[int]) -> dict[int, int]:
    """For how long each of some threads has been on a processor so far [ns]; nothing of those that have ended.

    No file is read, so no other thread of Python's comes in between.
    """
    found = {}
    for task in tasks:
        with suppress_ours(OSError):
            found[task] = time.clock_gettime_ns((~task << 3) | _THREADS_CLOCK)
    return found


def awake_ns(task: int) -> int | None:
    """For how long a thread has been on a processor so far, or has waited for one [ns]; it may be some milliseconds late.

    None where it has ended, or the kernel was built without CONFIG_SCHED_INFO.
    """
    with suppress_ours(OSError, ValueError):
        on_processor_ns, waited_ns, _ = _TASKS.joinpath(str(task), "schedstat").read_text().split()
        return int(on_processor_ns) + int(waited_ns)
    return None
