"""The common ground of the witnesses: levels of saving, what each costs, which failures each answers.

Owns:      the values `Cause`, `Level`, `Pattern`; nothing that computes an expectation.
Promises:  immutable, checked on creation; levels are ordered fastest first, patterns are nested: every save of level k
           happens at a save of level k-1.
Never:     knows tiers of a real machine; `design.py` translates a scenario into levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hinan.core.errors import ConfigError
from hinan.plan.model.checks import not_negative, positive


@dataclass(frozen=True)
class Cause:
    """One kind of failure as a level sees it."""

    name: str
    per_s: float
    """Failures per second of the whole job."""
    restart_s: float
    """From the failure to the first new step: detect, reschedule, load, init [s]. Redo is not part of it."""
    lag_s: float = 0.0
    """How old the newest usable copy is at least: drain time, or in the mean what silent corruption goes unseen [s]."""

    def __post_init__(self) -> None:
        not_negative(per_s=self.per_s, restart_s=self.restart_s, lag_s=self.lag_s)


@dataclass(frozen=True)
class Level:
    """One tier in use: what a save costs the training, and the failures it is the first to answer."""

    name: str
    stall_s: float
    """Training time one save takes: the stall, and the slow-down while draining (i x D) [s]."""
    causes: tuple[Cause, ...] = ()
    least_interval_s: float = 0.0
    """Saves cannot follow each other faster than this: the drain [s]."""
    most_interval_s: float = float("inf")
    """The designer's limit on redo, as an interval [s]."""

    def __post_init__(self) -> None:
        not_negative(stall_s=self.stall_s, least_interval_s=self.least_interval_s)

    @property
    def per_s(self) -> float:
        """Failures per second that this level answers."""
        return sum(cause.per_s for cause in self.causes)


@dataclass(frozen=True)
class Pattern:
    """Nested intervals: training time between saves of level 1, and how many level k-1 saves make one of level k."""

    work_s: float
    multiples: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        positive(work_s=self.work_s)
        if any(multiple < 1 for multiple in self.multiples):
            raise ConfigError(f"multiples are whole numbers from 1, not {self.multiples}")

    def intervals_s(self) -> tuple[float, ...]:
        """Training time between two saves of each level [s]."""
        intervals = [self.work_s]
        for multiple in self.multiples:
            intervals.append(intervals[-1] * multiple)
        return tuple(intervals)


def check_levels(levels: Sequence[Level]) -> float:
    """Failures per second of all levels together.

    Raises:
        ConfigError: no level, or no failure anywhere (then saving has no optimum: the answer is "never").
    """
    total = sum(level.per_s for level in levels)
    if not levels or total <= 0:
        raise ConfigError("without failures there is nothing to plan: give rates or an MTTI")
    return total
