"""When to evacuate and when to commit, as a value that every rank evaluates alike (rule M2).

A change is proposed by rank 0 for a step far enough ahead. It counts only if every rank acknowledged it before that step
and the *verdict*, a fact that is published once and never changes, says accepted. A rank that reaches the step without a
verdict publishes "rejected" itself; whichever verdict stands first binds all. No rank ever triggers by its own clock.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from hinan.core.errors import ConfigError
from hinan.core.units import parse_seconds

AHEAD_EVACUATIONS = 3
"""A change takes effect this many evacuations ahead: one to be seen, one to be acknowledged, one to be judged."""

WARM_UP_STEPS = 10
"""Until step times are measured, a cadence asked for in seconds starts with this many steps."""


@dataclass(frozen=True)
class Cadence:
    """Evacuate each `every_steps` steps from `from_step` on; commit each `commit_multiple`-th of those."""

    from_step: int
    every_steps: int
    commit_multiple: int

    def due(self, step: int) -> bool:
        """Whether the state after `step` finished steps is evacuated."""
        return step > 0 and step % self.every_steps == 0

    def commit_at(self, step: int) -> int:
        """The newest step at or below `step` that is to be drained to the target and committed; 0 if none is yet."""
        return step - step % (self.every_steps * self.commit_multiple)


@dataclass(frozen=True)
class Asked:
    """What the user asked for: exactly one of steps, seconds, or (both None) automatic."""

    steps: int | None = None
    seconds: float | None = None

    @property
    def is_automatic(self) -> bool:
        return self.steps is None and self.seconds is None


def parse_every(value: object, name: str) -> Asked:
    """A cadence as the user writes it: 50, "30s" or "auto".

    Raises:
        ConfigError: names the argument, the value and the three forms.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return Asked(steps=value)
    if value == "auto":
        return Asked()
    if isinstance(value, str) and (seconds := parse_seconds(value)) > 0:
        return Asked(seconds=seconds)
    raise ConfigError(f'{name}={value!r}: use a number of steps (50), a duration ("30s") or "auto"')


def steps_for(interval_s: float, step_s: float) -> int:
    """Whole steps nearest to an interval, at least 1."""
    return max(1, round(interval_s / step_s))


def fixed_steps(asked: Asked, step_s: float | None) -> int | None:
    """Steps that a request stands for; None for "auto", and for seconds before a step's time is known."""
    if asked.seconds is not None:
        return steps_for(asked.seconds, step_s) if step_s else None
    return asked.steps


def wanted_cadence(
    every: Asked,
    commit: Asked,
    step_s: float | None,
    *,
    auto_every_steps: int | None = None,
    auto_commit_steps: int | None = None,
) -> tuple[int, int]:
    """(every_steps, commit_multiple) that the request, a step's time and what "auto" was decided to be call for.

    A commit falls on an evacuation, so its interval is rounded up to a multiple of the evacuations' interval.
    """
    every_steps = fixed_steps(every, step_s) or auto_every_steps or WARM_UP_STEPS
    commit_steps = fixed_steps(commit, step_s) or auto_commit_steps or every_steps
    return every_steps, max(1, math.ceil(commit_steps / every_steps))


def is_worth_changing(now: Cadence, wanted: tuple[int, int], every: Asked, commit: Asked) -> bool:
    """Hysteresis for what was asked for in seconds: below a fifth it is noise. "auto" is weighed by who decides it."""

    def far(asked: Asked, a: int, b: int) -> bool:
        return asked.seconds is not None and abs(a - b) > 0.2 * max(a, b)

    return far(every, now.every_steps, wanted[0]) or far(
        commit, now.every_steps * now.commit_multiple, wanted[0] * wanted[1]
    )  # fmt: skip


def effective_step(now: Cadence, step: int) -> int:
    """First step of a cadence proposed after `step`: far enough ahead that every rank evacuates, and so looks, before."""
    return step + AHEAD_EVACUATIONS * now.every_steps


def may_acknowledge(proposed: Cadence, step: int) -> bool:
    """Whether a rank that has finished `step` steps may still promise to look at the verdict at `from_step`."""
    return step < proposed.from_step


def verdict(world_size: int, acknowledged: Collection[int]) -> bool:
    """Whether rank 0 may publish "accepted"."""
    return set(acknowledged) == set(range(world_size))
