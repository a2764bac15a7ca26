"""Where the search looks: levels, bounds, and which patterns keep them. Many patterns at a time.

Owns:      the values `Bounds` and `Space`; a pattern as a row of numbers: the first interval [s], then the multiples.
Promises:  one place that knows what keeps the bounds; tolerances are those of floats.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hinan.plan.intervals.levels import Level

MAX_MULTIPLE = 1_000_000
_HAIR = 1e-9

Rows = NDArray[np.float64]


@dataclass(frozen=True)
class Bounds:
    """What the search must respect beside the levels' own limits."""

    quantum_s: float | None = None
    """Training step: level-1 intervals are whole multiples of it; None: any length."""
    max_stall_ratio: float | None = None
    fixed_first_s: float | None = None
    """Judge this level-1 interval: only the others are searched."""


@dataclass(frozen=True)
class Space:
    """Levels, bounds, and least and most interval of each level once nesting is taken into account."""

    levels: tuple[Level, ...]
    bounds: Bounds
    least_s: Rows
    most_s: Rows

    @property
    def quantum_s(self) -> float | None:
        """What the first interval is a whole multiple of; None: any length, or given."""
        return None if self.bounds.fixed_first_s is not None else self.bounds.quantum_s

    @property
    def stall_s(self) -> Rows:
        """Stall of a save of each level."""
        return np.array([level.stall_s for level in self.levels])

    @property
    def per_s(self) -> Rows:
        """Failures per second that each level answers."""
        return np.array([level.per_s for level in self.levels])

    @property
    def fixed_loss(self) -> float:
        """Loss that no interval changes, to first order: sum of lam (R + lag)."""
        return sum(cause.per_s * (cause.restart_s + cause.lag_s) for level in self.levels for cause in level.causes)

    @property
    def budget(self) -> float:
        """Most stall per training time; infinite without a demand."""
        return np.inf if self.bounds.max_stall_ratio is None else self.bounds.max_stall_ratio

    def kept(self, rows: Rows) -> Rows:
        """Those of the patterns that keep every bound, without repetitions."""
        taus = rows.cumprod(axis=1)
        keeps = ((taus >= self.least_s * (1 - _HAIR)) & (taus <= self.most_s * (1 + _HAIR))).all(axis=1)
        keeps &= (self.stall_s / taus).sum(axis=1) <= self.budget * (1 + _HAIR)
        return np.unique(rows[keeps], axis=0)

    def first_order(self, rows: Rows) -> Rows:
        """Loss that the intervals decide, to first order: sum of C/tau + lam tau/2."""
        taus = rows.cumprod(axis=1)
        loss: Rows = (self.stall_s / taus + self.per_s * taus / 2).sum(axis=1)
        return loss

    def first_range_s(self, multiples: Rows) -> tuple[Rows, Rows]:
        """Shortest and longest first interval with which these multiples keep the bounds; they may contradict."""
        counts = _counts(multiples)
        low = (self.least_s / counts).max(axis=1)
        low = np.maximum(low, (self.stall_s / counts).sum(axis=1) / self.budget)
        return low, (self.most_s / counts).min(axis=1)

    def with_multiples(self, multiples: Rows, keeping_s: Rows | None = None) -> Rows:
        """These multiples over the first interval that suits them to first order, or over those that leave one of the
        intervals `keeping_s` where it is, within the bounds; in whole steps the two around each."""
        if self.bounds.fixed_first_s is not None:
            firsts = np.full((1, len(multiples)), self.bounds.fixed_first_s)
        else:
            counts = _counts(multiples)
            low, high = self.first_range_s(multiples)
            firsts = np.sqrt(2 * (self.stall_s / counts).sum(axis=1) / (self.per_s * counts).sum(axis=1))[None]
            if keeping_s is not None:
                firsts = np.vstack([firsts, (keeping_s / counts).T])
            firsts = np.clip(firsts, low, np.maximum(low, high))
            if self.quantum_s is not None:
                firsts = self.whole(firsts, low, high)
        return np.vstack([np.column_stack([first, multiples]) for first in firsts])

    def whole(self, firsts: Rows, low: Rows, high: Rows) -> Rows:
        """First intervals in whole steps around these, inside a range where there is one."""
        assert self.quantum_s is not None
        least = np.maximum(1, np.ceil(low / self.quantum_s - _HAIR))
        most = np.maximum(least, np.floor(np.minimum(high, 1e18) / self.quantum_s + _HAIR))
        steps = np.vstack([np.floor(firsts / self.quantum_s), np.floor(firsts / self.quantum_s) + 1])
        found: Rows = np.clip(steps, least, most) * self.quantum_s
        return found


def _counts(multiples: Rows) -> Rows:
    """First intervals in an interval of each level."""
    return np.column_stack([np.ones(len(multiples)), multiples]).cumprod(axis=1)
