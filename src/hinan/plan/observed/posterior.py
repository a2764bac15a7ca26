"""How often a job fails: the table's rate before anything was seen, a Gamma posterior after that.

Owns:      prior, posterior, and the quantile by which a rate is shown with its uncertainty.
Promises:  pure, and cheap enough for a trainer: the mean is a quotient, and quantiles are computed only when asked for.
Relies on: failures being counted whole: each one in one tier, over the time in which it could have happened.
Never:     imports a numerical library. The trainer decides with this, and its start is paid for at every restart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hinan.core.errors import ConfigError
from hinan.plan.model.checks import not_negative, positive
from hinan.plan.model.failures import DAY_S

PRIOR_FAILURES = 2.0
"""Weight of the table: as if so many failures had been seen already. After a handful of real ones they rule."""

SMALL_JOB_MTTI_S = 7.9 * 3600
"""No job is taken to fail less often than this before it has shown it: what Meta measured at 1,024 GPUs, where the rate per
node would have said 28.85 h. Small jobs fail for reasons that do not shrink with them (arXiv 2410.21680)."""


@dataclass(frozen=True)
class Prior:
    """What is thought before anything was seen: failures per second of the whole job."""

    per_s: float
    weight_failures: float = PRIOR_FAILURES

    def __post_init__(self) -> None:
        positive(per_s=self.per_s, weight_failures=self.weight_failures)


def prior_of(*, per_node_day: float, nodes: int, share_ratio: float = 1.0) -> Prior:
    """The table's rate times the size of the job, but no less than what small jobs were seen to have.

    Args:
        per_node_day: failures of all classes per node and day.
        share_ratio: share of them that the tier in question answers [0-1]; a small job is taken to have the same mix.
    """
    positive(per_node_day=per_node_day, nodes=nodes, share_ratio=share_ratio)
    return Prior(max(per_node_day * nodes / DAY_S, 1 / SMALL_JOB_MTTI_S) * share_ratio)


@dataclass(frozen=True)
class Rate:
    """Posterior of a failure rate: Gamma with this shape [failures] and this rate parameter [s]."""

    shape: float
    time_s: float

    @property
    def mean_per_s(self) -> float:
        """Expected failures per second; a loss that is linear in the rate depends on nothing else of it."""
        return self.shape / self.time_s

    def quantile_per_s(self, chance: float) -> float:
        """The rate that is not exceeded with probability `chance` [1/s]."""
        return gamma_quantile(self.shape, chance) / self.time_s


def posterior(prior: Prior, *, failures: int, observed_s: float) -> Rate:
    """Gamma prior (weight, weight / rate), Poisson counts: shape weight + failures, time weight / rate + observed."""
    not_negative(failures=failures, observed_s=observed_s)
    return Rate(prior.weight_failures + failures, prior.weight_failures / prior.per_s + observed_s)


def gamma_quantile(shape: float, chance: float) -> float:
    """x with P(shape, x) = chance, P the regularised lower incomplete gamma function: bisection, for display.

    Raises:
        ConfigError: shape not above 0, or a chance not strictly between 0 and 1.
    """
    positive(shape=shape)
    if not 0 < chance < 1:
        raise ConfigError(f"chance must lie between 0 and 1, not {chance}", chance=chance)
    low, high = 0.0, shape + 1.0
    while _lower_gamma(shape, high) < chance:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:  # until the two are neighbouring numbers
        low, high = (middle, high) if _lower_gamma(shape, middle) < chance else (low, middle)
    return middle


def _lower_gamma(a: float, x: float) -> float:
    """P(a, x): the power series below a + 1, Lentz's continued fraction of the complement above.

    Source: Abramowitz and Stegun 6.5.29 and 6.5.31.
    """
    if x <= 0:
        return 0.0
    scale = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        n = a
        while abs(term) > abs(total) * 1e-16:
            n += 1
            term *= x / n
            total += term
        return scale * total
    b = x + 1 - a
    c, d = math.inf, 1 / b
    fraction, i = d, 0
    while True:
        i += 1
        b += 2
        factor = i * (a - i)
        d = 1 / (b + factor * d)
        c = b + factor / c
        fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            return 1 - scale * fraction
