"""What evacuating costs a loop that trains: blocked time, the first time, and wall time with everything counted.

A run trains in blocks. A busy block begins with an evacuation and is long enough for its copy, digest, drain and commit;
what is left of them at its end is waited for and counted, less what the question alone takes. Between busy blocks lie
quiet ones of half as many steps, which say what a step takes when nothing is going on.

*Blocked* is what the loop is held up by saving, seen from outside: the time in the `evac.step()` that evacuates, and the
time in the hooks of the next `optimizer.step()` (where a gate would hold it back), both above what they take when nothing
is due. The *first* evacuation is all of that from the loop's first `evac.step()` on: the state is walked and planned there,
and the gate is tried out at the boundary before the first evacuation and behind it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from bench.child import Settings, call
from bench.clock import Clock
from bench.proc import wait_for_slot
from bench.row import Goal, Row, sampled
from bench.statistics import extras, first_costs, median
from hinan.core.budget import SLOTS_A_RANK

BLOCKED = Goal("blocked", "time the loop is blocked per evacuation, steady", 0.05, "× floor_ram")
FIRST = Goal("first_evacuation", "the first evacuation, getting ready included, against the steady one", 1.5, "× steady")
READY = Goal("getting_ready", "of the first evacuation: before the step at which it is due", None, "× steady")
WALL = Goal("extra_wall", "extra wall time of training per evacuation, all included", 0.8, "× floor_ram")
GOALS = (BLOCKED, FIRST, READY, WALL)
RUNS = 6
"""Each has one first evacuation, and a fresh arena."""

STEP_OVER_COPY = 1.5
BUSY_OVER_DRAIN = 2.5
"""A drain beside training takes longer than the floors; one that has not ended with the block would be waited for."""
QUESTIONS = 3
"""How often it is asked again whether a step is committed that is, to know what asking costs."""

KEEP_PAGES = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(1 << 30)}
"""The allocator keeps what a step gives back; otherwise page faults are a third of its time, and most of its noise."""


def rows(settings: Settings) -> list[Row]:
    """Several runs; their steady evacuations together."""
    pairs = math.ceil(settings.evacuations / RUNS)
    runs = [call(f"{__name__}:run", settings, KEEP_PAGES, pairs=pairs) for _ in range(min(RUNS, settings.evacuations))]
    floors = [floor for found in runs for floor in found["floors_s"]]
    return [
        sampled(BLOCKED, [s for found in runs for s in found["blocked_s"]], floors),
        sampled(FIRST, [found["first_s"][0] / median(found["blocked_s"]) for found in runs]),
        sampled(READY, [found["ready_s"][0] / median(found["blocked_s"]) for found in runs]),
        sampled(WALL, [s for found in runs for s in extras(found["with_s"], found["without_s"])], floors),
    ]


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
        self._paid_s: list[tuple[float, float]] = []
        self._usual_s: list[tuple[float, float]] = []

    def run(self, pairs: int, floors: Any) -> dict[str, list[float]]:
        """`ready_s` and `first_s` of the first evacuation. Of `pairs` more `blocked_s` and `with_s`, and `without_s` before
        and after each."""
        found: dict[str, list[float]] = {"blocked_s": [], "with_s": [], "without_s": [], "floors_s": []}
        self._quietly(self._busy)
        for evacuation in range(pairs + SLOTS_A_RANK):
            if evacuation < SLOTS_A_RANK:
                wait_for_slot(self._evac)  # reserved and touched beforehand, as the goals say; from then on all are there
            without_s = self._quietly(self._quiet - 1)
            # The step at which an evacuation is due belongs to the quiet block, its evac.step() to the busy one.
            without_s += self._step() - self._clock.saving_s
            blocked_s, with_s = self._with()
            if evacuation == 0:
                behind = self._busy + self._quiet + 1  # the first step of the busy block, with the gate in it
                first = self._paid_s[:behind]
                self._usual_s.clear()  # what they pay above the usual must not be part of it
            if evacuation >= SLOTS_A_RANK:  # beside those before the next slot is reserved
                found["without_s"].append(without_s * self._busy / self._quiet)
                found["blocked_s"].append(blocked_s)
                found["with_s"].append(with_s)
                found["floors_s"].append(floors.ram_s())
        found["without_s"].append(self._quietly(self._quiet - 1) * self._busy / (self._quiet - 1))
        ready_s, first_s = first_costs(first, self._usual())
        return found | {"ready_s": [ready_s], "first_s": [first_s]}

    def _step(self) -> float:
        took_s = self._clock.step()
        self._paid_s.append((self._clock.hooks_s, self._clock.saving_s))
        return took_s

    def _quietly(self, count: int) -> float:
        """Steps with nothing due; their wall time."""
        total_s = sum(self._step() for _ in range(count))
        self._usual_s += self._paid_s[-count:]
        return total_s

    def _usual(self) -> tuple[float, float]:
        """What a step with nothing due spends in hooks, and in evac.step()."""
        return median(hooks for hooks, _ in self._usual_s), median(saving for _, saving in self._usual_s)

    def _with(self) -> tuple[float, float]:
        """(blocked, wall time) of a busy block, whose evac.step() has just returned."""
        clock, (usual_hooks_s, usual_saving_s) = self._clock, self._usual()
        blocked_s, with_s = clock.saving_s - usual_saving_s, clock.saving_s
        with_s += self._step()
        blocked_s += clock.hooks_s - usual_hooks_s
        with_s += sum(self._step() for _ in range(self._busy - 1))
        left_s = self._wait_s()
        # All that is left of the drain is counted; what asking costs where nothing is left is not the evacuation's.
        return blocked_s, with_s + left_s - median(self._wait_s() for _ in range(QUESTIONS))

    def _wait_s(self) -> float:
        """How long it takes to learn that the newest evacuation is committed."""
        began = time.perf_counter()
        self._evac.last.wait("committed", 600.0)
        return time.perf_counter() - began


def _lengthen(training: Any, copy_s: float) -> float:
    """Make a step's own work longer than the copy, so that a copy could hide behind it; the time of a step."""
    while (compute_s := min(_timed(training.compute) for _ in range(2))) < STEP_OVER_COPY * copy_s:
        training.lengthen()
    return compute_s + _timed(training.optimizer.step)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
