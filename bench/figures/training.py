"""What evacuating costs a loop that trains: blocked time, the first time, and wall time with everything counted.

A run trains in blocks of K steps. Every 2 K steps one evacuation is due: the block after it holds its copy, digest, drain
and commit, the next one holds nothing, and so on, interleaved. K is large enough for the drain to end within its block;
what is left of it is waited for and counted.

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
from bench.row import Goal, Row, sampled
from bench.statistics import extras, median

BLOCKED = Goal("blocked", "time the loop is blocked per evacuation, steady", 0.05, "× floor_ram")
FIRST = Goal("first_evacuation", "the first evacuation, against the steady one", 1.5, "× steady")
WALL = Goal("extra_wall", "extra wall time of training per evacuation, all included", 0.8, "× floor_ram")
GOALS = (BLOCKED, FIRST, WALL)
RUNS = 6
"""Each has one first evacuation, and a fresh arena."""

STEP_OVER_COPY = 1.5


def rows(settings: Settings) -> list[Row]:
    """Several runs; their steady evacuations together."""
    pairs = math.ceil(settings.evacuations / RUNS)
    runs = [call(f"{__name__}:run", settings, pairs=pairs) for _ in range(min(RUNS, settings.evacuations))]
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
    """One run, in this interpreter: `pairs` + 1 evacuations, the first of which is the first of its arena."""
    import torch

    torch.set_num_threads(1)
    import hinan
    from bench.floors import Floors
    from bench.state import Training

    training = Training(settings.state_bytes)
    with settings.place() as (target, ram):
        floors = Floors(training.ranges(), target)
        ram_s, disk_s = floors.ram_s(), floors.disk_s()
        block = math.ceil(1.5 * (ram_s + disk_s) / _lengthen(training, ram_s)) + 2
        evac = hinan.Evacuator(target / "run", training.state, every=2 * block, commit_every=2 * block, ram=ram)
        evac.restore()
        clock = Clock(training, evac.step)
        found = _blocks(clock, evac, block, pairs, floors)
        evac.close()
    return found


def _blocks(clock: Clock, evac: Any, block: int, pairs: int, floors: Any) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"blocked_s": [], "with_s": [], "without_s": [], "floors_s": []}
    usual_held: list[float] = []
    usual_saving: list[float] = []

    def quiet(count: int) -> float:
        """Steps with nothing due."""
        total_s = 0.0
        for _ in range(count):
            total_s += clock.step()
            usual_held.append(clock.held_back_s)
            usual_saving.append(clock.saving_s)
        return total_s

    quiet(block)
    for evacuation in range(pairs + 1):
        without_s = quiet(block - 1)
        due_s = clock.step()
        # The step at which an evacuation is due belongs to the block without one, its evac.step() to the one with.
        without_s += due_s - clock.saving_s
        saving_s = clock.saving_s - median(usual_saving)
        with_s = clock.saving_s + clock.step()
        found["blocked_s"].append(saving_s + max(0.0, clock.held_back_s - median(usual_held)))
        with_s += sum(clock.step() for _ in range(block - 1))
        began = time.perf_counter()
        evac.last.wait("committed", 600.0)
        left_s = time.perf_counter() - began
        # Waiting for a commit that stands takes a message; only what is longer is a drain that did not end in time.
        with_s += left_s if left_s > 0.05 else 0.0
        if evacuation > 0:
            found["with_s"].append(with_s)
            found["floors_s"].append(floors.ram_s())
        found["without_s"].append(without_s)
    found["without_s"].append(quiet(block - 1) * block / (block - 1))
    found["without_s"] = found["without_s"][1:]
    return found


def _lengthen(training: Any, copy_s: float) -> float:
    """Make a step's own work longer than the copy, so that a copy could hide behind it; the time of a step."""
    while (compute_s := min(_timed(training.compute) for _ in range(2))) < STEP_OVER_COPY * copy_s:
        training.lengthen()
    return compute_s + _timed(training.optimizer.step)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
