"""When failures come: exponential, Weibull, bursts, lemon nodes, correlated racks, or a recorded trace.

Owns:      arrival processes for the Monte Carlo witness; each answers "how long until the next failure, of what kind".
Promises:  all but the trace have the asked mean rate exactly; draws come only from the generator handed in.
Never:     knows what a failure costs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hinan.core.errors import ConfigError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def _kinds(rng: np.random.Generator, cumulative: Floats, lanes: int) -> Ints:
    picked = np.searchsorted(cumulative, rng.random(lanes), side="right")
    return np.minimum(picked, cumulative.size - 1).astype(np.int64)


def _cumulative(per_s: Sequence[float]) -> Floats:
    rates = np.asarray(per_s, dtype=np.float64)
    if rates.size == 0 or not np.isfinite(rates).all() or (rates < 0).any() or rates.sum() <= 0:
        raise ConfigError(f"arrival rates must be numbers from 0, one above it, not {list(per_s)}")
    return np.asarray(np.cumsum(rates) / rates.sum(), dtype=np.float64)


@dataclass(frozen=True)
class Exponential:
    """Memoryless failures: independent causes, each with its rate [1/s]."""

    per_s: tuple[float, ...]
    _cumulative: Floats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_cumulative", _cumulative(self.per_s))

    def next(self, rng: np.random.Generator, lanes: int) -> tuple[Floats, Ints]:
        gap_s = rng.exponential(1 / sum(self.per_s), lanes)
        return gap_s, _kinds(rng, self._cumulative, lanes)


@dataclass(frozen=True)
class Weibull:
    """Renewals with Weibull gaps: shape below 1 clusters failures (0.62 in the InfiniteHBD trace), mean as asked."""

    per_s: tuple[float, ...]
    shape: float
    _cumulative: Floats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 0.1 <= self.shape <= 20:
            raise ConfigError(f"a Weibull shape lies between 0.1 and 20 here, not {self.shape}")
        object.__setattr__(self, "_cumulative", _cumulative(self.per_s))

    def next(self, rng: np.random.Generator, lanes: int) -> tuple[Floats, Ints]:
        scale_s = 1 / sum(self.per_s) / math.gamma(1 + 1 / self.shape)
        return scale_s * rng.weibull(self.shape, lanes), _kinds(rng, self._cumulative, lanes)


@dataclass(frozen=True)
class Bursts:
    """With chance `again` a failure is followed by another after about `within_s`; the mean rate stays as asked."""

    per_s: tuple[float, ...]
    again: float
    within_s: float
    _cumulative: Floats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 0 <= self.again < 1 or not 0 < self.within_s < 1 / sum(self.per_s):
            raise ConfigError("a burst needs a chance in 0-1 and a length below the mean time between failures")
        object.__setattr__(self, "_cumulative", _cumulative(self.per_s))

    def next(self, rng: np.random.Generator, lanes: int) -> tuple[Floats, Ints]:
        quiet_s = (1 / sum(self.per_s) - self.again * self.within_s) / (1 - self.again)
        mean_s = np.where(rng.random(lanes) < self.again, self.within_s, quiet_s)
        return rng.exponential(1.0, lanes) * mean_s, _kinds(rng, self._cumulative, lanes)


class Lemons:
    """Nodes differ: each life draws its nodes from a gamma of the given spread, so some lives are worse than others.

    Inside a life the sum over many nodes is memoryless again; between lives the rate varies. With the spread of the
    InfiniteHBD trace the worst tenth of the nodes has 41 % of the faults.
    """

    def __init__(self, per_s: Sequence[float], *, nodes: int, shape: float, lives: int, seed: int) -> None:
        if nodes < 1 or not shape > 0:
            raise ConfigError(f"lemons need nodes and a positive shape, not {nodes} and {shape}")
        self._base = Exponential(tuple(per_s))
        rng = np.random.default_rng([seed, 0x1E])
        self._factor = rng.gamma(shape * nodes, 1 / (shape * nodes), lives)

    def next(self, rng: np.random.Generator, lanes: int) -> tuple[Floats, Ints]:
        gap_s, kind = self._base.next(rng, lanes)
        return gap_s / self._factor[:lanes], kind


@dataclass(frozen=True)
class Racks:
    """Correlated racks: of the failures of cause `rack`, each comes as `size` node reports spread over `spread_s`.

    The first takes the rack, the followers are node failures that strike during or just after the restart. The rate
    of rack events and of all other causes stays as asked; the followers come on top, as they do in life.
    """

    per_s: tuple[float, ...]
    rack: int
    node: int
    size: int
    spread_s: float
    _pending: dict[int, int] = field(default_factory=dict, repr=False, compare=False)
    _cumulative: Floats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.size < 1 or not self.spread_s > 0:
            raise ConfigError("a rack has at least one node and its reports take some time")
        object.__setattr__(self, "_cumulative", _cumulative(self.per_s))

    def next(self, rng: np.random.Generator, lanes: int) -> tuple[Floats, Ints]:
        gap_s = rng.exponential(1 / sum(self.per_s), lanes)
        kind = _kinds(rng, self._cumulative, lanes)
        soon_s = rng.exponential(self.spread_s / self.size, lanes)
        for lane, left in list(self._pending.items()):
            if soon_s[lane] < gap_s[lane]:
                gap_s[lane], kind[lane] = soon_s[lane], self.node
                self._pending[lane] = left - 1
                if left == 1:
                    del self._pending[lane]
        for started in np.flatnonzero(kind == self.rack):
            if self.size > 1:
                self._pending[int(started)] = self.size - 1
        return gap_s, kind


class Replay:
    """A recorded sequence of failures: each life starts at its own offset and wraps around at the end.

    Times must lie inside the horizon. Ties in the trace (several faults at one time) are kept 1 s apart: the second
    strikes during the restart of the first.
    """

    def __init__(self, times_s: Floats, kinds: Ints, *, horizon_s: float, lives: int, aligned: bool = False) -> None:
        order = np.argsort(times_s, kind="stable")
        self._times_s, self._kinds = np.asarray(times_s, dtype=np.float64)[order], np.asarray(kinds)[order]
        if self._times_s.size == 0 or self._times_s[0] < 0 or self._times_s[-1] > horizon_s:
            raise ConfigError("a trace to replay needs failures, all inside its horizon")
        self._gaps_s = np.maximum(np.diff(self._times_s, append=self._times_s[0] + horizon_s), 1.0)
        offset_s = np.zeros(lives) if aligned else np.arange(lives) * (horizon_s / lives)
        self._next = np.searchsorted(self._times_s, offset_s, side="left")
        wrapped = self._next >= self._times_s.size
        self._next = np.where(wrapped, 0, self._next)
        self._first_s = self._times_s[self._next] - offset_s + np.where(wrapped, horizon_s, 0.0)
        self._fresh = True

    def next(self, rng: np.random.Generator, lanes: int) -> tuple[Floats, Ints]:
        del rng  # a replay draws nothing
        if self._fresh:
            self._fresh = False
            return np.maximum(self._first_s[:lanes], 1.0), self._kinds[self._next]
        gap_s = self._gaps_s[self._next]
        self._next = (self._next + 1) % self._times_s.size
        return gap_s, self._kinds[self._next]
