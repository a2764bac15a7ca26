"""The second witness: the expected share of kept training in exact exponential form, for nested levels.

Owns:      the recursion over levels.
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

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hinan.core.errors import ConfigError
from hinan.plan.levels import Level, Pattern, check_levels


@dataclass(frozen=True)
class _Passage:
    """Something that takes time and ends done, or by a cause (index into all causes)."""

    time_s: float
    done: float
    ends: tuple[float, ...]


@dataclass(frozen=True)
class _Rates:
    """All causes of all levels in one row."""

    per_s: tuple[float, ...]
    level: tuple[int, ...]
    restart_s: tuple[float, ...]
    lag_s: tuple[float, ...]
    total_per_s: float


@dataclass(frozen=True)
class _Below:
    """A finished level, as the slower ones see it."""

    block: _Passage
    wall_s: float
    lag_s: float


def exact_ettr(levels: Sequence[Level], pattern: Pattern) -> float:
    """Share of wall time that is training kept [0-1]; 0 where a float cannot hold the expected time.

    Raises:
        ConfigError: levels and pattern do not fit each other, or nothing ever fails.
    Source: Daly 2006 for one level; Benoit et al. 2017 for the nesting; derivation in docs/design/planner.md.
    """
    if len(pattern.multiples) != len(levels) - 1:
        raise ConfigError(f"{len(levels)} levels need {len(levels) - 1} multiples, not {len(pattern.multiples)}")
    levels, multiples = _by_lag(levels, pattern.multiples)
    rates = _rates(levels)
    wall_s = pattern.work_s + levels[0].stall_s
    below: list[_Below] = []
    try:
        block = _closed(_segment(wall_s, rates), below, 0, rates)
        for index, multiple in enumerate(multiples, start=1):
            below.append(_Below(block, wall_s, _lag_s(levels[index - 1])))
            attempt = _then(_repeat(block, multiple), _save(levels[index].stall_s, index, rates))
            wall_s = wall_s * multiple + levels[index].stall_s
            block = _closed(attempt, below, index, rates)
    except (OverflowError, ZeroDivisionError):
        return 0.0
    work_s = pattern.intervals_s()[-1]
    return work_s / block.time_s if math.isfinite(block.time_s) and block.time_s > 0 else 0.0


def _by_lag(levels: Sequence[Level], multiples: Sequence[int]) -> tuple[list[Level], list[int]]:
    """Levels whose causes all have one lag, and the multiples between them."""
    apart: list[Level] = []
    between: list[int] = []
    for level, multiple in zip(levels, (0, *multiples), strict=True):
        lags = sorted({cause.lag_s for cause in level.causes if cause.per_s > 0}) or [0.0]
        for at, lag_s in enumerate(lags):
            causes = tuple(cause for cause in level.causes if cause.lag_s == lag_s)
            apart.append(Level(level.name, 0.0 if at else level.stall_s, causes))
            between.append(1 if at else multiple)
    return apart, between[1:]


def _rates(levels: Sequence[Level]) -> _Rates:
    total = check_levels(levels)
    rows = [(c, i) for i, level in enumerate(levels) for c in level.causes if c.per_s > 0]
    return _Rates(
        tuple(c.per_s for c, _ in rows),
        tuple(i for _, i in rows),
        tuple(c.restart_s for c, _ in rows),
        tuple(c.lag_s for c, _ in rows),
        total,
    )


def _segment(length_s: float, rates: _Rates) -> _Passage:
    """Unbroken time: passed, or ended by whichever cause strikes first."""
    struck = -math.expm1(-rates.total_per_s * length_s)
    share = struck / rates.total_per_s
    return _Passage(share, 1 - struck, tuple(per_s * share for per_s in rates.per_s))


def _repeat(block: _Passage, times: float) -> _Passage:
    """`times` blocks in a row (a fraction counts as that share of one)."""
    done = block.done**times
    missing = 1 - block.done
    if missing > 0.5:
        entered = (1 - done) / missing
    else:
        entered = times if missing < 1e-14 else -math.expm1(times * math.log1p(-missing)) / missing
    return _Passage(block.time_s * entered, done, tuple(end * entered for end in block.ends))


def _then(first: _Passage, second: _Passage) -> _Passage:
    ends = tuple(a + first.done * b for a, b in zip(first.ends, second.ends, strict=True))
    return _Passage(first.time_s + first.done * second.time_s, first.done * second.done, ends)


def _save(length_s: float, level: int, rates: _Rates) -> _Passage:
    """The save of `level`: failures of faster levels repeat only the save, for its start was just saved by them."""
    if length_s == 0:
        return _Passage(0.0, 1.0, (0.0,) * len(rates.per_s))
    once = _segment(length_s, rates)
    low = [i for i, at in enumerate(rates.level) if at < level]
    recoveries = {i: _restart(rates.restart_s[i], rates.level[i], level, rates) for i in low}
    back = sum(once.ends[i] * recoveries[i].done for i in low)
    time_s = once.time_s + sum(once.ends[i] * recoveries[i].time_s for i in low)
    ends = tuple(
        (once.ends[j] if at >= level else 0.0) + sum(once.ends[i] * recoveries[i].ends[j] for i in low)
        for j, at in enumerate(rates.level)
    )
    return _Passage(time_s / (1 - back), once.done / (1 - back), tuple(end / (1 - back) for end in ends))


def _restart(length_s: float, own: int, floor: int, rates: _Rates) -> _Passage:
    """A restart for a cause of level `own`, seen from level `floor`: causes below `floor` start it over."""
    once = _segment(length_s, rates)
    low = sum(end for end, at in zip(once.ends, rates.level, strict=True) if at < max(own, floor))
    ends = tuple(0.0 if at < max(own, floor) else end for end, at in zip(once.ends, rates.level, strict=True))
    return _Passage(once.time_s / (1 - low), once.done / (1 - low), tuple(end / (1 - low) for end in ends))


def _closed(attempt: _Passage, below: Sequence[_Below], level: int, rates: _Rates, *, lags: bool = True) -> _Passage:
    """Attempts at something on `level` until one is done or a slower level's cause strikes.

    A failure of the level's own causes costs its restart, the redo of its lag (unless `lags` is off: the copy gone back
    to is the start of the attempt itself), and then the attempt begins again.
    """
    own = [i for i, at in enumerate(rates.level) if at == level]
    if not own:
        return attempt
    ways = _recoveries(own, below, level, rates, lags=lags)
    time_s = attempt.time_s + sum(attempt.ends[i] * way.time_s for i, way in zip(own, ways, strict=True))
    ends = tuple(
        0.0 if j in own else attempt.ends[j] + sum(attempt.ends[i] * w.ends[j] for i, w in zip(own, ways, strict=True))
        for j in range(len(rates.per_s))
    )
    left = attempt.done + sum(ends)  # what does not come back to the start; summed, for 1 - back would cancel
    return _Passage(time_s / left, attempt.done / left, tuple(end / left for end in ends))


def _recoveries(own: Sequence[int], below: Sequence[_Below], level: int, rates: _Rates, *, lags: bool) -> list[_Passage]:
    """For each own cause: restart, redo of the lag, back at the start. They may follow each other: a linear system
    with one unknown passage per cause, solved by elimination."""
    first = []
    for i in own:
        way = _restart(rates.restart_s[i], level, level, rates)
        redo_s = rates.lag_s[i] if lags else 0.0
        first.append(_then(way, _fresh(redo_s, below, rates)) if redo_s > 0 else way)
    size = len(own)
    rows = [
        [(1.0 if r == c else 0.0) - first[r].ends[own[c]] for c in range(size)]
        + [first[r].time_s, first[r].done, *(0.0 if j in own else e for j, e in enumerate(first[r].ends))]
        for r in range(size)
    ]
    for c in range(size):
        pivot = rows[c][c]
        rows[c] = [value / pivot for value in rows[c]]
        for r in range(size):
            if r != c and rows[r][c] != 0.0:
                factor = rows[r][c]
                rows[r] = [a - factor * b for a, b in zip(rows[r], rows[c], strict=True)]
    return [_Passage(row[size], row[size + 1], tuple(row[size + 2 :])) for row in rows]


def _fresh(length_s: float, below: Sequence[_Below], rates: _Rates) -> _Passage:
    """Track passed again right after coming back to a save of a slower level.

    That save serves the faster levels too: their failures come back to it until they have a newer copy of their own.
    """
    if not below:
        return _segment(length_s, rates)
    last = below[-1]
    first_s = min(length_s, last.wall_s + last.lag_s)
    start = _closed(_fresh(first_s, below[:-1], rates), below[:-1], len(below) - 1, rates, lags=False)
    if first_s == length_s:
        return start
    return _then(start, _repeat(last.block, (length_s - first_s) / last.wall_s))


def _lag_s(level: Level) -> float:
    return next((cause.lag_s for cause in level.causes if cause.per_s > 0), 0.0)
