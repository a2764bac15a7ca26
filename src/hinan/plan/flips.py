"""Where another decision would be right: found by deciding again, so that what is printed flips when it is tried.

Owns:      the break-even points that `--explain` prints.
Promises:  each lies between two answers of the planner that differ as said; a flip that is nowhere is not named.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from hinan.plan.checks import Infeasible
from hinan.plan.demands import checked_design
from hinan.plan.design import Design, bounds_of, build_levels
from hinan.plan.joint import solve
from hinan.plan.scenario import Scenario

_MOST_GPUS = 100_000_000
_CLOSE = 1.004
"""A flip is known to this factor."""


def each_step_below_s(scenario: Scenario, design: Design) -> float | None:
    """The stall of the fastest tier [s] below which every single step is the best interval; None: at no stall (the copy or
    the drain takes longer, a limit forbids it), or the question says no step or another interval."""
    if not scenario.job.step_known or scenario.demands.interval_s is not None or design.levels[0].per_s == 0:
        return None
    first, bounds = design.levels[0], bounds_of(scenario)

    def each_step(stall_s: float) -> bool:
        try:
            return (
                solve((replace(first, stall_s=stall_s), *design.levels[1:]), bounds).work_s <= scenario.job.step_s * 1.001
            )
        except Infeasible:
            return False

    # Of one tier alone: one step loses C/s + lam s/2, two lose C/2s + lam s.
    alone_s = scenario.job.step_s**2 * first.per_s
    return _last(each_step, alone_s / 1000, alone_s * 1000)


def drain_sets_from_gpus(scenario: Scenario, design: Design) -> int | None:
    """The job size from which on the drain, not the optimum, sets the slowest tier's interval, as `--scale` says it; None:
    it does already, or no plan is possible at such a size."""

    def at(gpus: int) -> Scenario:
        return replace(scenario, job=replace(scenario.job, gpus=gpus, shard_gpus=scenario.job.sharded_at(gpus)))

    def free(gpus: float) -> bool:
        top = build_levels(at(math.ceil(gpus)), design.variant)[-1]
        return top.per_s == 0 or math.sqrt(2 * top.stall_s / top.per_s) >= top.least_interval_s

    last = _last(free, scenario.job.gpus, _MOST_GPUS)
    if last is None or last >= _MOST_GPUS:
        return None
    try:
        checked_design(at(math.ceil(last * 1.02)))
    except Infeasible:
        return None
    return math.ceil(last)


def _last(holds: Callable[[float], bool], low: float, high: float) -> float | None:
    """The largest number in a range up to which something holds, by bisection; None: not even at its start."""
    if not holds(low):
        return None
    if holds(high):
        return high
    while high / low > _CLOSE:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
