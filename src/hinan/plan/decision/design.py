"""From a scenario and a variant to levels, and to the design: its best intervals, and what it keeps.

Owns:      which tier answers which failure, what a restart takes, and the bounds that demands put on intervals.
Relies on: `variants.py` for what there is, `costs.py` for seconds, `joint.py` for intervals.
Never:     chooses between variants; `choice.py` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hinan.plan.decision.variants import Variant, drains_s, least_intervals_s, ram_used
from hinan.plan.intervals.exact import exact_ettr
from hinan.plan.intervals.formulas import mean_unseen_s, young_interval_s
from hinan.plan.intervals.joint import solve, unrounded_intervals_s, whole_steps
from hinan.plan.intervals.levels import Cause, Level, Pattern
from hinan.plan.intervals.space import Bounds
from hinan.plan.model import costs
from hinan.plan.model.checks import Infeasible
from hinan.plan.model.failures import DAY_S, FailureClass, Tier, survives
from hinan.plan.model.scenario import Scenario

FAIL_STOP = tuple(failure for failure in FailureClass if failure is not FailureClass.SILENT)


@dataclass(frozen=True)
class Design:
    """A variant with its intervals and what it keeps."""

    variant: Variant
    levels: tuple[Level, ...]
    pattern: Pattern
    verify_every_s: float | None
    verify_ratio: float
    """Share of training that verification takes."""
    ettr: float
    """Exact form, verification included."""
    ram: costs.Ram

    def interval_s(self, tier: Tier) -> float:
        """Training time between two saves to `tier` [s]."""
        return self.pattern.intervals_s()[self.variant.tiers.index(tier)]


def rate_per_s(scenario: Scenario, failure: FailureClass) -> float:
    """Failures of one class per second of the job."""
    return scenario.failures.per_node_day.get(failure, 0.0) * scenario.nodes / DAY_S


def verification(scenario: Scenario) -> tuple[float | None, float]:
    """How often to verify [s], and the share of training it takes.

    Young's interval for it, sqrt(2 V / lam_silent): a verification that finds nothing costs V, and a corruption half a
    cadence. (One that is tied to a save loses a whole interval: half of it before the corruption.)
    """
    silent_per_s = rate_per_s(scenario, FailureClass.SILENT)
    if silent_per_s == 0:
        return None, 0.0
    verify_s = scenario.restart.verify_s
    every_s = scenario.restart.detection_latency_s or young_interval_s(stall_s=verify_s, mtti_s=1 / silent_per_s)
    return every_s, verify_s / every_s


def lags_s(scenario: Scenario, failure: FailureClass, drain_s: float) -> tuple[float, float]:
    """How old the newest copy is that a failure leaves on a tier, beside part of an interval: mean, and at worst [s]."""
    cadence_s, _ = verification(scenario)
    if failure is not FailureClass.SILENT or cadence_s is None:
        return drain_s, drain_s
    return mean_unseen_s(cadence_s=cadence_s, drain_s=drain_s), max(cadence_s, drain_s)


def restart_parts_s(scenario: Scenario, failure: FailureClass, tier: Tier) -> dict[str, float]:
    """Detect, reschedule, load, init and replay for one class restored from one tier [s]."""
    if scenario.restart.total_s is not None:
        return {"restart": scenario.restart.total_s}
    parts = scenario.restart.parts[failure]
    return {
        "detect": parts.detect_s,
        "reschedule": parts.reschedule_s,
        "load": costs.load_s(scenario, tier),
        "init": parts.init_s + scenario.restart.init_per_1k_nodes_s * scenario.nodes / 1000,
        "replay": scenario.restart.replay_s,
    }


def answers(scenario: Scenario, tiers: Sequence[Tier]) -> Iterator[tuple[FailureClass, float, Tier | None]]:
    """Each class that happens, failures per second, and the fastest tier in use with a usable copy (None: no tier).

    Classes that take the nodes away for good in some cases come in two parts, with and without returning nodes.
    """
    for failure in FailureClass:
        per_s = rate_per_s(scenario, failure)
        back = scenario.restart.nodes_return_ratio
        for share, nodes_return in ((back, True), (1 - back, False)):
            tier = next((t for t in tiers if t in survives(failure, nodes_return=nodes_return)), None)
            if per_s * share > 0:
                yield failure, per_s * share, tier


def build_levels(scenario: Scenario, variant: Variant) -> tuple[Level, ...]:
    """Levels of a variant, with costs, lags, restarts and bounds.

    Raises:
        Infeasible: a failure that happens would leave no copy.
    """
    per_s: dict[tuple[Tier, FailureClass], float] = {}
    for failure, part_per_s, tier in answers(scenario, variant.tiers):
        if tier is None:
            raise no_copy(failure, variant.tiers)
        per_s[tier, failure] = per_s.get((tier, failure), 0.0) + part_per_s
    levels = []
    for tier, drain_s in zip(variant.tiers, drains_s(scenario, variant), strict=True):
        causes = [
            Cause(
                failure,
                rate,
                sum(restart_parts_s(scenario, failure, tier).values()),
                lags_s(scenario, failure, drain_s)[0],
            )
            for (at, failure), rate in per_s.items()
            if at is tier
        ]
        levels.append(_level(scenario, variant, tier, causes))
    return tuple(levels)


def no_copy(failure: FailureClass, tiers: Sequence[Tier]) -> Infeasible:
    """A failure that happens would leave nothing to come back to."""
    return Infeasible(
        [f"no copy survives a failure of class {failure} on {', '.join(tiers)} alone"],
        {"tiers": ",".join((*tiers, Tier.SHARED))},
    )


def _level(scenario: Scenario, variant: Variant, tier: Tier, causes: list[Cause]) -> Level:
    drains = drains_s(scenario, variant)
    stall_s = costs.stall_s(scenario, variant.mode) if tier is variant.tiers[0] else 0.0
    stall_s += scenario.store.interference_ratio * drains[variant.tiers.index(tier)]
    least_s = least_intervals_s(scenario, variant)[variant.tiers.index(tier)]
    most_s = float("inf")
    limit_s = scenario.demands.max_redo_s
    if limit_s is not None:
        lags = [cause.lag_s for cause in causes if cause.name != FailureClass.SILENT]
        if lags:
            most_s = limit_s - max(lags)
    if not causes:  # whatever has slots of its own: more of them only widen ranges
        most_s = min(most_s, max(scenario.demands.commit_within_s, least_s, *drains))
    return Level(tier, stall_s, tuple(causes), least_s, max(most_s, 0.0))


def bounds_of(scenario: Scenario) -> Bounds:
    """The bounds that the designer's words put on the search. A given interval is taken in whole steps."""
    quantum_s = scenario.job.step_s if scenario.job.step_known else None
    fixed_s = scenario.demands.interval_s
    if fixed_s is not None and quantum_s is not None:
        fixed_s = whole_steps(fixed_s, quantum_s) * quantum_s
    return Bounds(quantum_s=quantum_s, max_stall_ratio=scenario.demands.max_stall_ratio, fixed_first_s=fixed_s)


def finish(scenario: Scenario, variant: Variant, *, pattern: Pattern | None = None) -> Design:
    """A variant with its best intervals (or the given ones), and what it keeps.

    Raises:
        Infeasible: its bounds contradict each other.
    """
    levels = build_levels(scenario, variant)
    pattern = pattern or solve(levels, bounds_of(scenario))
    every_s, share = verification(scenario)
    ettr = exact_ettr(levels, pattern) / (1 + share)
    return Design(variant, levels, pattern, every_s, share, ettr, ram_used(scenario, variant, pattern.intervals_s()))


def drain_binds(scenario: Scenario, variant: Variant) -> bool:
    """Whether the drain to the store sets the interval of its tier, to first order: within all limits, also that on stall,
    a shorter one would be better.

    Raises:
        Infeasible: the limits contradict each other.
    """
    levels = build_levels(scenario, variant)
    top = levels[-1]
    if variant.tiers[-1] is not Tier.SHARED or top.per_s == 0 or top.least_interval_s == 0:
        return False
    return unrounded_intervals_s(levels, bounds_of(scenario))[-1] <= top.least_interval_s * (1 + 1e-9)


def restarts_s(scenario: Scenario, tiers: Sequence[Tier]) -> dict[FailureClass, float]:
    """Longest restart of each class that happens, with these tiers in use [s]."""
    longest: dict[FailureClass, float] = {}
    for failure, _, tier in answers(scenario, tiers):
        if tier is not None:
            whole_s = sum(restart_parts_s(scenario, failure, tier).values())
            longest[failure] = max(longest.get(failure, 0.0), whole_s)
    return longest
