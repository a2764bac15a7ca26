"""The search in whole steps and whole multiples, on the exact form.

Owns:      the finish. `best_pattern` ranks what `beam.py` enumerates, prices the best of it exactly, and improves that.
Promises:  deterministic. Bounds of every kind (drains, redo limits, a stall budget, a given interval) only cut ranges, so
           no kind has a search of its own: what is compared always keeps all of them.
Relies on: nested intervals: least and most intervals never shrink from level to level.
Never:     says why nothing keeps the bounds; `joint.py` does.
"""

from __future__ import annotations

import math

import numpy as np

from hinan.plan.intervals.beam import candidates
from hinan.plan.intervals.exact import exact_ettrs
from hinan.plan.intervals.levels import Pattern
from hinan.plan.intervals.space import MAX_MULTIPLE, Rows, Space

_SHORTLIST = 1000
_ROUGH, _ROUGHER = 0.05, 4.0
"""So many of what is enumerated are priced exactly, if they lose at most so much more (share of it, and by all that is
lost, restarts too) than the best to first order, which ranks well, not finely."""
_FEW = 100
"""So few are priced whatever they lose."""
_LEAPS = (0.2, 0.5, 2 / 3, 0.8, 0.98, 1.02, 1.25, 1.5, 2.0, 5.0)
"""Beside a few more or less, a count moves by these factors."""
_NEAR = 5
_BESIDE = np.array([-2.0, -1.0, 1.0, 2.0])
_TRADES = 0.8 * (1.25 / 0.8) ** (np.arange(13) / 12)
"""A count moves by so many while the one below it takes up for it, by more or less: along the edge of a stall budget the
two are traded, and both change at once."""
_MOST_MOVES = 200
_NOISE = 1e-11
"""Gains below this share are rounding, or not worth a move."""
_ZOOM = np.linspace(-1, 1, 17)


def best_pattern(space: Space, price: float) -> Pattern | None:
    """The best pattern that keeps the bounds; None: none met does.

    Args:
        price: what a second of stall counts, so that the first-order optimum keeps the stall budget; 1: there is room.
    """
    found = candidates(space, price)
    found = space.kept(np.vstack([found, space.with_multiples(np.unique(found[:, 1:], axis=0))]))
    if not len(found):
        return None
    best, value = _best(space, found)
    for _ in range(_MOST_MOVES):
        around = space.kept(np.vstack([best[None], _around(space, best)]))
        other, its = _best(space, around)
        if its - value <= _NOISE * abs(value):
            break
        best, value = other, its
    return Pattern(float(best[0]), tuple(int(multiple) for multiple in best[1:]))


def _shortlist(space: Space, rows: Rows) -> Rows:
    """Rows that may be the best: the more is lost, by restarts as well, the less first order says."""
    losses = space.first_order(rows)
    least = losses.min()
    rough = _ROUGH + _ROUGHER * (least + space.fixed_loss)
    rows = rows[np.argsort(losses, kind="stable")]
    return rows[: min(_SHORTLIST, max(_FEW, int((losses <= least * (1 + rough)).sum())))]


def _best(space: Space, rows: Rows) -> tuple[Rows, float]:
    """The row that keeps most, by the exact form. Where a float cannot hold it: minus the first-order loss, so that the
    search still knows which way is better."""
    rows = _shortlist(space, rows)
    kept = exact_ettrs(space.levels, rows)
    values = np.where(kept > 0, kept, -space.first_order(rows))
    at = int(np.argmax(values))
    return rows[at], float(values[at])


def _around(space: Space, row: Rows) -> Rows:
    """Patterns near this one: a count changed, and slower ones with it; also with the first interval that suits them."""
    unit = space.quantum_s or row[0]
    counts = np.array([row[0] / unit, *row[1:]]).round()
    moves = [counts]
    for k in range(0 if space.quantum_s else 1, len(counts)):
        for count in _others(counts, k):
            moves += _moved(counts, k, count)
    around = np.vstack(
        [np.array(moves), *(_traded(counts, k) for k in range(len(counts) - 1) if np.isfinite(space.budget))]
    )
    suited = space.with_multiples(np.unique(around[:, 1:], axis=0), row.cumprod())
    around[:, 0] *= unit
    if space.quantum_s is None and space.bounds.fixed_first_s is None:
        low, high = space.first_range_s(row[None, 1:])
        zoomed = [np.clip(row[0] * (1 + scale * _ZOOM), low[0], high[0]) for scale in (0.5, 0.05, 0.005, 0.0005)]
        firsts = np.concatenate(zoomed)
        suited = np.vstack([suited, np.column_stack([firsts, np.tile(row[1:], (len(firsts), 1))])])
    return np.vstack([around, suited])


def _moved(counts: Rows, k: int, count: float) -> list[Rows]:
    """Another count `k`; of the slower intervals the next few, from none to all, stay as nearly where they are as whole
    numbers allow, and the others move along. A step more or less in a short interval changes all counts above it."""
    intervals = counts.cumprod()
    begun, moves = [[*counts[:k], count]], []
    for above in range(k + 1, len(counts) + 1):
        moves += [np.array([*row, *counts[above:]]) for row in begun]
        if above < len(counts):
            begun = [[*row, near] for row in begun for near in _whole_around(intervals[above] / math.prod(row))]
    return moves


def _whole_around(count: float) -> set[float]:
    return {float(max(1, math.floor(count))), float(max(1, math.ceil(count)))}


def _traded(counts: Rows, k: int) -> Rows:
    """The count above `k` a few more or less, and that of `k` around what leaves the slower interval where it is."""
    above = np.repeat(np.maximum(1, counts[k + 1] + _BESIDE), len(_TRADES))
    moves = np.tile(counts, (len(above), 1))
    moves[:, k] = np.clip(np.floor(counts[k] * counts[k + 1] / above * np.tile(_TRADES, len(_BESIDE))), 1, MAX_MULTIPLE)
    moves[:, k + 1] = above
    return moves


def _others(counts: Rows, k: int) -> list[float]:
    """Counts that `k` moves to; among them those with which the one above changes by one or two, its interval staying."""
    count = int(counts[k])
    others = {round(count * leap) for leap in _LEAPS} | {count + by for by in range(-_NEAR, _NEAR + 1)}
    if k + 1 < len(counts):
        for by in _BESIDE[counts[k + 1] + _BESIDE >= 1]:
            others |= {int(near) for near in _whole_around(count * counts[k + 1] / (counts[k + 1] + by))}
    return [float(other) for other in sorted(others - {count}) if 1 <= other <= MAX_MULTIPLE]
