"""Three witnesses of one design side by side, and whether they agree where theory says they should.

Owns:      the translation of a design into each witness's own words.
Promises:  closed and exact form are withheld outside their ranges, with the value they would have had and why. The
           exact form is also withheld where the simulation of its own assumptions says something else.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

from hinan.plan.decision.design import Design
from hinan.plan.intervals.arrivals import Exponential
from hinan.plan.intervals.exact import exact_ettr
from hinan.plan.intervals.first_order import first_order_loss
from hinan.plan.intervals.formulas import ADDITIVE_LOSS_LIMIT
from hinan.plan.intervals.montecarlo import Arrivals, Estimate, Track, simulate

LIVES = 250
"""Simulated lives of one answer: 400 failures each give the share to about a ten-thousandth."""
AGREE_STDERRS = 3.0
"""Exact form and simulation agree within this many standard errors; one of some 400 honest answers is outside by chance."""
AGAIN_STDERRS, MORE_LIVES = 2.0, 4
"""Further apart than this, the simulation is done once more with so many times the lives, and the answer says so: that run
is drawn anew, takes the first one's place whatever it says, and only then may they disagree."""
LAG_LIMIT = 2.0
"""Longest lag of a cause, in its own mean times between failures, up to which simulations have confirmed the exact form."""
LAGS_TO_SETTLE, LAGS_COUNTED, MOST_FAILURES = 10, 20, 20_000
"""A life passes so many lags before it counts, and then counts so many; no life has more failures than the last."""


@dataclass(frozen=True)
class Witnesses:
    """Shares of kept training, verification included, all for the same intervals [0-1]."""

    closed_form: float | None
    closed_form_refused: str | None
    exact: float | None
    exact_refused: str | None
    monte_carlo: Estimate
    verify_ratio: float
    agree: bool
    """Whether the exact form, withheld or not, is within `AGREE_STDERRS` of the simulation."""
    apart_stderrs: float
    """Simulation minus exact form, withheld or not, in standard errors of the simulation."""
    first_apart_stderrs: float | None
    """The same of a first run with fewer lives that was too far away to be left alone; None: there was only one run."""
    seed: int

    @property
    def simulated(self) -> float:
        """Mean of the simulation, verification included."""
        return self.monte_carlo.ettr / (1 + self.verify_ratio)

    @property
    def simulated_stderr(self) -> float:
        """Standard error of `simulated`."""
        return self.monte_carlo.stderr / (1 + self.verify_ratio)

    @property
    def how_far(self) -> str:
        """In a sentence: how far apart simulation and exact form are, and whether that is a second run."""
        text = f"{abs(self.apart_stderrs):.1f} standard errors from the exact form"
        if self.first_apart_stderrs is None:
            return text
        return (
            f"{text}; it is a second run with {MORE_LIVES} times the lives, for the first one was "
            f"{abs(self.first_apart_stderrs):.1f} of its own away"
        )

    def shown(self) -> tuple[str, str]:
        """Closed and exact form as four digits, or "refused"."""
        closed, exact = ("refused" if value is None else f"{value:.4f}" for value in (self.closed_form, self.exact))
        return closed, exact


def track_of(design: Design) -> Track:
    """The design in the simulation's plain numbers."""
    causes = [(index, cause) for index, level in enumerate(design.levels) for cause in level.causes]
    return Track(
        work_s=design.pattern.work_s,
        multiples=design.pattern.multiples,
        stall_s=tuple(level.stall_s for level in design.levels),
        cause_level=tuple(index for index, _ in causes),
        cause_restart_s=tuple(cause.restart_s for _, cause in causes),
        cause_lag_s=tuple(cause.lag_s for _, cause in causes),
    )


def rates_per_s(design: Design) -> tuple[float, ...]:
    """Failures per second of each cause, in the order of the track."""
    return tuple(cause.per_s for level in design.levels for cause in level.causes)


def seed_of(design: Design) -> int:
    """A seed that follows from what is simulated: the same question has the same answer, and another one other luck."""
    numbers = repr((track_of(design), rates_per_s(design)))
    return int.from_bytes(hashlib.sha256(numbers.encode()).digest()[:4], "big")


def question(
    design: Design,
    *,
    arrivals: Arrivals | None = None,
    lives: int = LIVES,
    failures_per_life: int = 400,
    seed: int | None = None,
) -> Witnesses:
    """All three witnesses on one design. Without `arrivals` failures are exponential; without `seed` it is `seed_of` it."""
    seed = seed_of(design) if seed is None else seed
    loss = first_order_loss(design.levels, design.pattern.intervals_s())
    refused = None
    if loss > ADDITIVE_LOSS_LIMIT:
        refused = f"it would say {1 - loss:.3f}; additive forms are refused where the loss passes {ADDITIVE_LOSS_LIMIT}"
    kept = exact_ettr(design.levels, design.pattern)
    estimate = _simulated(design, arrivals, lives, failures_per_life, seed)
    exact_refused, first_apart = _lag_refused(design), None
    # Other arrivals have state, and need not agree.
    if arrivals is None and exact_refused is None and abs(_apart(kept, estimate)) > AGAIN_STDERRS:
        first_apart = _apart(kept, estimate)
        estimate = _simulated(design, arrivals, MORE_LIVES * lives, failures_per_life, seed + 1)
    apart = _apart(kept, estimate)
    agree = abs(apart) <= AGREE_STDERRS
    share = design.verify_ratio
    if exact_refused is None and arrivals is None and not agree:
        exact_refused = f"the simulation of the same failures is {abs(apart):.1f} standard errors away"
    if exact_refused:
        exact_refused = f"it would say {kept / (1 + share):.4f}; {exact_refused}"
    return Witnesses(
        closed_form=None if refused else (1 - loss) / (1 + share),
        closed_form_refused=refused,
        exact=None if exact_refused else kept / (1 + share),
        exact_refused=exact_refused,
        monte_carlo=estimate,
        verify_ratio=share,
        agree=agree,
        apart_stderrs=apart,
        first_apart_stderrs=first_apart,
        seed=seed,
    )


def _simulated(design: Design, arrivals: Arrivals | None, lives: int, failures_per_life: int, seed: int) -> Estimate:
    rates = rates_per_s(design)
    lag_s = max(cause.lag_s for level in design.levels for cause in level.causes)
    most_s = MOST_FAILURES / sum(rates)
    settle_s = min(LAGS_TO_SETTLE * lag_s, most_s / 2)
    wall_s = max(failures_per_life / sum(rates), min(LAGS_COUNTED * lag_s, most_s))
    return simulate(
        track_of(design), arrivals or Exponential(rates), lives=lives, wall_s=wall_s, seed=seed, settle_s=settle_s
    )


def _apart(kept: float, estimate: Estimate) -> float:
    if estimate.stderr == 0:
        return 0.0 if kept == estimate.ettr else math.inf
    return (estimate.ettr - kept) / estimate.stderr


def _lag_refused(design: Design) -> str | None:
    """Why the exact form is beyond its range: failures of a cause come faster than its copies become usable."""
    causes = [cause for level in design.levels for cause in level.causes]
    late = max(causes, key=lambda cause: cause.per_s * cause.lag_s)
    if late.per_s * late.lag_s <= LAG_LIMIT:
        return None
    return (
        f"copies that survive a failure of class {late.name} are {late.lag_s:.4g} s old at least, and it strikes every "
        f"{1 / late.per_s:.4g} s"
    )
