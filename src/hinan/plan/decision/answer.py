"""The whole answer to one question, as a value and as JSON.

Owns:      the assembly; computes nothing that another module owns.
Promises:  `to_json` has the same keys for every question; every interval is in seconds and in whole steps.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from hinan.plan.decision.binding import Knob, binding, knobs
from hinan.plan.decision.caveats import caveats
from hinan.plan.decision.choice import best_design
from hinan.plan.decision.design import Design, finish
from hinan.plan.decision.losses import SPLIT_LIMIT, ClassAnswer, Loss, class_answers, lost, lost_by_class, nodes_out
from hinan.plan.decision.modes import ModeCost, compare_modes, stall_limit
from hinan.plan.decision.variants import slot_sets, waits_for_save
from hinan.plan.decision.witnesses import Witnesses, question
from hinan.plan.intervals import formulas
from hinan.plan.intervals.joint import whole_steps
from hinan.plan.intervals.montecarlo import Arrivals
from hinan.plan.model import costs
from hinan.plan.model.checks import Infeasible
from hinan.plan.model.failures import Tier
from hinan.plan.model.scenario import Scenario


@dataclass(frozen=True)
class TierAnswer:
    """One tier in use."""

    tier: Tier
    interval_s: float
    interval_steps: int
    stall_s: float
    drain_s: float
    limited_by: str
    """What keeps the interval from being shorter or the stall from being less: a link, slots, or who gave the stall."""
    drain_limited_by: str
    generations: int


@dataclass(frozen=True)
class Judged:
    """A given interval against the one that is recommended without it."""

    interval_s: float
    best_interval_s: float
    ettr: float
    best_ettr: float
    """A hair less than `ettr` where a way that keeps images in RAM was preferred (`choice.py`), or in whole numbers."""
    right_where: str

    @property
    def costs_nothing(self) -> bool:
        """Whether the given one keeps no less."""
        return self.ettr >= self.best_ettr


@dataclass(frozen=True)
class Answer:
    """Everything a designer asked for."""

    scenario: Scenario
    design: Design
    tiers: tuple[TierAnswer, ...]
    unused: dict[str, str]
    witnesses: Witnesses
    lost: dict[str, Loss]
    lost_by_class: dict[str, Loss]
    classes: list[ClassAnswer]
    knobs: list[Knob]
    binding: Knob | None
    modes: list[ModeCost]
    spares: int
    judged: Judged | None
    warnings: list[str]


def answer(scenario: Scenario, design: Design, *, seed: int | None = None, arrivals: Arrivals | None = None) -> Answer:
    """Everything about the best design of a scenario. Without `arrivals` the simulated failures are exponential, and
    without `seed` it follows from the design."""
    found, modes = knobs(scenario, design), compare_modes(scenario)
    witnesses = question(design, seed=seed, arrivals=arrivals)
    shown = design if witnesses.exact is not None else replace(design, ettr=witnesses.simulated)
    return Answer(
        scenario=scenario,
        design=shown,
        tiers=tuple(_tier(scenario, design, tier) for tier in design.variant.tiers),
        unused=_unused(scenario, design),
        witnesses=witnesses,
        lost=lost(scenario, shown),
        lost_by_class=lost_by_class(scenario, shown),
        classes=class_answers(scenario, design),
        knobs=found,
        binding=binding(found),
        modes=modes,
        spares=spares(scenario),
        judged=_judge(scenario, design),
        warnings=[*caveats(scenario, design, modes), *_warnings(witnesses)],
    )


def _tier(scenario: Scenario, design: Design, tier: Tier) -> TierAnswer:
    level = design.levels[design.variant.tiers.index(tier)]
    interval_s = design.interval_s(tier)
    drain_s, drain_link = costs.drain(scenario, tier, design.variant.mode, peers=design.variant.peers)
    link = drain_link
    if tier is design.variant.tiers[0]:
        link = stall_limit(scenario, design.variant.mode)
        drain_s = 0.0 if waits_for_save(scenario) else drain_s
    if slot_sets(scenario, design.variant, tier, interval_s) and _shorter_with_slots(scenario, design, tier):
        link = "ram slots"
    latency_s = design.verify_every_s or 0.0
    generations = 1
    if tier is Tier.SHARED:
        generations = formulas.retention_generations(detection_latency_s=latency_s, interval_s=interval_s)
    steps = whole_steps(interval_s, scenario.job.step_s)
    return TierAnswer(tier, interval_s, steps, level.stall_s, drain_s, link, drain_link, generations)


def _shorter_with_slots(scenario: Scenario, design: Design, tier: Tier) -> bool:
    """Whether a slot for every drain would shorten it: an interval near what slots allow may be as long anyway."""
    free = replace(design.variant, own_slots=design.variant.tiers)
    return finish(scenario, free).interval_s(tier) < design.interval_s(tier) * (1 - 1e-9)


def _unused(scenario: Scenario, design: Design) -> dict[str, str]:
    reasons = costs.available_tiers(scenario, design.variant.mode)
    return {
        str(tier): reasons[tier] or ("not asked for" if scenario.demands.tiers else "costs more than it saves, or no room")
        for tier in Tier
        if tier not in design.variant.tiers
    }


def spares(scenario: Scenario) -> int:
    """Spare nodes that suffice 99 % of the time: quantile of the Poisson number of nodes out for repair.

    Only failures that take a node out count; software and process failures restart in place.
    """
    return formulas.spares_quantile(mean_out=nodes_out(scenario))


def _judge(scenario: Scenario, design: Design) -> Judged | None:
    given = scenario.demands.interval_s
    if given is None:
        return None
    free = best_design(replace(scenario, demands=replace(scenario.demands, interval_s=None)))
    product = given**2 / 2
    mtti_s = 1 / design.levels[0].per_s if design.levels[0].per_s > 0 else scenario.mtti_s
    return Judged(
        given,
        free.pattern.work_s,
        design.ettr,
        free.ettr,
        f"{given:.4g} s is right where stall x MTTI = {product:.6g} s^2 (of the failures this tier answers); "
        f"here it is {design.levels[0].stall_s * mtti_s:.4g} s^2",
    )


def _warnings(witnesses: Witnesses) -> list[str]:
    found = []
    if witnesses.closed_form_refused:
        found.append(f"closed form refused: {witnesses.closed_form_refused}")
    if witnesses.exact_refused:
        found.append(f"exact form refused: {witnesses.exact_refused}; the split of the loss is of the simulation's")
    elif not witnesses.agree:
        found.append("simulation and exact form differ: the failures simulated are not the independent ones assumed")
    if (witnesses.simulated if witnesses.exact is None else witnesses.exact) < SPLIT_LIMIT:
        found.append(
            f"the loss is split in first-order proportions: below an ETTR of {SPLIT_LIMIT} a row may be 2 points off"
        )
    return found


def to_json(found: Answer) -> dict[str, Any]:
    """The answer as plain values, the contract of `hinan plan --json`."""
    scenario, witnesses = found.scenario, found.witnesses
    best = found.binding
    return {
        "feasible": True,
        "gpus": scenario.job.gpus,
        "nodes": scenario.nodes,
        "mtti_s": scenario.mtti_s,
        "state_bytes": scenario.job.state_bytes,
        "mode": found.design.variant.mode,
        "tiers": [asdict(tier) for tier in found.tiers],
        "unused_tiers": found.unused,
        "slots": found.design.ram.slots,
        "ram": {**asdict(found.design.ram), "needed_bytes": found.design.ram.needed_bytes},
        "verify_every_s": found.design.verify_every_s,
        "spares": found.spares,
        "ettr": {
            "closed_form": witnesses.closed_form,
            "closed_form_refused": witnesses.closed_form_refused,
            "exact": witnesses.exact,
            "exact_refused": witnesses.exact_refused,
            "monte_carlo": witnesses.simulated,
            "monte_carlo_stderr": witnesses.simulated_stderr,
            "monte_carlo_low": witnesses.simulated - 1.96 * witnesses.simulated_stderr,
            "monte_carlo_high": witnesses.simulated + 1.96 * witnesses.simulated_stderr,
            "agree": witnesses.agree,
            "apart_stderrs": witnesses.apart_stderrs,
            "first_apart_stderrs": witnesses.first_apart_stderrs,
            "seed": witnesses.seed,
        },
        "binding": None if best is None else asdict(best),
        "knobs": [asdict(knob) for knob in found.knobs],
        "lost": {name: asdict(loss) for name, loss in found.lost.items()},
        "lost_by_class": {name: asdict(loss) for name, loss in found.lost_by_class.items()},
        "classes": [asdict(each) for each in found.classes],
        "modes": [asdict(mode) for mode in found.modes],
        "judged": None if found.judged is None else asdict(found.judged),
        "failures": {
            "name": scenario.failures.name,
            "per_node_day": {str(k): v for k, v in scenario.failures.per_node_day.items()},
            "source": scenario.failures.source,
        },
        "inputs": {
            name: {"value": scenario.shown(name), "kind": str(origin.kind), "source": origin.source}
            for name, origin in scenario.origins().items()
        },
        "warnings": found.warnings,
    }


def refusal_json(error: Infeasible) -> dict[str, Any]:
    """What is impossible and what is nearest, for `--json`."""
    return {"feasible": False, "impossible": error.impossible, "nearest": error.nearest}
