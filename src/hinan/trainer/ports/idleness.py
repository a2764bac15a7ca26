"""Whether other threads did anything from one look at them to the next, as far as the kernel tells.

Whoever writes does not sleep: it is on a processor, or waits for one. Several may do it in turns (a team of native threads,
and the thread that waits for it), but together they are at it all the time. So threads did nothing if all of them sleep at
both looks, and together were on a processor for a small share of the time between. Who polls is: gloo's thread wakes up a
hundred times a second, for some tens of microseconds.

One sleeper may not have done with what he has written: who waits for the interpreter inside an operation, to call Python
back. He wakes up in each switching interval. So of Python's threads none may have woken up at all, unless the whole process
was idle: then nobody kept the interpreter from them, and those that woke up poll.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from typing import NamedTuple

from hinan.host.tasks import asleep, awake_ns, processor_ns, task_ids

IDLE_SHARE = 0.1
"""Of the time: threads that were on a processor for less of it, all together, wrote nothing. Those that write come to 1 or
more; one that polls comes to 0.01."""

AT_WORK_SHARE, AT_WORK_NS = 0.75, 100_000_000
"""Who did not sleep for that share of that time waits for nobody: one that polls for another does so more often."""


class Look(NamedTuple):
    """What the kernel says at one moment.

    Attributes:
        asleep: those asked for that sleep, with how often they have gone to sleep.
        tasks: all threads of the process but the one that looks.
        processor_ns: for how long each of these has been on a processor, until `at_ns`.
        at_ns: the end of the look, by the monotonic clock: what goes on then must have used the time since the one before.
    """

    asleep: dict[int, int]
    tasks: frozenset[int]
    processor_ns: dict[int, int]
    at_ns: int

    def busy_share(self, before: Look, tasks: Collection[int]) -> float:
        """Of the time since another look, for how much these threads were on a processor; 1 where one of them has ended."""
        if not self.processor_ns.keys() >= set(tasks):
            return 1.0
        used_ns = sum(self.processor_ns[task] - before.processor_ns.get(task, 0) for task in tasks)
        return used_ns / (self.at_ns - before.at_ns)


def look_at(tasks: Collection[int]) -> Look:
    sleepers = asleep(tasks)  # first: it takes a while
    others = task_ids() - {threading.get_native_id()}
    return Look(sleepers, others, processor_ns(others), time.monotonic_ns())


def did_nothing(before: Look, now: Look, pythons: Collection[int], natives: Collection[int]) -> bool:
    """Whether these threads, Python's and others, did nothing between two looks at them."""
    concerned = {*pythons, *natives}
    if not (before.asleep.keys() >= concerned and now.asleep.keys() >= concerned):
        return False
    woken = {task for task in concerned if before.asleep[task] != now.asleep[task]}
    if not woken or now.busy_share(before, now.tasks) < IDLE_SHARE:
        return True
    return woken.isdisjoint(pythons) and now.busy_share(before, natives) < IDLE_SHARE


class AtWork:
    """Whether a thread works, and does not wait for others."""

    def __init__(self, task: int) -> None:
        self._task = task
        self._begin()

    def for_a_while(self) -> bool:
        """Ask it now and then: whether it was at work nearly all the time, for a while that has just ended."""
        passed_ns = time.monotonic_ns() - self._since_ns
        if passed_ns < AT_WORK_NS:
            return False
        awake_before_ns = self._awake_ns
        self._begin()
        if awake_before_ns is None or self._awake_ns is None:
            return False
        return self._awake_ns - awake_before_ns > AT_WORK_SHARE * passed_ns

    def _begin(self) -> None:
        self._since_ns, self._awake_ns = time.monotonic_ns(), awake_ns(self._task)


def sleeps(task: int) -> bool:
    """Whether a thread sleeps at one of a few moments, as one that polls does."""
    for _ in range(5):
        if asleep([task]):
            return True
        time.sleep(0.001)  # the kernel tells nobody that a thread falls asleep
    return False
