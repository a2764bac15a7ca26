"""Intervals of all levels to first order: where the search begins, and what the closed forms say is lost.

Owns:      the loss sum of C/tau + lam (tau/2 + lag + R), its optimum under nesting, bounds and a stall budget.
Promises:  plain arithmetic; intervals never shrink when every failure becomes rarer.
Never:     rounds to whole steps or multiples; `joint.py` does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hinan.plan.intervals.levels import Level


def stall_ratio(levels: Sequence[Level], intervals_s: Sequence[float]) -> float:
    """Training time spent saving, per training time [0-]."""
    return sum(level.stall_s / interval_s for level, interval_s in zip(levels, intervals_s, strict=True))


def first_order_loss(levels: Sequence[Level], intervals_s: Sequence[float]) -> float:
    """Sum over levels of C/tau + lam (tau/2 + lag + R) [0-]: what the closed forms say is lost."""
    waste = stall_ratio(levels, intervals_s)
    for level, interval_s in zip(levels, intervals_s, strict=True):
        waste += level.per_s * interval_s / 2
        waste += sum(cause.per_s * (cause.restart_s + cause.lag_s) for cause in level.causes)
    return waste


def first_order_intervals_s(
    levels: Sequence[Level], budget: float | None, least: Sequence[float], most: Sequence[float]
) -> list[float]:
    """Optimum of the first-order loss with nesting, bounds and stall budget [s per level].

    Each level alone wants sqrt(2 C / lam); neighbours in the wrong order are pooled (C and lam add up). The stall
    budget is kept by a price on stall, found by bisection.
    """
    return _pooled(levels, stall_price(levels, budget, least, most), least, most)


def stall_price(levels: Sequence[Level], budget: float | None, least: Sequence[float], most: Sequence[float]) -> float:
    """What a second of stall must count for the optimum to keep the budget; 1 where it does so by itself."""
    if budget is None or stall_ratio(levels, _pooled(levels, 1.0, least, most)) <= budget:
        return 1.0
    low, high = 1.0, 2.0
    while stall_ratio(levels, _pooled(levels, high, least, most)) > budget * (1 - 1e-6) and high < 1e18:
        high *= 2
    for _ in range(80):
        price = math.sqrt(low * high)
        over = stall_ratio(levels, _pooled(levels, price, least, most)) > budget
        low, high = (price, high) if over else (low, price)
    return high


def _pooled(levels: Sequence[Level], price: float, least: Sequence[float], most: Sequence[float]) -> list[float]:
    pools: list[tuple[float, float, int]] = []
    for level in levels:
        pools.append((level.stall_s * price, level.per_s, 1))
        while len(pools) > 1 and _best(*pools[-2][:2]) >= _best(*pools[-1][:2]):
            c1, p1, n1 = pools.pop(-2)
            c2, p2, n2 = pools.pop()
            pools.append((c1 + c2, p1 + p2, n1 + n2))
    flat = [_best(cost, per_s) for cost, per_s, count in pools for _ in range(count)]
    return [min(max(tau, low), high) for tau, low, high in zip(flat, least, most, strict=True)]


def _best(cost_s: float, per_s: float) -> float:
    return math.sqrt(2 * cost_s / per_s) if per_s > 0 else (math.inf if cost_s > 0 else 0.0)
