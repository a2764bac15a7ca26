"""What the search compares: nested patterns, enumerated from the fastest level on, ranked to first order.

Owns:      the enumeration. First intervals over the whole range, then for each the multiples of one level after the other;
           of each level the most promising are kept.
Promises:  a pattern begun is ranked by what it costs so far plus the least that slower levels could add inside their
           ranges: a lower bound, so that what is dropped is worse than what is kept.
           A stall budget enters as a price on stall.
Never:     prices exactly; `whole.py` does.
"""

from __future__ import annotations

import numpy as np

from hinan.plan.intervals.space import MAX_MULTIPLE, Rows, Space

_WIDTH = 250
"""Patterns begun that are kept at each level."""
_FINE = 1.04
"""Long first intervals are tried this factor apart: a miss of 2 % costs 0.02 % of what the interval costs."""
_SPAN = 10.0
"""So far below what any level wants a first interval may be worth trying."""
_PRICES = np.array([0.1, 0.5, 1.0, 2.0, 10.0, 1000.0])
_WINDOW = np.arange(-5, 7)
_LEAPS = np.array([0.25, 0.5, 0.7, 1.4, 2.0, 4.0])
_PARTS = np.arange(1.0, 25.0)
"""An interval may be worth trying because so many of it are what a slower level wants, or an end of its range."""
_FEW_PARTS = np.arange(1.0, 7.0)
"""So few where the multiples of a level are enumerated: the more there are, the less it matters."""


def candidates(space: Space, price: float) -> Rows:
    """Patterns, most of them inside the bounds; the best to first order are among them."""
    wanted = _wanted_s(space, price)
    prices = np.array([1.0]) if not np.isfinite(space.budget) else np.maximum(1.0, price * _PRICES)
    rows = _firsts(space, wanted)[:, None]
    for k in range(1, len(space.levels)):
        rows = _extended(space, rows, wanted, k)
        rows = rows[np.argsort(_least_cost(space, rows, prices), kind="stable")[:_WIDTH]]
    return rows


def _wanted_s(space: Space, price: float) -> Rows:
    """What each level wants alone, inside its range [s]; one that answers no failure wants its longest."""
    rare = 1e-3 * space.per_s[space.per_s > 0].min()
    alone = np.sqrt(2 * space.stall_s * price / np.maximum(space.per_s, rare))
    wanted: Rows = np.clip(alone, space.least_s, space.most_s)
    return wanted


def _firsts(space: Space, wanted: Rows) -> Rows:
    """First intervals to try: a ladder over all that may be right, and those that meet an end of a range."""
    if space.bounds.fixed_first_s is not None:
        return np.array([space.bounds.fixed_first_s])
    low = max(space.least_s[0], wanted.min() / _SPAN)
    high = max(low, min(space.most_s[0], wanted.max() * 2))
    ladder = low * _FINE ** np.arange(int(np.log(high / low) / np.log(_FINE)) + 2)
    firsts = np.concatenate([ladder, _meeting_s(space, wanted, 0, _PARTS)])
    firsts = np.clip(firsts[np.isfinite(firsts)], low, high)
    if space.quantum_s is not None:
        firsts = space.whole(firsts, np.array(low), np.array(high)).ravel()
    return np.unique(firsts)


def _meeting_s(space: Space, wanted: Rows, k: int, parts: Rows) -> Rows:
    """Intervals of which so many are what level `k` or a slower one wants, or an end of its range [s]."""
    ends = np.concatenate([space.least_s[k:], space.most_s[k:][np.isfinite(space.most_s[k:])], wanted[k:]])
    meeting: Rows = (ends[:, None] / parts).ravel()
    return meeting


def _extended(space: Space, rows: Rows, wanted: Rows, k: int) -> Rows:
    """Each row with multiples for level `k`: near what it wants, by leaps, at the ends of its range, where a few
    of its intervals meet what slower levels want or an end of theirs, and the least that leaves those enough of the
    stall budget."""
    taus = rows.cumprod(axis=1)
    below = taus[:, -1]
    near = np.maximum(wanted[k], below) / below
    least, most = np.ceil(space.least_s[k] / below - 1e-9), np.floor(space.most_s[k] / below + 1e-9)
    spent = (space.stall_s[:k] / taus).sum(axis=1)
    rest = (space.stall_s[k + 1 :] / wanted[k + 1 :]).sum()
    own = _shortest_s(space.stall_s[k], space.budget - spent - rest) / below
    together = _shortest_s(space.stall_s[k:].sum(), space.budget - spent) / below
    tight = np.ceil(np.stack([own, together], axis=1) - 1e-9)
    meeting = np.floor(_meeting_s(space, wanted, k + 1, _FEW_PARTS) / below[:, None] + 1e-9)
    around = np.floor(near)[:, None] + _WINDOW
    leaps = np.floor(near[:, None] * _LEAPS)
    counts = np.column_stack([around, leaps, least, most, tight, tight + 1, meeting, meeting + 1])
    counts = np.clip(counts, np.maximum(least, 1)[:, None], np.clip(most, 1, MAX_MULTIPLE)[:, None])
    counts.sort(axis=1)
    new = np.column_stack([np.ones(len(counts), bool), np.diff(counts, axis=1) > 0])
    new &= (counts * below[:, None] <= space.most_s[k] * (1 + 1e-9)) & (counts >= 1)
    at, _ = np.nonzero(new)
    rows = np.column_stack([rows[at], counts[new]])
    longest = (space.stall_s[k + 1 :] / space.most_s[k + 1 :]).sum()
    in_budget: Rows = rows[(space.stall_s[: k + 1] / rows.cumprod(axis=1)).sum(axis=1) + longest <= space.budget]
    return in_budget


def _shortest_s(stall_s: float, left: Rows) -> Rows:
    """Shortest intervals that cost no more stall than is left of a budget; saves that stall nothing cost nothing [s]."""
    return np.divide(stall_s, left, out=np.full_like(left, np.inf if stall_s > 0 else 0.0), where=left > 0)


def _least_cost(space: Space, rows: Rows, prices: Rows) -> Rows:
    """Lower bound of the loss of all patterns that begin so: at any price of stall the least that they cost, less what the
    budget is worth at that price. Of several prices the highest bound counts: a high one finds those that overspend."""
    taus = rows.cumprod(axis=1)
    done = taus.shape[1]
    bound = np.zeros(len(rows))
    for price in prices:
        slower = np.clip(np.maximum(_wanted_s(space, price)[done:], taus[:, -1:]), None, space.most_s[done:])
        all_s = np.column_stack([taus, slower])
        worth = (price - 1) * space.budget if price > 1 else 0.0
        bound = np.maximum(bound, (space.stall_s * price / all_s + space.per_s * all_s / 2).sum(axis=1) - worth)
    return bound
