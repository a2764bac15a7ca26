"""What must be known beside a plan: guesses that it rests on, and what was asked for and is not there.

Owns:      the sentences about a question and its design, whoever shows them: the answer, or a simulated year.
Never:     warns of a witness; `answer.py` does, where there is one.
"""

from __future__ import annotations

from collections.abc import Sequence

from hinan.core.units import format_seconds
from hinan.plan.decision.design import Design
from hinan.plan.decision.losses import class_answers, nodes_out
from hinan.plan.decision.modes import ModeCost, why_not_ram
from hinan.plan.decision.variants import Variant, ram_of
from hinan.plan.intervals import formulas
from hinan.plan.model import costs
from hinan.plan.model.failures import DAY_S, FailureClass, Tier
from hinan.plan.model.scenario import Scenario


def caveats(scenario: Scenario, design: Design, modes: Sequence[ModeCost]) -> list[str]:
    """Of the question: what was guessed, what is beyond the sources; of its design: what was asked for and is not there."""
    found = [*scenario.notes]
    if (
        scenario.mtti_origin is None
        and scenario.failures.name != "trace"
        and (warning := formulas.small_job_warning(scenario.job.gpus))
    ):
        found.append(warning)
    if scenario.failures.warning:
        found.append(f"{scenario.failures.name}: {scenario.failures.warning}")
    if nodes_out(scenario) > scenario.nodes:
        found.append(
            f"nodes fail so often that with repairs of {format_seconds(scenario.restart.repair_s)} more would be out than "
            "the job has: most of such failures need no repair; give --repair or --failures"
        )
    if not scenario.job.step_known and design.pattern.work_s < scenario.job.step_s:
        found.append(
            f"an interval of {format_seconds(design.pattern.work_s)} is shorter than the step of {scenario.job.step_s:g} s "
            "that was guessed: nothing is saved more often than every step; give --step"
        )
    elif not scenario.job.step_known:
        found.append(f"steps are counted with a guessed {scenario.job.step_s:g} s; give --step")
    if design.variant.mode != "ram":
        found.append(f"{why_not_ram(scenario, modes, design.variant.mode)}; the optimizer waits for the drives")
    given_s, taken_s = scenario.demands.interval_s, design.pattern.work_s
    if given_s is not None and abs(taken_s - given_s) > 1e-6 * given_s:
        found.append(f"the interval given is taken as {taken_s / scenario.job.step_s:.0f} whole steps, {taken_s:.6g} s")
    found += _unkept(scenario, design)
    top = design.interval_s(design.variant.tiers[-1])
    if top > DAY_S:
        found.append("the slowest tier is written less than once a day: failure tables forget disasters")
    return found


def _unkept(scenario: Scenario, design: Design) -> list[str]:
    """What was asked for and is not there."""
    demands, mode = scenario.demands, design.variant.mode
    found = []
    if demands.peer_copies and "peer_copies" in demands.origins and not design.variant.peers:
        tiers = (Tier.RAM, Tier.PEER, Tier.SHARED) if demands.tiers is None else demands.tiers
        ram, why_not = ram_of(scenario, Variant("ram", tiers)), costs.available_tiers(scenario, mode)[Tier.PEER]
        least = f"{ram.slots} slots and {ram.peer_slots} of peers need {ram.needed_bytes / 1e9:.4g} GB of RAM a node"
        there = f"there are {ram.budget_bytes / 1e9:.4g} GB"
        if not ram.fits:
            why = f"{least}, {there}"
        else:
            why = why_not or "without them more is kept (--tiers ram,peer,shared asks for them)"
        found.append(f"--peers {demands.peer_copies}: no copy is kept on peers: {why}")
    if demands.tiers is None and mode == "ram" and Tier.RAM not in design.variant.tiers:
        found.append(
            "images only pass through RAM, so a killed process comes back from the next tier: where restarts lose most, "
            "the exact form may favour one tier for all by up to 0.003; --tiers ram,... says what keeping one there keeps"
        )
    silent = [each for each in class_answers(scenario, design) if each.failure is FailureClass.SILENT]
    worst_s = max((each.rpo_worst_s for each in silent), default=0.0)
    if demands.max_redo_s is not None and worst_s > demands.max_redo_s:
        found.append(
            f"--max-redo does not hold silent corruption: noticed late, it costs up to {format_seconds(worst_s)}; no "
            "interval shortens that, earlier detection does (--latency, --verify)"
        )
    return found
