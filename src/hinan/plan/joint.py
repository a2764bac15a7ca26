"""Intervals of all levels found together: first order to start, the exact form to finish, whole numbers at the end.

Owns:      the search. `solve` takes levels with bounds, gives a nested pattern.
Promises:  saves of level k never follow each other faster than its drain; redo limits and the stall budget hold; the
           answer is a local optimum of the exact form in whole steps and whole multiples. Deterministic.
Relies on: the loss being smooth and single-humped in every interval (it is, for exponential failures).
Never:     returns a pattern that breaks a bound: it raises Infeasible, with the nearest bounds that work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hinan.plan.checks import Infeasible
from hinan.plan.exact import exact_ettr
from hinan.plan.first_order import first_order_intervals_s, first_order_loss, stall_ratio
from hinan.plan.levels import Cause, Level, Pattern, check_levels

_TINY = 1e-9
_MAX_MULTIPLE = 1_000_000


@dataclass(frozen=True)
class Bounds:
    """What the search must respect beside the levels' own limits."""

    quantum_s: float | None = None
    """Training step: level-1 intervals are whole multiples of it; None: any length."""
    max_stall_ratio: float | None = None
    fixed_first_s: float | None = None
    """Judge this level-1 interval: only the others are searched."""


def solve(levels: Sequence[Level], bounds: Bounds) -> Pattern:
    """The best nested pattern within the bounds.

    Raises:
        Infeasible: the redo limit is below the drain, or the stall budget cannot be kept within the redo limits.
        ConfigError: no level, or nothing ever fails.
    """
    least, most = _ranges(levels, bounds)
    start = unrounded_intervals_s(levels, bounds)
    return _refine([_merged(level) for level in levels], bounds, start, least, most)


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
            )
    return least, most


def _check_fixed(first: Level, fixed_s: float, least_s: float, quantum_s: float | None) -> None:
    if fixed_s >= least_s * (1 - 1e-9):
        return
    nearest_s = math.ceil(least_s / quantum_s - 1e-9) * quantum_s if quantum_s else least_s * 1.0001
    raise Infeasible(
        [f"a save to {first.name} every {fixed_s:.4g} s: its copy and drain allow one every {least_s:.4g} s at most"],
        {"interval": f"{nearest_s:.9g}s"},
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
                f"{_longest_set_by(levels, bounds)} asks for saves that cost at least {_percent(lowest)} of the time, "
                f"{_percent(bounds.max_stall_ratio)} are allowed"
            ],
            _stall_allowed(lowest * 1.02),
        )


def _percent(ratio: float) -> str:
    """As many digits as a small share needs."""
    return f"{float(f'{ratio * 100:.3g}'):.10f}".rstrip("0").rstrip(".") + "%"


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


def _refine(
    levels: Sequence[Level], bounds: Bounds, start: Sequence[float], least: Sequence[float], most: Sequence[float]
) -> Pattern:
    """Pattern search on the exact form: intervals by factors that shrink until nothing moves, then by ones.

    Each interval alone, and each against another: along a stall budget only two together can move.
    """
    horizon = 10 / min(level.per_s for level in levels if level.per_s > 0)
    aims = [tau if math.isfinite(tau) else horizon for tau in start]
    seen: dict[Pattern, tuple[float, float]] = {}  # many trials snap to the same whole numbers

    def value(pattern: Pattern) -> tuple[float, float]:
        if pattern not in seen:
            seen[pattern] = _value(levels, pattern, bounds, least, most)
        return seen[pattern]

    best = _snap(aims, bounds, least, most)
    factor, last = 1.6, 1.0003 if bounds.quantum_s else 1.000002
    while factor > last:
        moved = False
        for scales in _directions(len(aims), factor):
            trial_aims = [aim * scale for aim, scale in zip(aims, scales, strict=True)]
            trial = _snap(trial_aims, bounds, least, most)
            if value(trial) > value(best):
                aims, best, moved = trial_aims, trial, True
        if not moved:
            factor = math.sqrt(factor)
    best = _by_ones(best, value, bounds)
    if value(best)[0] < 0:
        raise _no_whole_numbers(levels, best, bounds, least, most)
    return best


def _directions(count: int, factor: float) -> list[list[float]]:
    """Factors on the intervals: one longer or shorter, or one longer and another shorter."""
    alone = [[scale if k == j else 1.0 for k in range(count)] for j in range(count) for scale in (factor, 1 / factor)]
    pairs = [
        [factor if k == up else 1 / factor if k == down else 1.0 for k in range(count)]
        for up in range(count)
        for down in range(count)
        if up != down
    ]
    return alone + pairs


def _snap(aims: Sequence[float], bounds: Bounds, least: Sequence[float], most: Sequence[float]) -> Pattern:
    """The nested pattern nearest to the intervals aimed at."""
    first = min(max(aims[0], least[0]), most[0])
    if bounds.fixed_first_s is None and bounds.quantum_s is not None:
        steps = max(1, round(first / bounds.quantum_s))
        steps = max(steps, math.ceil(least[0] / bounds.quantum_s - 1e-9))
        while steps > 1 and steps * bounds.quantum_s > most[0] * (1 + 1e-12):
            steps -= 1
        first = steps * bounds.quantum_s
    multiples, below = [], first
    for k in range(1, len(aims)):
        wanted = max(1, round(min(max(aims[k], least[k]), most[k]) / below))
        wanted = max(wanted, math.ceil(least[k] / below - 1e-9))
        if wanted * below > most[k] * (1 + 1e-12) and wanted > 1:
            wanted = max(1, math.floor(most[k] / below + 1e-9))
        multiples.append(min(wanted, _MAX_MULTIPLE))
        below *= multiples[-1]
    return Pattern(first, tuple(multiples))


def _excess(
    levels: Sequence[Level], pattern: Pattern, bounds: Bounds, least: Sequence[float], most: Sequence[float]
) -> float:
    """By how much the pattern breaks its bounds, as a sum of shares of them [0-]; 0: allowed."""
    intervals = pattern.intervals_s()
    excess = 0.0
    for low, tau, high in zip(least, intervals, most, strict=True):
        if not low * (1 - 1e-9) <= tau <= high * (1 + 1e-9):
            excess += max(low / tau, tau / high) - 1
    limit = bounds.max_stall_ratio
    if limit is not None and (ratio := stall_ratio(levels, intervals)) > limit * (1 + 1e-9):
        excess += ratio / limit - 1
    return excess


def _value(
    levels: Sequence[Level], pattern: Pattern, bounds: Bounds, least: Sequence[float], most: Sequence[float]
) -> tuple[float, float]:
    """What the search makes large: first the bounds are kept, then the exact share of kept training counts. Where a
    float cannot hold it: minus the first-order loss, so that the search still knows which way is better."""
    excess = _excess(levels, pattern, bounds, least, most)
    if excess > 0:
        return -excess, 0.0
    return 0.0, exact_ettr(levels, pattern) or -first_order_loss(levels, pattern.intervals_s())


def _by_ones(best: Pattern, value: Callable[[Pattern], tuple[float, float]], bounds: Bounds) -> Pattern:
    """Improves by single steps and single multiples until no neighbour is better."""
    for _ in range(200):
        better = max(_neighbours(best, bounds), key=value, default=best)
        if value(better) <= value(best):
            break
        best = better
    return best


def _neighbours(pattern: Pattern, bounds: Bounds) -> list[Pattern]:
    """One step or one multiple more or less: all slower intervals move along, or stay nearly where they are."""
    quantum = bounds.quantum_s if bounds.fixed_first_s is None else None
    unit = pattern.work_s if quantum is None else quantum
    counts = [round(pattern.work_s / unit), *pattern.multiples]
    found = []
    for k in range(1 if quantum is None else 0, len(counts)):
        for count in (counts[k] - 1, counts[k] + 1):
            if count < 1:
                continue
            moved = [*counts[:k], count, *counts[k + 1 :]]
            found.append(moved)
            if k + 1 < len(counts):
                stays = counts[k] * counts[k + 1] / count
                found += [
                    [*moved[: k + 1], near, *moved[k + 2 :]] for near in (math.floor(stays), math.ceil(stays)) if near >= 1
                ]
    return [Pattern(first * unit, tuple(multiples)) for first, *multiples in found]


def _no_whole_numbers(
    levels: Sequence[Level], pattern: Pattern, bounds: Bounds, least: Sequence[float], most: Sequence[float]
) -> Infeasible:
    """Rounding to whole steps broke a bound: the stall budget that would do with the longest intervals allowed."""
    quantum = bounds.quantum_s
    first = most[0] if math.isfinite(most[0]) else pattern.work_s
    if quantum is not None:
        first = max(1, math.floor(first / quantum + 1e-9)) * quantum
    longest = [high if math.isfinite(high) else tau for high, tau in zip(most, pattern.intervals_s(), strict=True)][1:]
    needed = stall_ratio(levels, _snap([first, *longest], bounds, least, [*most]).intervals_s())
    nearest = _stall_allowed(needed * 1.05) if bounds.max_stall_ratio is not None else {}
    return Infeasible(["no whole number of steps keeps both the redo limit and the stall budget"], nearest)
