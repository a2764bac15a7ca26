"""Three witnesses of one design side by side, and whether they agree where theory says they should.

Owns:      the translation of a design into each witness's own words.
Promises:  the closed form is withheld outside its range, with the value it would have had and why.
"""

from __future__ import annotations

from dataclasses import dataclass

from hinan.plan.arrivals import Exponential
from hinan.plan.design import Design
from hinan.plan.exact import exact_ettr
from hinan.plan.formulas import ADDITIVE_LOSS_LIMIT
from hinan.plan.joint import first_order_loss
from hinan.plan.montecarlo import Arrivals, Estimate, Track, simulate

LIVES = 250
"""Simulated lives of one answer: 400 failures each give the share to about a ten-thousandth."""


@dataclass(frozen=True)
class Witnesses:
    """Shares of kept training, verification included, all for the same intervals [0-1]."""

    closed_form: float | None
    closed_form_refused: str | None
    exact: float
    monte_carlo: Estimate
    verify_ratio: float

    @property
    def simulated(self) -> float:
        """Mean of the simulation, verification included."""
        return self.monte_carlo.ettr / (1 + self.verify_ratio)

    @property
    def simulated_stderr(self) -> float:
        """Standard error of `simulated`."""
        return self.monte_carlo.stderr / (1 + self.verify_ratio)

    @property
    def agree(self) -> bool:
        """Exact form and simulation within four standard errors (and what a finite life adds)."""
        return abs(self.exact - self.simulated) <= 4 * self.simulated_stderr + 5e-4


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


def question(
    design: Design, *, arrivals: Arrivals | None = None, lives: int = LIVES, failures_per_life: int = 400, seed: int = 1
) -> Witnesses:
    """All three witnesses on one design. Without `arrivals` failures are exponential."""
    rates = rates_per_s(design)
    loss = first_order_loss(design.levels, design.pattern.intervals_s())
    refused = None
    if loss > ADDITIVE_LOSS_LIMIT:
        refused = f"it would say {1 - loss:.3f}; additive forms are refused where the loss passes {ADDITIVE_LOSS_LIMIT}"
    estimate = simulate(
        track_of(design),
        arrivals or Exponential(rates),
        lives=lives,
        wall_s=failures_per_life / sum(rates),
        seed=seed,
    )
    share = design.verify_ratio
    return Witnesses(
        closed_form=None if refused else (1 - loss) / (1 + share),
        closed_form_refused=refused,
        exact=exact_ettr(design.levels, design.pattern) / (1 + share),
        monte_carlo=estimate,
        verify_ratio=share,
    )
