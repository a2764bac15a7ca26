"""Where the lost time goes: by cause, by failure class, in GPU-hours, money and MFU points.

Owns:      the split of 1 - ETTR. Promises: the parts add up to the loss of the exact form.
Relies on: first-order proportions (C/tau, lam tau/2, lam R ...), scaled so that the sum is exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hinan.plan.decision.design import Design, answers, lags_s, restart_parts_s
from hinan.plan.decision.variants import drains_s
from hinan.plan.model.failures import DAY_S, FailureClass, Tier
from hinan.plan.model.scenario import Scenario

SPLIT_LIMIT = 0.7
"""Below this ETTR first-order proportions were seen up to 2 points of all time from what a simulation books."""


@dataclass(frozen=True)
class Loss:
    """One part of the loss."""

    ratio: float
    """Share of all GPU time [0-1]."""
    gpu_hours_per_day: float
    usd_per_day: float
    mfu_points: float
    """Percentage points that come off the MFU of undisturbed training."""


@dataclass(frozen=True)
class ClassAnswer:
    """What a failure class means for the job: from where it comes back, what is lost, how long it takes."""

    failure: FailureClass
    tier: Tier
    per_day: float
    rpo_mean_s: float
    rpo_worst_s: float
    rto_s: float
    restart_parts_s: dict[str, float]
    """What `rto_s` is made of: detect, reschedule, load, init, replay; or the restart given as a whole."""


def class_answers(scenario: Scenario, design: Design) -> list[ClassAnswer]:
    """RPO and RTO of each class and tier that happen. RPO counts training time lost, RTO the way back to a new step."""
    found: dict[tuple[FailureClass, Tier], float] = {}
    for failure, per_s, tier in answers(scenario, design.variant.tiers):
        if tier is not None:
            found[failure, tier] = found.get((failure, tier), 0.0) + per_s
    rows = []
    for (failure, tier), per_s in found.items():
        lag_s, worst_lag_s = lags_s(scenario, failure, drains_s(scenario, design.variant)[design.variant.tiers.index(tier)])
        tau_s = design.interval_s(tier)
        parts_s = restart_parts_s(scenario, failure, tier)
        rto_s = sum(parts_s.values())
        rows.append(ClassAnswer(failure, tier, per_s * 86_400, lag_s + tau_s / 2, worst_lag_s + tau_s, rto_s, parts_s))
    return rows


def lost(scenario: Scenario, design: Design, *, mfu_ratio: float = 0.4) -> dict[str, Loss]:
    """The loss by cause: stall, interference, redo, the parts of the restart, verification."""
    return _scaled(scenario, design, _by_cause(scenario, design), mfu_ratio)


def lost_by_class(scenario: Scenario, design: Design, *, mfu_ratio: float = 0.4) -> dict[str, Loss]:
    """The loss by failure class; `saving` is what is paid although nothing fails."""
    shares: dict[str, float] = {"saving": 0.0}
    for level, tau_s in zip(design.levels, design.pattern.intervals_s(), strict=True):
        shares["saving"] += level.stall_s / tau_s
        for cause in level.causes:
            share = cause.per_s * (cause.lag_s + tau_s / 2 + cause.restart_s)
            shares[cause.name] = shares.get(cause.name, 0.0) + share
    shares["saving"] += design.verify_ratio
    return _scaled(scenario, design, shares, mfu_ratio)


def nodes_out(scenario: Scenario) -> float:
    """Nodes out for repair at a time, in the mean. Process, software and whole-job failures restart in place."""
    taken = sum(scenario.failures.per_node_day.get(failure, 0.0) for failure in _TAKES_NODE)
    return scenario.nodes * taken * scenario.restart.repair_s / DAY_S


_TAKES_NODE = (FailureClass.GPU, FailureClass.MEMORY, FailureClass.NODE, FailureClass.RACK, FailureClass.SILENT)


def _by_cause(scenario: Scenario, design: Design) -> dict[str, float]:
    shares = dict.fromkeys(("stall", "interference", "redo"), 0.0)
    for level, tau_s in zip(design.levels, design.pattern.intervals_s(), strict=True):
        slow_s = min(level.stall_s, _slow_down_s(scenario, design, level.name))
        shares["stall"] += (level.stall_s - slow_s) / tau_s
        shares["interference"] += slow_s / tau_s
        shares["redo"] += sum(cause.per_s * (cause.lag_s + tau_s / 2) for cause in level.causes)
    for failure, per_s, tier in answers(scenario, design.variant.tiers):
        for part, part_s in restart_parts_s(scenario, failure, tier or Tier.SHARED).items():
            shares[part] = shares.get(part, 0.0) + per_s * part_s
    shares["verify"] = design.verify_ratio
    return shares


def _slow_down_s(scenario: Scenario, design: Design, tier: str) -> float:
    return scenario.store.interference_ratio * drains_s(scenario, design.variant)[design.variant.tiers.index(Tier(tier))]


def _scaled(scenario: Scenario, design: Design, shares: Mapping[str, float], mfu_ratio: float) -> dict[str, Loss]:
    whole = sum(shares.values())
    scale = (1 - design.ettr) / whole if whole > 0 else 0.0
    hours = scenario.job.gpus * 24.0
    price = scenario.machine.usd_per_gpu_hour
    return {
        name: Loss(share * scale, share * scale * hours, share * scale * hours * price, share * scale * mfu_ratio * 100)
        for name, share in shares.items()
    }
