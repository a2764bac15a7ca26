"""Intervals of all levels found together: first order to rank, the exact form to decide, whole numbers throughout.

Owns:      the limits of the search, and what is said where they contradict each other. `solve` takes levels with bounds,
           gives a nested pattern; the search in whole numbers is `beam.py` and `whole.py`.
Promises:  saves of level k never follow each other faster than its drain; redo limits and the stall budget hold; the
           answer is the best of the exact form in whole steps and whole multiples that an enumeration ranked to first order
           and a climb over neighbours find: tests find no better one among all patterns. Deterministic.
Never:     returns a pattern that breaks a bound: it raises Infeasible, with the nearest bounds that work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from hinan.plan.intervals.first_order import first_order_intervals_s, stall_price, stall_ratio
from hinan.plan.intervals.levels import Cause, Level, Pattern, check_levels
from hinan.plan.intervals.space import Bounds, Space
from hinan.plan.intervals.whole import best_pattern
from hinan.plan.model.checks import Infeasible, percent

_TINY = 1e-9


def solve(levels: Sequence[Level], bounds: Bounds) -> Pattern:
    """The best nested pattern within the bounds.

    Raises:
        Infeasible: the redo limit is below the drain, or the stall budget cannot be kept within the redo limits.
        ConfigError: no level, or nothing ever fails.
    """
    return _solved(tuple(levels), bounds)


@lru_cache(maxsize=256)
def _solved(levels: tuple[Level, ...], bounds: Bounds) -> Pattern:
    """Kept: one answer asks for the same levels again, for each way out of HBM and each knob that does not move them."""
    check_levels(levels)
    least, most = _ranges(levels, bounds)
    _check_stall_budget(levels, most, bounds)
    space = Space(tuple(_merged(level) for level in levels), bounds, np.array(least), np.array(most))
    best = best_pattern(space, stall_price(levels, bounds.max_stall_ratio, least, most))
    if best is None:
        raise _no_whole_numbers(space, unrounded_intervals_s(levels, bounds))
    return best


def unrounded_intervals_s(levels: Sequence[Level], bounds: Bounds) -> list[float]:
    """First-order optimum within the bounds, before whole steps and whole multiples [s per level].

    These never shrink when every failure becomes rarer; whole multiples may (docs/design/planner.md).
    Raises: as `solve`.
    """
    check_levels(levels)
    least, most = _ranges(levels, bounds)
    _check_stall_budget(levels, most, bounds)
    return first_order_intervals_s(levels, bounds.max_stall_ratio, least, most)


def _merged(level: Level) -> Level:
    """The level with one cause for each lag, of the same rate and mean restart: enough for the search, and faster.

    How restarts spread around their mean moves the kept share, and hardly the intervals.
    """
    causes = []
    for lag_s in sorted({cause.lag_s for cause in level.causes if cause.per_s > 0}):
        same = [cause for cause in level.causes if cause.lag_s == lag_s]
        per_s = sum(cause.per_s for cause in same)
        restart_s = sum(cause.per_s * cause.restart_s for cause in same) / per_s
        causes.append(Cause(f"lag of {lag_s:g} s", per_s, restart_s, lag_s))
    return replace(level, causes=tuple(causes))


def _ranges(levels: Sequence[Level], bounds: Bounds) -> tuple[list[float], list[float]]:
    """Least and most interval of each level once nesting is taken into account."""
    least = [max(level.least_interval_s, bounds.quantum_s or 0.0, _TINY) for level in levels]
    most = [level.most_interval_s for level in levels]
    if bounds.fixed_first_s is not None:
        _check_fixed(levels[0], bounds.fixed_first_s, least[0], bounds.quantum_s)
        least[0] = most[0] = bounds.fixed_first_s
    for k in range(1, len(levels)):
        least[k] = max(least[k], least[k - 1])
    for k in range(len(levels) - 2, -1, -1):
        most[k] = min(most[k], most[k + 1])
    for level, low, high in zip(levels, least, most, strict=True):
        if low > high * (1 + 1e-12):
            raise Infeasible(
                [f"tier {level.name} can save every {low:.4g} s at most, the redo limit asks for {high:.4g} s"],
                {},
                missed_by=low / high if high > 0 else math.inf,
            )
    return least, most


def _check_fixed(first: Level, fixed_s: float, least_s: float, quantum_s: float | None) -> None:
    if fixed_s >= least_s * (1 - 1e-9):
        return
    nearest_s = math.ceil(least_s / quantum_s - 1e-9) * quantum_s if quantum_s else least_s * 1.0001
    raise Infeasible(
        [f"a save to {first.name} every {fixed_s:.4g} s: its copy and drain allow one every {least_s:.4g} s at most"],
        {"interval": f"{nearest_s:.9g}s"},
        missed_by=least_s / fixed_s,
    )


def whole_steps(interval_s: float, step_s: float) -> int:
    """The number of steps nearest to an interval, at least one."""
    return max(1, round(interval_s / step_s))


def _check_stall_budget(levels: Sequence[Level], most: Sequence[float], bounds: Bounds) -> None:
    if bounds.max_stall_ratio is None:
        return
    lowest = sum(level.stall_s / high for level, high in zip(levels, most, strict=True) if math.isfinite(high))
    if lowest > bounds.max_stall_ratio:
        raise Infeasible(
            [
                f"{_longest_set_by(levels, bounds)} asks for saves that cost at least {percent(lowest)} of the time, "
                f"{percent(bounds.max_stall_ratio)} are allowed"
            ],
            _stall_allowed(lowest * 1.02),
            missed_by=lowest / bounds.max_stall_ratio,
        )


def _longest_set_by(levels: Sequence[Level], bounds: Bounds) -> str:
    """Who forbids longer intervals."""
    limited = [level for level in levels if math.isfinite(level.most_interval_s)]
    who = [] if bounds.fixed_first_s is None else [f"the interval given ({bounds.fixed_first_s:.4g} s)"]
    who += ["the redo limit"] * any(level.causes for level in limited)
    who += [f"a commit at least every {level.most_interval_s:.4g} s" for level in limited if not level.causes]
    return " with ".join(who)


def _stall_allowed(ratio: float) -> dict[str, str]:
    """The stall budget that would do; none where even all of the time would not: then the other limit has to give."""
    return {"max-stall": f"{ratio * 100:.4g}%"} if ratio < 1 else {}


def _no_whole_numbers(space: Space, unrounded_s: Sequence[float]) -> Infeasible:
    """Rounding to whole steps broke a bound: the stall budget that would do with the longest intervals allowed."""
    quantum, most = space.bounds.quantum_s, space.most_s
    first = most[0] if math.isfinite(most[0]) else unrounded_s[0]
    if quantum is not None:
        first = max(1, math.floor(first / quantum + 1e-9)) * quantum
    longest = [first]
    for high, tau_s in zip(most[1:], unrounded_s[1:], strict=True):
        aim_s = high if math.isfinite(high) else max(tau_s, longest[-1])
        longest.append(max(1, math.floor(aim_s / longest[-1] + 1e-9)) * longest[-1])
    needed = stall_ratio(space.levels, longest)
    nearest = _stall_allowed(needed * 1.05) if space.bounds.max_stall_ratio is not None else {}
    return Infeasible([f"no whole number of {_counted(space.bounds)} keeps {_what_binds(space)}"], nearest)


def _counted(bounds: Bounds) -> str:
    if bounds.fixed_first_s is not None:
        return f"intervals of {bounds.fixed_first_s:.4g} s"
    return "steps" if bounds.quantum_s is None else f"steps of {bounds.quantum_s:.4g} s"


def _what_binds(space: Space) -> str:
    """What whole numbers meet: copies and drains always, the others if they were asked for."""
    asked = ["the redo limit"] * bool(np.isfinite(space.most_s).any())
    asked += ["the stall budget"] * (space.bounds.max_stall_ratio is not None)
    return " and ".join([*asked, "what copies and drains take"])
