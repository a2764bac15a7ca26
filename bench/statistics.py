"""Medians, their intervals, and what they say about a goal. Pure.

The interval of a median is made of order statistics by the sign test: with k chosen so that at most 5 % of fair coins show
fewer than k heads or fewer than k tails in n throws, the k-th smallest and k-th largest sample enclose the median with at
least 95 % confidence. It assumes independent samples and nothing about their distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import comb
from statistics import median

CONFIDENCE = 0.95
FEWEST_SAMPLES = 6
"""With fewer, not even the smallest and largest sample enclose the median with 95 % confidence."""


def median_interval(samples: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """(low, high) that enclose the median; with too few samples the smallest and the largest, which promise less."""
    ordered = sorted(samples)
    n = len(ordered)
    outside, k = 0.0, 0
    while k < n // 2 and outside + 2 * comb(n, k) / 2**n <= 1 - confidence:
        outside += 2 * comb(n, k) / 2**n
        k += 1
    k = max(k, 1)
    return ordered[k - 1], ordered[n - k]


def verdict(goal: float | None, interval: tuple[float, float], samples: int) -> bool | None:
    """Whether "at most `goal`" holds; None where the interval covers the goal, or there are too few samples to say.

    Args:
        goal: None where nothing is promised: then there is nothing to say.
        samples: how many the interval comes from; 0 for a count that has no error.
    """
    low, high = interval
    if goal is None or 0 < samples < FEWEST_SAMPLES:
        return None
    if high <= goal:
        return True
    return False if low > goal else None


def ratios(samples: Sequence[float], floors: Sequence[float]) -> list[float]:
    """Each sample over the floor that was measured beside it."""
    return [sample / floor for sample, floor in zip(samples, floors, strict=True)]


def extras(with_s: Sequence[float], without_s: Sequence[float]) -> list[float]:
    """What each block with an evacuation took above the blocks without one on both sides of it.

    Args:
        without_s: one more than `with_s`: the block before the first, and the one after each.
    """
    sides = [(a + b) / 2 for a, b in pairwise(without_s)]
    return [taken - usual for taken, usual in zip(with_s, sides, strict=True)]


def first_costs(paid_s: Sequence[tuple[float, float]], usual_s: tuple[float, float]) -> tuple[float, float]:
    """(getting ready, all): what the first evacuation of a loop costs it, above what it pays with nothing due.

    Getting ready is what lies before the `evac.step()` at which it is due.

    Args:
        paid_s: (in the hooks of `optimizer.step()`, in the `evac.step()` behind it) of each step, from the first one of the
            loop to the one behind the evacuation, whose hooks are its gate. What lies before the first `evac.step()` and
            behind that gate is not counted.
        usual_s: the same of a step with nothing due.
    """
    usual_hooks_s, usual_saving_s = usual_s
    hooks_s = [hooks - usual_hooks_s for hooks, _ in paid_s[1:]]
    saving_s = [saving - usual_saving_s for _, saving in paid_s[:-1]]
    ready_s = sum(hooks_s[:-1]) + sum(saving_s[:-1])
    return ready_s, ready_s + saving_s[-1] + hooks_s[-1]


__all__ = ["extras", "first_costs", "median", "median_interval", "ratios", "verdict"]
