"""The second witness: the expected share of kept training in exact exponential form, for nested levels.

Owns:      the recursion over levels, on many patterns at once: numbers that depend on the pattern are rows of an array, one
           column per pattern. The search asks for hundreds, and a row costs hardly more than one number.
Promises:  for one level it is Daly's complete cost; for several it is exact for nested saves whose copies are usable at
           once. With a lag (drain, detection latency) a part of a faster level's block counts as that share of it:
           too little to be seen by 200 random simulations, also with lags of many blocks.
Relies on: failures being exponential, independent, and allowed at any time, restarts included.
Never:     simulates; imports nothing of the Monte Carlo.

Causes of one level with different lags do not come back to the same save: the level is taken as one level for each lag,
the shorter lag first, of which only the first pays the save.

A block of level k is m_k blocks of level k-1 and the save of level k. A failure answered by level k sends it back to
its own start; a failure that needs a slower level leaves the block. So a block is three things: the time until it is
left (`time_s`), the chance that it was finished (`done`), and the chances of leaving by each slower level's causes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hinan.core.errors import ConfigError
from hinan.plan.intervals.levels import Level, Pattern, check_levels

Row = NDArray[np.float64]
"""One number per pattern (or one for all of them)."""


@dataclass(frozen=True)
class _Passage:
    """Something that takes time and ends done, or by a cause (row of `ends`)."""

    time_s: Row
    done: Row
    ends: Row
    """Causes x patterns."""


@dataclass(frozen=True)
class _Rates:
    """All causes of all levels in one column."""

    per_s: Row
    level: Row
    restart_s: tuple[float, ...]
    lag_s: tuple[float, ...]
    total_per_s: float


@dataclass(frozen=True)
class _Below:
    """A finished level, as the slower ones see it."""

    block: _Passage
    wall_s: Row
    lag_s: float


def exact_ettr(levels: Sequence[Level], pattern: Pattern) -> float:
    """Share of wall time that is training kept [0-1]; 0 where a float cannot hold the expected time.

    Raises:
        ConfigError: levels and pattern do not fit each other, or nothing ever fails.
    Source: Daly 2006 for one level; Benoit et al. 2017 for the nesting; derivation in docs/design/planner.md.
    """
    if len(pattern.multiples) != len(levels) - 1:
        raise ConfigError(f"{len(levels)} levels need {len(levels) - 1} multiples, not {len(pattern.multiples)}")
    return float(exact_ettrs(levels, np.array([[pattern.work_s, *map(float, pattern.multiples)]]))[0])


def exact_ettrs(levels: Sequence[Level], patterns: Row) -> Row:
    """`exact_ettr` of many patterns: in each row the first interval [s] and the multiples (fractions are allowed)."""
    levels, multiples = _by_lag(levels, list(patterns.T[1:]))
    rates = _rates(levels)
    wall_s = patterns[:, 0] + levels[0].stall_s
    below: list[_Below] = []
    with np.errstate(all="ignore"):
        block = _closed(_segment(wall_s, rates), below, 0, rates)
        for index, multiple in enumerate(multiples, start=1):
            below.append(_Below(block, wall_s, _lag_s(levels[index - 1])))
            attempt = _then(_repeat(block, multiple), _save(levels[index].stall_s, index, rates))
            wall_s = wall_s * multiple + levels[index].stall_s
            block = _closed(attempt, below, index, rates)
        kept = patterns.prod(axis=1) / block.time_s
    return np.where(np.isfinite(kept) & (kept > 0), kept, 0.0)


def _by_lag(levels: Sequence[Level], multiples: Sequence[Row]) -> tuple[list[Level], list[Row]]:
    """Levels whose causes all have one lag, and the multiples between them."""
    apart: list[Level] = []
    between: list[Row] = []
    one = np.ones(1)
    for level, multiple in zip(levels, (one, *multiples), strict=True):
        lags = sorted({cause.lag_s for cause in level.causes if cause.per_s > 0}) or [0.0]
        for at, lag_s in enumerate(lags):
            causes = tuple(cause for cause in level.causes if cause.lag_s == lag_s)
            apart.append(Level(level.name, 0.0 if at else level.stall_s, causes))
            between.append(one if at else multiple)
    return apart, between[1:]


def _rates(levels: Sequence[Level]) -> _Rates:
    total = check_levels(levels)
    rows = [(c, i) for i, level in enumerate(levels) for c in level.causes if c.per_s > 0]
    return _Rates(
        np.array([[c.per_s] for c, _ in rows]),
        np.array([[i] for _, i in rows]),
        tuple(c.restart_s for c, _ in rows),
        tuple(c.lag_s for c, _ in rows),
        total,
    )


def _segment(length_s: Row, rates: _Rates) -> _Passage:
    """Unbroken time: passed, or ended by whichever cause strikes first."""
    struck = -np.expm1(-rates.total_per_s * length_s)
    share = struck / rates.total_per_s
    return _Passage(share, 1 - struck, rates.per_s * share)


def _repeat(block: _Passage, times: Row) -> _Passage:
    """`times` blocks in a row (a fraction counts as that share of one)."""
    done = block.done**times
    missing = 1 - block.done
    few = -np.expm1(times * np.log1p(-missing)) / missing
    entered = np.where(missing > 0.5, (1 - done) / missing, np.where(missing < 1e-14, times, few))
    return _Passage(block.time_s * entered, done, block.ends * entered)


def _then(first: _Passage, second: _Passage) -> _Passage:
    return _Passage(
        first.time_s + first.done * second.time_s, first.done * second.done, first.ends + first.done * second.ends
    )


def _save(length_s: float, level: int, rates: _Rates) -> _Passage:
    """The save of `level`: failures of faster levels repeat only the save, for its start was just saved by them."""
    once = _segment(np.array([length_s]), rates)
    if length_s == 0:
        return once
    time_s, back, ends = once.time_s, np.zeros(1), np.where(rates.level >= level, once.ends, 0.0)
    for i in [i for i, at in enumerate(rates.level[:, 0]) if at < level]:
        recovery = _restart(i, level, rates)
        time_s = time_s + once.ends[i] * recovery.time_s
        back = back + once.ends[i] * recovery.done
        ends = ends + once.ends[i] * recovery.ends
    return _Passage(time_s / (1 - back), once.done / (1 - back), ends / (1 - back))


def _restart(cause: int, floor: int, rates: _Rates) -> _Passage:
    """The restart for a cause, seen from level `floor`: causes below it, or below the cause's own level, start it over."""
    once = _segment(np.array([rates.restart_s[cause]]), rates)
    again = rates.level < max(rates.level[cause, 0], floor)
    low = np.where(again, once.ends, 0.0).sum(axis=0)
    return _Passage(once.time_s / (1 - low), once.done / (1 - low), np.where(again, 0.0, once.ends) / (1 - low))


def _closed(attempt: _Passage, below: Sequence[_Below], level: int, rates: _Rates, *, lags: bool = True) -> _Passage:
    """Attempts at something on `level` until one is done or a slower level's cause strikes.

    A failure of the level's own causes costs its restart, the redo of its lag (unless `lags` is off: the copy gone back
    to is the start of the attempt itself), and then the attempt begins again.
    """
    own = [i for i, at in enumerate(rates.level[:, 0]) if at == level]
    if not own:
        return attempt
    time_s, ends = attempt.time_s, np.where(rates.level == level, 0.0, attempt.ends)
    for i, way in zip(own, _recoveries(own, below, level, rates, lags=lags), strict=True):
        time_s = time_s + attempt.ends[i] * way.time_s
        ends = ends + attempt.ends[i] * way.ends
    left = attempt.done + ends.sum(axis=0)  # what does not come back to the start; summed, for 1 - back would cancel
    return _Passage(time_s / left, attempt.done / left, ends / left)


def _recoveries(own: Sequence[int], below: Sequence[_Below], level: int, rates: _Rates, *, lags: bool) -> list[_Passage]:
    """For each own cause: restart, redo of the lag, back at the start. They may follow each other: a linear system
    with one unknown passage per cause, solved by elimination."""
    first = [_restart(i, level, rates) for i in own]
    redo_s = rates.lag_s[own[0]] if lags else 0.0  # one for all: levels are taken apart by lag
    if redo_s > 0:
        redone = _fresh(np.array([redo_s]), below, rates)
        first = [_then(way, redone) for way in first]
    elsewhere = rates.level != level
    cycles = [[(r == c) - way.ends[i] for c, i in enumerate(own)] for r, way in enumerate(first)]
    rows = [_Passage(way.time_s, way.done, np.where(elsewhere, way.ends, 0.0)) for way in first]
    for c in range(len(own)):
        rows[c], cycles[c] = _scaled(rows[c], 1 / cycles[c][c]), [value / cycles[c][c] for value in cycles[c]]
        for r in range(len(own)):
            if r != c:
                factor = cycles[r][c]
                rows[r] = _less(rows[r], _scaled(rows[c], factor))
                cycles[r] = [a - factor * b for a, b in zip(cycles[r], cycles[c], strict=True)]
    return rows


def _scaled(passage: _Passage, factor: Row) -> _Passage:
    return _Passage(passage.time_s * factor, passage.done * factor, passage.ends * factor)


def _less(passage: _Passage, other: _Passage) -> _Passage:
    return _Passage(passage.time_s - other.time_s, passage.done - other.done, passage.ends - other.ends)


def _fresh(length_s: Row, below: Sequence[_Below], rates: _Rates) -> _Passage:
    """Track passed again right after coming back to a save of a slower level.

    That save serves the faster levels too: their failures come back to it until they have a newer copy of their own.
    """
    if not below:
        return _segment(length_s, rates)
    last = below[-1]
    first_s = np.minimum(length_s, last.wall_s + last.lag_s)
    start = _closed(_fresh(first_s, below[:-1], rates), below[:-1], len(below) - 1, rates, lags=False)
    return _then(start, _repeat(last.block, (length_s - first_s) / last.wall_s))


def _lag_s(level: Level) -> float:
    return next((cause.lag_s for cause in level.causes if cause.per_s > 0), 0.0)
