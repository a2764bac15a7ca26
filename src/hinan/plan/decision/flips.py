"""Where another decision would be right: found by deciding again, so that what is printed flips when it is tried.

Owns:      the break-even points that `--explain` prints.
Promises:  each lies between two answers of the planner that differ as said; a flip that is nowhere is not named.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from hinan.plan.decision.demands import checked_design
from hinan.plan.decision.design import Design, bounds_of, build_levels, drain_binds
from hinan.plan.intervals.joint import solve
from hinan.plan.model.checks import Infeasible
from hinan.plan.model.scenario import Scenario

_MOST_GPUS = 100_000_000
_CLOSE = 1.004
"""A flip is known to this factor."""
_LEAST_STALL_S = 1e-5
"""Launching a copy takes longer: what would flip below it is no flip that anybody can try."""
_BESIDE = 0.015
"""So far to each side of it the planner is asked again, as whoever tries it will."""


def each_step_below_s(scenario: Scenario, design: Design) -> float | None:
    """The stall given [s] below which every single step is the best interval; None: at no stall or at any (the copy or the
    drain takes longer, a limit forbids or forces it), at none that a copy may have, or the question says no step or another
    interval."""
    if not scenario.job.step_known or scenario.demands.interval_s is not None or design.levels[0].per_s == 0:
        return None
    step_s = scenario.job.step_s

    def given(stall_s: float) -> Scenario:
        return replace(scenario, job=replace(scenario.job, stall_s=stall_s))

    def each_step(stall_s: float) -> bool:
        levels = build_levels(given(stall_s), design.variant)
        return _answered(lambda: solve(levels, bounds_of(scenario)).work_s <= step_s * 1.001)

    # Of one tier alone: one step loses C/s + lam s/2, two lose C/2s + lam s.
    alone_s = step_s**2 * design.levels[0].per_s
    flip_s = _last(each_step, alone_s / 1000, alone_s * 1000)
    if flip_s is None or flip_s < _LEAST_STALL_S:
        return None
    if not _differ(given, flip_s, lambda _, found: found.pattern.work_s <= step_s * 1.001):
        return None
    return flip_s


def drain_sets_from_gpus(scenario: Scenario, design: Design) -> int | None:
    """The job size from which on the drain, not the optimum, sets the slowest tier's interval, as `--scale` says it; None:
    it does already, or no plan is possible at such a size, or another way to build it is taken before."""

    def at(gpus: float) -> Scenario:
        return scenario.of_size(math.ceil(gpus))

    def free(gpus: float) -> bool:
        return _answered(lambda: not drain_binds(at(gpus), design.variant))

    last = _last(free, scenario.job.gpus, _MOST_GPUS)
    if last is None or not _differ(at, last, lambda asked, found: not drain_binds(asked, found.variant)):
        return None
    return math.ceil(last)


def _differ(at: Callable[[float], Scenario], flip: float, holds: Callable[[Scenario, Design], bool]) -> bool:
    """Whether planning again, over all ways to build it, gives one answer a little below a flip and the other above."""

    def planned(by: float) -> bool:
        asked = at(flip * by)
        return holds(asked, checked_design(asked))

    return _answered(lambda: planned(1 - _BESIDE)) and _answered(lambda: not planned(1 + _BESIDE))


def _answered(question: Callable[[], bool]) -> bool:
    """The answer; no where there is none."""
    try:
        return question()
    except Infeasible:
        return False


def _last(holds: Callable[[float], bool], low: float, high: float) -> float | None:
    """The number in a range up to which something holds and from which on it does not, by bisection; None: it does at no
    end of the range, or at both."""
    if not holds(low) or holds(high):
        return None
    while high / low > _CLOSE:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
