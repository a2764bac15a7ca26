"""The interval of a running job: measured costs and counted failures in, an interval in whole steps and its reason out.

Owns:      the Gamma posterior of the failure rate, the cap on overhead, and the hysteresis.
Promises:  pure: the same facts give the same decision on every rank. The overhead cap is not exceeded, the drain not
           outrun; apart from these two the interval changes only when staying costs noticeably more.
Relies on: the caller measuring (stall, drain, restart, step) and counting, and making all ranks change at one step.
Never:     keeps state between calls, reads a clock, or moves for noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hinan.core.units import format_seconds
from hinan.plan.checks import not_negative, positive, ratio
from hinan.plan.failures import DAY_S
from hinan.plan.formulas import exact_ettr, exact_interval_s

PRIOR_FAILURES = 2.0
"""Weight of the table: as if so many failures had been seen already. After a handful of real ones they rule."""


@dataclass(frozen=True)
class Measured:
    """What the job knows about itself. Durations are means over the recent past [s]."""

    step_s: float
    stall_s: float
    drain_s: float
    restart_s: float
    failures: int
    """Failures that the tier in question answered, since the run began, over all attempts."""
    observed_s: float
    """Time over which they were counted."""

    def __post_init__(self) -> None:
        positive(step_s=self.step_s, stall_s=self.stall_s)
        not_negative(drain_s=self.drain_s, restart_s=self.restart_s, observed_s=self.observed_s, failures=self.failures)


@dataclass(frozen=True)
class Prior:
    """What the failure table says before anything was seen: failures per second of the whole job."""

    per_s: float
    weight_failures: float = PRIOR_FAILURES

    def __post_init__(self) -> None:
        positive(per_s=self.per_s, weight_failures=self.weight_failures)


def prior_of(*, per_node_day: float, nodes: int) -> Prior:
    """The table's rate times the size of the job."""
    positive(per_node_day=per_node_day, nodes=nodes)
    return Prior(per_node_day * nodes / DAY_S)


@dataclass(frozen=True)
class Rate:
    """Posterior of the failure rate: Gamma(shape, 1 / time_s). Mean and 90 % interval [1/s]."""

    mean_per_s: float
    low_per_s: float
    high_per_s: float


def posterior(measured: Measured, prior: Prior) -> Rate:
    """Gamma prior (weight, weight / rate), Poisson counts: shape weight + failures, time weight / rate + observed."""
    from scipy.special import gammaincinv

    shape = prior.weight_failures + measured.failures
    time_s = prior.weight_failures / prior.per_s + measured.observed_s
    low, high = (float(gammaincinv(shape, chance)) / time_s for chance in (0.05, 0.95))
    return Rate(shape / time_s, low, high)


@dataclass(frozen=True)
class Decision:
    """An interval in steps, whether it differs from the current one, and why."""

    every_steps: int
    changed: bool
    reason: str
    rate: Rate
    best_steps: int
    """Without hysteresis."""


def decide(
    measured: Measured,
    prior: Prior,
    current_steps: int | None,
    *,
    max_overhead_ratio: float = 0.05,
    worth_ratio: float = 0.1,
) -> Decision:
    """The interval to use from the next agreed step on.

    Args:
        current_steps: interval in use; None at the start.
        max_overhead_ratio: stall per training time, a hard limit.
        worth_ratio: change only if staying loses this much more, relative to the loss at the best interval.
    Raises:
        ConfigError: a measurement that cannot be.
    """
    ratio(max_overhead_ratio=max_overhead_ratio)
    positive(max_overhead_ratio=max_overhead_ratio)
    not_negative(worth_ratio=worth_ratio)
    rate = posterior(measured, prior)
    wanted_s = exact_interval_s(stall_s=measured.stall_s, mtti_s=1 / rate.mean_per_s)
    least_steps, why = _least_steps(measured, max_overhead_ratio)
    best = max(_better_of(wanted_s, measured, rate), least_steps)
    if best == least_steps and best * measured.step_s > wanted_s + measured.step_s:
        because = why
    else:
        because = (
            f"stall {format_seconds(measured.stall_s)}, a failure every {format_seconds(1 / rate.mean_per_s)} "
            f"({measured.failures} seen in {format_seconds(measured.observed_s)})"
        )
    if current_steps is None:
        return Decision(best, True, f"every {best} steps: {because}", rate, best)
    if current_steps < least_steps:
        return Decision(best, True, f"{current_steps} -> {best} steps: {why}", rate, best)
    extra = _loss(current_steps, measured, rate) / _loss(best, measured, rate) - 1
    if best == current_steps or extra <= worth_ratio:
        return Decision(current_steps, False, f"stays at {current_steps} steps: {best} would win {extra:.1%}", rate, best)
    return Decision(best, True, f"{current_steps} -> {best} steps, staying loses {extra:.1%} more: {because}", rate, best)


def _least_steps(measured: Measured, max_overhead_ratio: float) -> tuple[int, str]:
    by_cap = math.ceil(measured.stall_s / max_overhead_ratio / measured.step_s - 1e-9)
    by_drain = math.ceil(measured.drain_s / measured.step_s - 1e-9)
    if by_drain >= max(by_cap, 2):
        return by_drain, f"a drain takes {format_seconds(measured.drain_s)}"
    return max(1, by_cap), f"the overhead cap of {max_overhead_ratio:.2%} allows no less"


def _better_of(wanted_s: float, measured: Measured, rate: Rate) -> int:
    """The better of the two whole numbers of steps around the optimum."""
    below = max(1, math.floor(wanted_s / measured.step_s))
    return min((below, below + 1), key=lambda steps: _loss(steps, measured, rate))


def _loss(steps: int, measured: Measured, rate: Rate) -> float:
    """What saving and redo cost at an interval: the exact form without the restarts, which no interval changes."""
    kept = exact_ettr(
        interval_s=steps * measured.step_s, stall_s=measured.stall_s, mtti_s=1 / rate.mean_per_s, restart_s=0.0
    )
    return 1 - kept
