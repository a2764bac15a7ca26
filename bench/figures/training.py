"""What evacuating costs a loop that trains: blocked time, the first time, and wall time with everything counted.

A run trains in blocks. A busy block begins with an evacuation and is long enough for its copy, digest, drain and commit;
what is left of them at its end is waited for and counted. Between busy blocks lie quiet ones of half as many steps, which
say what a step takes when nothing is going on.

*Blocked* is what the loop is held up by saving, seen from outside: the time in the `evac.step()` that evacuates, and the
time from calling the next `optimizer.step()` until its last pre-hook has run (where a gate would hold it back), both above
what they take when nothing is due.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from bench.child import Settings, call
from bench.proc import wait_for_slot
from bench.row import Goal, Row, sampled
from bench.statistics import extras, median
from hinan.core.budget import SLOTS_A_RANK

BLOCKED = Goal("blocked", "time the loop is blocked per evacuation, steady", 0.05, "× floor_ram")
FIRST = Goal("first_evacuation", "the first evacuation, against the steady one", 1.5, "× steady")
WALL = Goal("extra_wall", "extra wall time of training per evacuation, all included", 0.8, "× floor_ram")
GOALS = (BLOCKED, FIRST, WALL)
RUNS = 6
"""Each has one first evacuation, and a fresh arena."""

STEP_OVER_COPY = 1.5
BUSY_OVER_DRAIN = 2.5
"""A drain beside training takes longer than the floors; one that has not ended with the block would be waited for."""
ASKING_S = 0.05
KEEP_PAGES = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(1 << 30)}
"""The allocator keeps what a step gives back; otherwise page faults are a third of its time, and most of its noise."""


def rows(settings: Settings) -> list[Row]:
    """Several runs; their steady evacuations together."""
    pairs = math.ceil(settings.evacuations / RUNS)
    runs = [call(f"{__name__}:run", settings, KEEP_PAGES, pairs=pairs) for _ in range(min(RUNS, settings.evacuations))]
    floors = [floor for found in runs for floor in found["floors_s"]]
    return [
        sampled(BLOCKED, [s for found in runs for s in found["blocked_s"][1:]], floors),
        sampled(FIRST, [found["blocked_s"][0] / median(found["blocked_s"][1:]) for found in runs]),
        sampled(WALL, [s for found in runs for s in extras(found["with_s"], found["without_s"])], floors),
    ]


class Clock:
    """Times the parts of a step. Its hook is put behind all others before each step, and so sees what they held back."""

    def __init__(self, training: Any, evacuator_step: Callable[[], int]) -> None:
        self._training, self._evacuator_step = training, evacuator_step
        self.held_back_s, self.saving_s = 0.0, 0.0
        self._passed_at = 0.0

    def step(self) -> float:
        """One step; its wall time."""
        began = time.perf_counter()
        self._training.compute()
        hook = self._training.optimizer.register_step_pre_hook(self._passed)
        called_at = time.perf_counter()
        self._training.optimizer.step()
        self.held_back_s = self._passed_at - called_at
        hook.remove()
        saving_at = time.perf_counter()
        self._evacuator_step()
        ended = time.perf_counter()
        self.saving_s = ended - saving_at
        return ended - began

    def _passed(self, *_: Any) -> None:
        self._passed_at = time.perf_counter()


def run(settings: Settings, pairs: int) -> dict[str, list[float]]:
    """One run, in this interpreter: the first evacuation of its arena, those that make its slots, and `pairs` more."""
    import torch

    torch.set_num_threads(1)
    import hinan
    from bench.floors import Floors
    from bench.state import Training

    training = Training(settings.state_bytes)
    with settings.place() as (target, ram):
        floors = Floors(training.ranges, target)
        ram_s, disk_s = floors.ram_s(), floors.disk_s()
        busy = math.ceil(BUSY_OVER_DRAIN * (ram_s + disk_s) / _lengthen(training, ram_s)) + 1
        quiet = math.ceil(busy / 2) + 1
        every = busy + quiet
        evac = hinan.Evacuator(target / "run", training.state, every=every, commit_every=every, ram=ram)
        evac.restore()
        found = Blocks(Clock(training, evac.step), evac, busy, quiet).run(pairs, floors)
        evac.close()
    return found


class Blocks:
    """Busy and quiet blocks in turns."""

    def __init__(self, clock: Clock, evac: Any, busy: int, quiet: int) -> None:
        """
        Args:
            busy, quiet: steps of each; an evacuation is due every `busy + quiet` steps.
        """
        self._clock, self._evac, self._busy, self._quiet = clock, evac, busy, quiet
        self._held_back_s: list[float] = []
        self._saving_s: list[float] = []

    def run(self, pairs: int, floors: Any) -> dict[str, list[float]]:
        """`blocked_s` of `pairs` + 1 evacuations; of all but the first `with_s`, and `without_s` before and after each."""
        found: dict[str, list[float]] = {"blocked_s": [], "with_s": [], "without_s": [], "floors_s": []}
        self._usual(self._busy)
        for evacuation in range(pairs + SLOTS_A_RANK):
            if evacuation < SLOTS_A_RANK:
                wait_for_slot(self._evac)  # reserved and touched beforehand, as the goals say; from then on all are there
            if 0 < evacuation < SLOTS_A_RANK:
                self._usual(self._quiet - 1)  # beside these the next slot is reserved: they are not counted
                self._clock.step()
                self._with()
                continue
            without_s = self._usual(self._quiet - 1)
            # The step at which an evacuation is due belongs to the quiet block, its evac.step() to the busy one.
            without_s += self._clock.step() - self._clock.saving_s
            if evacuation > 0:
                found["without_s"].append(without_s * self._busy / self._quiet)
            blocked_s, with_s = self._with()
            found["blocked_s"].append(blocked_s)
            if evacuation > 0:
                found["with_s"].append(with_s)
                found["floors_s"].append(floors.ram_s())
        found["without_s"].append(self._usual(self._quiet - 1) * self._busy / (self._quiet - 1))
        return found

    def _with(self) -> tuple[float, float]:
        """(blocked, wall time) of a busy block, whose evac.step() has just returned."""
        clock = self._clock
        blocked_s, with_s = clock.saving_s - median(self._saving_s), clock.saving_s
        with_s += clock.step()
        blocked_s += max(0.0, clock.held_back_s - median(self._held_back_s))
        with_s += sum(clock.step() for _ in range(self._busy - 1))
        began = time.perf_counter()
        self._evac.last.wait("committed", 600.0)
        left_s = time.perf_counter() - began
        # Asking takes a message; only what is longer is work that did not end in time.
        return blocked_s, with_s + (left_s if left_s > ASKING_S else 0.0)

    def _usual(self, count: int) -> float:
        """Steps with nothing due; their wall time."""
        total_s = 0.0
        for _ in range(count):
            total_s += self._clock.step()
            self._held_back_s.append(self._clock.held_back_s)
            self._saving_s.append(self._clock.saving_s)
        return total_s


def _lengthen(training: Any, copy_s: float) -> float:
    """Make a step's own work longer than the copy, so that a copy could hide behind it; the time of a step."""
    while (compute_s := min(_timed(training.compute) for _ in range(2))) < STEP_OVER_COPY * copy_s:
        training.lengthen()
    return compute_s + _timed(training.optimizer.step)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
