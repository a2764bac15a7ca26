"""One interval of a running job: measured costs and counted failures in, an interval in whole steps and its reason out.

Owns:      the cap on overhead and the hysteresis, for one tier. Both tiers of a job together are in `running.py`.
Promises:  pure: the same facts give the same decision on every rank. The overhead cap is not exceeded, the drain not
           outrun; apart from these two the interval changes only when staying costs noticeably more.
Relies on: the caller measuring (stall, drain, step) and counting, and making all ranks change at one step.
Never:     keeps state between calls, reads a clock, or moves for noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hinan.core.units import format_seconds
from hinan.plan.intervals.formulas import exact_ettr, exact_interval_s
from hinan.plan.model.checks import not_negative, positive, ratio
from hinan.plan.observed.posterior import Prior, Rate, posterior

MAX_OVERHEAD_RATIO = 0.05
WORTH_RATIO = 0.1


@dataclass(frozen=True)
class Measured:
    """What the job knows about one tier. Durations are medians over the recent past [s]."""

    step_s: float
    stall_s: float
    """Training time that one save costs; 0 if it was measured and is below what the clock tells."""
    drain_s: float
    failures: int
    """Failures that the tier in question answered, since the run began, over all attempts."""
    observed_s: float
    """Time over which they were counted."""

    def __post_init__(self) -> None:
        positive(step_s=self.step_s)
        not_negative(
            stall_s=self.stall_s, drain_s=self.drain_s, observed_s=self.observed_s, failures=self.failures
        )  # fmt: skip


@dataclass(frozen=True)
class Words:
    """How a decision names what it rests on."""

    cost: str = "stall {stall}"
    failure: str = "a failure"
    at_least: str = "nothing is saved more often"


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
    max_overhead_ratio: float = MAX_OVERHEAD_RATIO,
    worth_ratio: float = WORTH_RATIO,
    taken_from_steps: int = 1,
    words: Words = Words(),
) -> Decision:
    """The interval to use from the next agreed step on.

    Args:
        current_steps: interval in use; None at the start.
        max_overhead_ratio: stall per training time, a hard limit.
        worth_ratio: change only if staying loses this much more, relative to the loss at the best interval.
        taken_from_steps: interval of the saves that these are taken from: theirs is a whole multiple of it, whichever of
            the two around the optimum loses less.
    Raises:
        ConfigError: a measurement that cannot be.
    """
    ratio(max_overhead_ratio=max_overhead_ratio)
    positive(max_overhead_ratio=max_overhead_ratio, taken_from_steps=taken_from_steps)
    not_negative(worth_ratio=worth_ratio)
    rate = posterior(prior, failures=measured.failures, observed_s=measured.observed_s)
    wanted_s = exact_interval_s(stall_s=measured.stall_s, mtti_s=1 / rate.mean_per_s) if measured.stall_s else 0.0
    unit = taken_from_steps
    least_steps, why = _least_steps(measured, max_overhead_ratio, unit, words)
    best = max(_better_of(wanted_s / measured.step_s, unit, measured, rate), least_steps)
    because = _because(measured, rate, words)
    is_bound = best == least_steps and best * measured.step_s > wanted_s + measured.step_s
    if is_bound or (current_steps is not None and current_steps < least_steps):
        because = f"{why}; {because}"
    if current_steps is None:
        return Decision(best, True, because, rate, best)
    was = f"was {current_steps} {'step' if current_steps == 1 else 'steps'}"
    if current_steps < least_steps:
        return Decision(best, True, f"{was}: {because}", rate, best)
    held = current_steps if current_steps % unit == 0 else _better_of(current_steps, unit, measured, rate)
    held = max(held, least_steps)
    moved = held != current_steps
    if moved:
        because = f"{was}, no multiple of {unit}: {because}"
    at_best, at_held = _loss(best, measured, rate), _loss(held, measured, rate)
    extra = at_held / at_best - 1 if at_best > 0 else 0.0
    if best == held:
        return Decision(best, moved, because, rate, best)
    if extra <= worth_ratio:
        return Decision(held, moved, f"{because}; {best} steps would lose only {extra:.1%} less", rate, best)
    return Decision(best, True, f"{was}, staying loses {extra:.1%} more: {because}", rate, best)


def _because(measured: Measured, rate: Rate, words: Words) -> str:
    cost = words.cost.format(stall=format_seconds(measured.stall_s), drain=format_seconds(measured.drain_s))
    return (
        f"{cost}, {words.failure} every {format_seconds(1 / rate.mean_per_s)} "
        f"({measured.failures} seen in {format_seconds(measured.observed_s)})"
    )


def _least_steps(measured: Measured, max_overhead_ratio: float, unit: int, words: Words) -> tuple[int, str]:
    """The hard floor in whole units, and which of the three sets it."""
    by_cap = math.ceil(measured.stall_s / max_overhead_ratio / measured.step_s - 1e-9)
    by_drain = math.ceil(measured.drain_s / measured.step_s - 1e-9)
    least, why = max(
        (max(1, by_cap), f"the overhead cap leaves it {max_overhead_ratio:.2%} of the time"),
        (by_drain, f"a drain takes {format_seconds(measured.drain_s)}, and two must not overlap"),
        (unit, words.at_least),
        key=lambda floor: floor[0],
    )
    return -(-least // unit) * unit, why


def _better_of(wanted_steps: float, unit: int, measured: Measured, rate: Rate) -> int:
    """The better of the two whole numbers of units around so many steps, in steps."""
    below = max(1, math.floor(wanted_steps / unit)) * unit
    return min((below, below + unit), key=lambda steps: _loss(steps, measured, rate))


def _loss(steps: int, measured: Measured, rate: Rate) -> float:
    """What saving and redo cost at an interval: the exact form without the restarts, which no interval changes."""
    kept = exact_ettr(
        interval_s=steps * measured.step_s, stall_s=measured.stall_s, mtti_s=1 / rate.mean_per_s, restart_s=0.0
    )
    return 1 - kept
