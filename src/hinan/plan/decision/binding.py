"""The binding constraint: what holds the design back, and what relaxing it by a tenth buys.

Owns:      the list of knobs and their relaxation.
Promises:  gains come from solving again, not from a derivative. RAM, the designer's own limits and the knob that binds are
           planned again over all ways to build it; the others hold the way, which is faster, and at most says too little.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from hinan.plan.decision.choice import best_design
from hinan.plan.decision.design import Design, finish, restarts_s
from hinan.plan.decision.variants import ram_of, variants
from hinan.plan.intervals.first_order import stall_ratio
from hinan.plan.model import costs
from hinan.plan.model.checks import Infeasible
from hinan.plan.model.scenario import RestartParts, Scenario

_GAIN_THAT_COUNTS = 1e-6
_ROUNDING = 1e-12
_HARD_SHARE = 0.25
"""A limit the design sits on is named before a knob that gains more, but not where that gains over four times as much."""


@dataclass(frozen=True)
class Knob:
    """One thing that could be better, and what 10 % of it buys."""

    name: str
    what: str
    gain_ratio: float
    """More kept training, as a share of all time, after relaxing it by a tenth and solving again. Below zero where that
    loses: behind a shorter step less of a copy hides."""
    hard: bool
    """Whether the design touches this limit (an interval that sits on it, RAM that is full)."""


def _machine(scenario: Scenario, **factors: float) -> Scenario:
    values = {name: getattr(scenario.machine, name) * factor for name, factor in factors.items()}
    return replace(scenario, machine=replace(scenario.machine, **values))


def _stall(scenario: Scenario, *, mode: str) -> Scenario:
    """A tenth less of all that the stall is made of: what does not hide, and the floor."""
    job = scenario.job
    given = None if job.stall_s is None else job.stall_s * 0.9
    hidden = 1 - (1 - costs.hidden_ratio(scenario, mode)) * 0.9
    return replace(scenario, job=replace(job, stall_s=given, floor_s=job.floor_s * 0.9, hidden_ratio=hidden))


def _storage(scenario: Scenario) -> Scenario:
    store = scenario.store
    drain_s = None if store.drain_s is None else store.drain_s / 1.1
    faster = replace(
        store,
        write_bytes_per_s=store.write_bytes_per_s * 1.1,
        read_bytes_per_s=store.read_bytes_per_s * 1.1,
        drain_s=drain_s,
    )
    return _machine(replace(scenario, store=faster), nvme_write_bytes_per_s=1.1, nvme_read_bytes_per_s=1.1)


def _detection(scenario: Scenario) -> Scenario:
    restart = scenario.restart
    if restart.total_s is not None:
        return scenario
    parts = {k: RestartParts(p.detect_s * 0.9, p.reschedule_s, p.init_s) for k, p in restart.parts.items()}
    if restart.detection_latency_s is None:  # it follows from what a verification costs: that knob's business
        return replace(scenario, restart=replace(restart, parts=parts))
    # Seen sooner for the same share of training, or the knob would pay for verifying more often.
    sooner = replace(
        restart, parts=parts, detection_latency_s=restart.detection_latency_s * 0.9, verify_s=restart.verify_s * 0.9
    )
    return replace(scenario, restart=sooner)


def _verification(scenario: Scenario) -> Scenario:
    """Cheaper by a tenth; where the planner chooses the cadence it verifies more often too, so that less is redone."""
    return replace(scenario, restart=replace(scenario.restart, verify_s=scenario.restart.verify_s * 0.9))


def _restart(scenario: Scenario) -> Scenario:
    restart = scenario.restart
    total_s = None if restart.total_s is None else restart.total_s * 0.9
    parts = {k: RestartParts(p.detect_s, p.reschedule_s * 0.9, p.init_s * 0.9) for k, p in restart.parts.items()}
    growth_s = restart.init_per_1k_nodes_s * 0.9
    return replace(scenario, restart=replace(restart, total_s=total_s, parts=parts, init_per_1k_nodes_s=growth_s))


def _ram(scenario: Scenario) -> Scenario:
    demands = scenario.demands
    budget = demands.ram_budget_bytes
    if budget is not None:
        return replace(scenario, demands=replace(demands, ram_budget_bytes=budget * 1.1))
    return _machine(scenario, ram_bytes=1.1)


def _step(scenario: Scenario) -> Scenario:
    return replace(scenario, job=replace(scenario.job, step_s=scenario.job.step_s * 0.9))


def _failures(scenario: Scenario) -> Scenario:
    return replace(scenario, failures=scenario.failures.scaled(1 / 1.1))


_Relaxation = tuple[str, Callable[[Scenario], Scenario]]
_KNOBS: Mapping[str, _Relaxation] = {
    "storage bandwidth": ("a tenth more bandwidth of NVMe and store, both ways", _storage),
    "pcie": ("a tenth more bandwidth between HBM and RAM", lambda s: _machine(s, d2h_bytes_per_s=1.1)),
    "numa": ("a tenth more memory bandwidth of the node", lambda s: _machine(s, dram_bytes_per_s=1.1)),
    "network": ("a tenth more network bandwidth", lambda s: _machine(s, nic_bytes_per_s=1.1)),
    "ram slots": ("a tenth more RAM for evacuation", _ram),
    "step time": ("steps a tenth shorter, so that intervals can be finer", _step),
    "detection": ("failures seen in a tenth less time", _detection),
    "verification": ("a verification that takes a tenth less training time", _verification),
    "restart": ("rescheduling and initialisation a tenth shorter", _restart),
    "failure rate": ("a tenth longer between failures", _failures),
}


def _limits(scenario: Scenario) -> dict[str, _Relaxation]:
    """The designer's own limits, those that are given. A limit on all that is lost is none of them: what is chosen keeps
    most anyway."""
    fields = {
        "max-redo": ("a tenth more redo allowed", "max_redo_s", math.inf),
        "max-stall": ("a tenth more stall allowed", "max_stall_ratio", 1.0),
        "max-rto": ("a tenth longer restarts allowed", "max_rto_s", math.inf),
    }
    return {
        name: (what, partial(_allowing, field=field, most=most))
        for name, (what, field, most) in fields.items()
        if getattr(scenario.demands, field) is not None
    }


def _allowing(scenario: Scenario, *, field: str, most: float) -> Scenario:
    limit = min(getattr(scenario.demands, field) * 1.1, most)
    return replace(scenario, demands=replace(scenario.demands, **{field: limit}))


_OPENING = ("ram slots", "max-redo", "max-stall", "max-rto")
"""These may open a way that was closed: planned again whether they bind or not."""
_OUTSIDE = ("failure rate",)
"""Not a constraint of the design: shown for comparison, never called binding."""


def knobs(scenario: Scenario, design: Design) -> list[Knob]:
    """All knobs, the most rewarding first."""
    hard = hard_limits(scenario, design)
    found = []
    stall = ("a tenth less stall per evacuation", partial(_stall, mode=design.variant.mode))
    relaxations: Mapping[str, _Relaxation] = {"stall": stall, **_KNOBS, **_limits(scenario)}
    for name, (what, relax) in relaxations.items():
        try:
            relaxed = relax(scenario)
            kept = (best_design(relaxed) if name in _OPENING else finish(relaxed, design.variant)).ettr
        except Infeasible:
            continue
        found.append(Knob(name, what, _gain(design, kept), name in hard))
    if "drain" in hard:
        storage = next(knob for knob in found if knob.name == "storage bandwidth")
        found.append(Knob("drain", "drains a tenth shorter", storage.gain_ratio, True))
    binds = binding(found)
    if binds is not None and binds.name not in (*_OPENING, "stall"):  # of another way a tenth of the stall is another stall
        _, relax = relaxations["storage bandwidth" if binds.name == "drain" else binds.name]
        with suppress(Infeasible):  # what helps one figure may break a limit on another
            again = _gain(design, best_design(relax(scenario)).ettr)
            found[found.index(binds)] = replace(binds, gain_ratio=max(binds.gain_ratio, again))
    return sorted(found, key=lambda knob: -knob.gain_ratio)


def _gain(design: Design, kept: float) -> float:
    gain = kept - design.ettr
    return 0.0 if abs(gain) < _ROUNDING else gain


def hard_limits(scenario: Scenario, design: Design) -> set[str]:
    """Limits that the design sits on: drain, step time, RAM slots, the designer's own limits."""
    limits = set()
    for level, tau_s in zip(design.levels, design.pattern.intervals_s(), strict=True):
        below_s = tau_s - (design.pattern.work_s if level is not design.levels[0] else 0.0)
        if (
            level.least_interval_s > 0
            and level.causes
            and below_s < level.least_interval_s * 1.001
            and _wanted_s(level.stall_s, level.per_s) < level.least_interval_s
        ):
            limits.add("drain")
        if math.isfinite(level.most_interval_s) and level.causes and tau_s > level.most_interval_s * 0.9:
            limits.add("max-redo")
    if scenario.job.step_known and design.pattern.work_s <= scenario.job.step_s * 1.001:
        limits.add("step time")
    richest = next(iter(variants(scenario)), design.variant)
    chosen = design.variant
    poorer = (len(richest.own_slots), len(richest.tiers)) != (len(chosen.own_slots), len(chosen.tiers))
    if poorer and not ram_of(scenario, richest).fits:
        limits.add("ram slots")
    limit = scenario.demands.max_stall_ratio
    if limit is not None and stall_ratio(design.levels, design.pattern.intervals_s()) > limit * 0.9:
        limits.add("max-stall")
    longest_s = max(restarts_s(scenario, chosen.tiers).values())
    if scenario.demands.max_rto_s is not None and longest_s > scenario.demands.max_rto_s * 0.9:
        limits.add("max-rto")
    return limits


def _wanted_s(cost_s: float, per_s: float) -> float:
    return math.sqrt(2 * cost_s / per_s) if per_s > 0 else math.inf


def binding(found: list[Knob]) -> Knob | None:
    """The constraint that counts: a limit the design sits on if relaxing it pays about as much as anything, else the most
    rewarding knob."""
    own = [knob for knob in found if knob.name not in _OUTSIDE]
    enough = max([_GAIN_THAT_COUNTS, *(knob.gain_ratio * _HARD_SHARE for knob in own)])
    hard = [knob for knob in own if knob.hard and knob.gain_ratio > enough]
    drain = next((knob for knob in hard if knob.name == "drain"), None)
    if drain is not None:
        return drain
    pick = hard or own
    return max(pick, key=lambda knob: knob.gain_ratio, default=None)
