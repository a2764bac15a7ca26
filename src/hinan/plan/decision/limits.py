"""Limits that hold a finished design: time between failures, restart, progress, price. Each says by how much it is missed.

Owns:      the checks of a design after its intervals are found. RAM, redo limit and stall budget bound the search itself.
Promises:  a refusal holds the setting with which this very design would pass; of all designs the one that misses by least
           is thus the nearest. The page has the same checks in JavaScript (report.js: `missed`).
Never:     chooses; `choice.py` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hinan.plan.decision.design import Design, restarts_s
from hinan.plan.intervals.formulas import exact_interval_s
from hinan.plan.model.checks import Infeasible, percent
from hinan.plan.model.failures import DAY_S
from hinan.plan.model.scenario import Scenario

LEAST_ETTR = 0.01
"""Below this the job makes no progress worth the name, and floats stop holding the expected time."""
DRAIN = ("job.state_bytes", "store.write_bytes_per_s", "store.drain_s")
STALL = ("job.floor_s", "job.hideable_ratio", "job.step_s", "machine.d2h_bytes_per_s", "store.interference_ratio")
_RESTART = (
    "restart.parts",
    "restart.init_per_1k_nodes_s",
    "restart.load_s",
    "restart.replay_s",
    "restart.total_s",
    "store.read_bytes_per_s",
    "failures",
)
"""Inputs on which the refusals of a kind rest."""


@dataclass(frozen=True)
class Limit:
    """One check of a design, and the inputs that its refusal rests on."""

    refusal: Callable[[Scenario, Design], Infeasible | None]
    rests_on: tuple[str, ...]


def _back_before_the_next(scenario: Scenario, design: Design) -> Infeasible | None:
    """Restarts must be shorter than the time between failures."""
    rates = [(cause.per_s, cause.restart_s) for level in design.levels for cause in level.causes]
    mean_s = sum(per_s * restart_s for per_s, restart_s in rates) / sum(per_s for per_s, _ in rates)
    if mean_s < scenario.mtti_s:
        return None
    return Infeasible(
        [
            f"a restart takes {mean_s:.4g} s, interruptions come every {scenario.mtti_s:.4g} s: "
            "the next one strikes before the job is back"
        ],
        _rarer(scenario, mean_s * 1.25),
        missed_by=mean_s / scenario.mtti_s,
    )


def _back_in_time(scenario: Scenario, design: Design) -> Infeasible | None:
    """The designer's limit on a restart."""
    limit_s = scenario.demands.max_rto_s
    worst, worst_s = max(restarts_s(scenario, design.variant.tiers).items(), key=lambda item: item[1])
    if limit_s is None or worst_s <= limit_s:
        return None
    return Infeasible(
        [
            f"back within {limit_s:.4g} s: after a failure of class {worst} detection, rescheduling, loading and "
            f"initialisation take {worst_s:.4g} s"
        ],
        {"max-rto": f"{worst_s * 1.0001:.6g}s"},
        missed_by=worst_s / limit_s,
    )


def _progress(scenario: Scenario, design: Design) -> Infeasible | None:
    """Some share of the time must be training."""
    if design.ettr >= LEAST_ETTR:
        return None
    missed_by = LEAST_ETTR / design.ettr if design.ettr > 0 else math.inf
    first = design.levels[0]
    if scenario.demands.interval_s is not None and first.per_s > 0 and first.stall_s > 0:
        wanted_s = max(exact_interval_s(stall_s=first.stall_s, mtti_s=1 / first.per_s), first.least_interval_s)
        if scenario.job.step_known:
            wanted_s = math.ceil(wanted_s / scenario.job.step_s - 1e-9) * scenario.job.step_s
        if abs(wanted_s / scenario.demands.interval_s - 1) > 0.01:
            return Infeasible(
                [f"with a save every {scenario.demands.interval_s:.4g} s the job keeps {design.ettr:.2%} of its time"],
                {"interval": f"{wanted_s:.9g}s"},
                missed_by=missed_by,
            )
    longest = max(design.pattern.work_s + design.levels[0].stall_s, scenario.mtti_s)
    return Infeasible(
        [f"with an interruption every {scenario.mtti_s:.4g} s the job keeps {design.ettr:.2%} of its time at best"],
        _rarer(scenario, max(1.5 * scenario.mtti_s, longest / 2)),
        missed_by=missed_by,
    )


def _rarer(scenario: Scenario, mtti_s: float) -> dict[str, str]:
    """Failures that come so rarely, in the word that the designer has used."""
    if scenario.failures_by == "rate":
        return {"rate": f"{DAY_S / (scenario.nodes * mtti_s):.4g}"}
    return {"mtti": f"{mtti_s:.4g}s"}


def _price(scenario: Scenario, design: Design) -> Infeasible | None:
    """The designer's limit on everything lost."""
    loss = 1 - design.ettr
    limit, usd = scenario.demands.max_loss_ratio, scenario.demands.max_usd_per_day
    price = loss * scenario.job.gpus * 24 * scenario.machine.usd_per_gpu_hour
    if limit is not None and loss > limit:
        said = f"the best design loses {percent(loss)}, more than {percent(limit)}"
        return Infeasible([said], {"budget": f"{loss * 100.1:.5g}%"}, missed_by=loss / limit if limit else math.inf)
    if usd is not None and price > usd:
        said = f"the best design loses {price:.0f} USD a day, more than {usd:.0f}"
        return Infeasible([said], {"budget": f"{price * 1.001:.0f}USD"}, missed_by=price / usd if usd else math.inf)
    return None


LIMITS = (
    Limit(_back_before_the_next, _RESTART),
    Limit(_back_in_time, _RESTART),
    Limit(_progress, (*STALL, *_RESTART)),
    Limit(_price, (*STALL, *_RESTART, "machine.usd_per_gpu_hour")),
)
"""In the order in which they are asked; each chooses among the designs that the ones before have left."""
