"""The decision in sentences: the formula, the numbers put in, where they are from, and what would flip it.

Owns:      the sentences. Computes only break-even points of the decision at hand.
"""

from __future__ import annotations

from hinan.core.units import format_bytes, format_seconds
from hinan.plan.decision.answer import Answer
from hinan.plan.decision.flips import drain_sets_from_gpus, each_step_below_s
from hinan.plan.decision.losses import SPLIT_LIMIT
from hinan.plan.decision.modes import why_not_ram
from hinan.plan.decision.witnesses import AGREE_STDERRS
from hinan.plan.intervals import formulas
from hinan.plan.model.origin import Kind
from hinan.plan.model.scenario import Shown


def explain(found: Answer, *, inputs: bool = True) -> str:
    """Paragraphs for a designer who must defend the interval."""
    parts = [
        *_intervals(found),
        _failures(found),
        _witnesses(found),
        _split(found),
        _restarts(found),
        *_modes(found),
        *_flips(found),
        _judged(found),
        _inputs(found) if inputs else "",
    ]
    return "\n\n".join(part for part in parts if part)


def _intervals(found: Answer) -> list[str]:
    sentences = []
    for tier, level in zip(found.tiers, found.design.levels, strict=True):
        served = ", ".join(cause.name for cause in level.causes) or "no failure of the table"
        if level.per_s == 0:
            sentences.append(
                f"{tier.tier}: every {format_seconds(tier.interval_s)}. It answers {served}; it is written as the "
                "promise that outlives the hosts."
            )
            continue
        mtti_s = 1 / level.per_s
        wanted_s = formulas.young_interval_s(stall_s=level.stall_s, mtti_s=mtti_s) if level.stall_s > 0 else 0.0
        sentence = (
            f"{tier.tier}: every {format_seconds(tier.interval_s)} ({tier.interval_steps} steps). It answers {served}, "
            f"one every {format_seconds(mtti_s)}. Young: sqrt(2 x {level.stall_s:.4g} s x {mtti_s:.5g} s) = "
            f"{wanted_s:.4g} s alone"
        )
        if tier.limited_by == "ram slots":
            sentence += (
                f"; saves cannot be closer than {format_seconds(level.least_interval_s)}: only then the drain of an "
                "older step leaves its slot, and RAM holds no further one"
            )
        elif tier.drain_s > 0:
            sentence += f"; a drain takes {format_seconds(tier.drain_s)} ({tier.drain_limited_by}), saves cannot be closer"
        if abs(tier.interval_s / wanted_s - 1) > 0.2 if wanted_s else False:
            sentence += "; nesting, whole steps or a limit moved it from there"
        sentences.append(sentence + ".")
    return sentences


def _failures(found: Answer) -> str:
    table = found.scenario.failures
    return (
        f"Failures: {table.total_per_node_day:.4g} per node-day, {found.scenario.size}: one interruption "
        f"every {format_seconds(found.scenario.mtti_s)}. Source: {table.source}."
    )


def _witnesses(found: Answer) -> str:
    w = found.witnesses
    closed, exact = w.shown()
    closed += f" ({w.closed_form_refused})" if w.closed_form_refused else ""
    exact += f" ({w.exact_refused})" if w.exact_refused else ""
    return (
        f"ETTR: the closed form (1 - sum of C/tau + lam (tau/2 + lag + R)) says {closed}; the exact exponential form "
        f"{exact}; a simulation of {w.monte_carlo.failures:,} failures {w.simulated:.4f} ± "
        f"{1.96 * w.simulated_stderr:.4f} (seed {w.seed}), {w.how_far}. They {'agree' if w.agree else 'do not agree'}: "
        f"{AGREE_STDERRS:.0f} standard errors are the limit."
    )


def _split(found: Answer) -> str:
    loss = sum(each.ratio for each in found.lost.values())
    return (
        f"Lost: {loss:.3%}, split in first-order proportions (C/tau, lam (tau/2 + lag), lam R) scaled to add up to it; "
        f"{'a row may be 2 points off here' if 1 - loss < SPLIT_LIMIT else 'the less is lost, the closer'}."
    )


def _restarts(found: Answer) -> str:
    lines = ["Back after a failure:"]
    for each in found.classes:
        parts = " + ".join(
            f"{part} {format_seconds(part_s)}" for part, part_s in each.restart_parts_s.items() if part_s > 0
        )
        lines.append(f"  {each.failure} from {each.tier}: {parts} = {format_seconds(each.rto_s)}")
    return "\n".join(lines)


def _modes(found: Answer) -> list[str]:
    sentences = []
    limited = "" if found.scenario.job.stall_s is not None else "paced by "
    for mode in found.modes:
        state = "possible" if mode.possible else f"not possible: {mode.why_not}"
        state += f", keeps {mode.ettr:.4f}" if mode.ettr is not None else ""
        sentences.append(
            f"{mode.mode}: {state}; stall {format_seconds(mode.stall_s) if mode.stall_s < 1e9 else 'none'}"
            f" ({limited}{mode.limited_by}), {format_bytes(mode.ram_needed_bytes)} of RAM, "
            f"{mode.dram_traffic_ratio:.0f} bytes of DRAM traffic per byte; {mode.break_even}."
        )
    chosen = found.design.variant.mode
    why = "" if chosen == "ram" else f" ({why_not_ram(found.scenario, found.modes, chosen)})"
    return [f"Where the copy lands: {chosen}{why}.\n" + "\n".join(f"  {sentence}" for sentence in sentences)]


def _flips(found: Answer) -> list[str]:
    """The points at which another decision would be right."""
    scenario, design = found.scenario, found.design
    first, top = design.levels[0], design.levels[-1]
    lines = []
    if (stall_s := each_step_below_s(scenario, design)) is not None:
        lines.append(f"every single step would be right below a stall of {format_seconds(stall_s)}")
    if first.per_s > 0 and first.stall_s > 0:
        lines.append(
            "five minutes would be right where stall x MTTI = 45,000 s^2 (of the failures this tier answers); "
            f"here it is {first.stall_s / first.per_s:,.4g}"
        )
    if (gpus := drain_sets_from_gpus(scenario, design)) is not None:
        lines.append(f"the drain to {top.name} would set its interval, as near as nesting allows, above {gpus:,} GPUs")
    if found.binding is not None:
        lines.append(
            f"the binding constraint is {found.binding.name}: {found.binding.what} buys {found.binding.gain_ratio:.4%}"
        )
    return ["What would flip it: " + "; ".join(lines) + "."] if lines else []


def _judged(found: Answer) -> str:
    if found.judged is None:
        return ""
    j, recommended = found.judged, format_seconds(found.judged.best_interval_s)
    given = f"The interval given, {format_seconds(j.interval_s)}, keeps {j.ettr:.4f}"
    if j.costs_nothing:
        return f"{given}, no less than {recommended}, which is recommended without it. {j.right_where}."
    return (
        f"{given}; the best one, {recommended}, keeps {j.best_ettr:.4f}: the habit costs {j.best_ettr - j.ettr:.4%} "
        f"of all GPU time. {j.right_where}."
    )


def _inputs(found: Answer) -> str:
    scenario = found.scenario
    origins = sorted(scenario.origins().items())
    known = (kind for kind in Kind if kind not in (Kind.GUESSED, Kind.GIVEN))
    groups = (
        ("Inputs that are guesses, to be replaced by measurements:", {Kind.GUESSED}),
        ("Measured (in the run, or by others on such a machine), computed from links, or published:", {*known}),
        ("Given:", {Kind.GIVEN}),
    )
    lines = []
    for head, kinds in groups:
        rows = [(name, origin) for name, origin in origins if origin.kind in kinds]
        lines += [head] * bool(rows)
        lines += [f"  {name} = {shown(name, scenario.shown(name))} ({origin})" for name, origin in rows]
    return "\n".join(lines)


def shown(name: str, value: Shown) -> str:
    """A value with the unit that its name ends in; of restarts the parts of each class, in seconds."""
    if isinstance(value, dict):
        first = next(iter(value.values()))
        rows = ", ".join(f"{each} {'+'.join(f'{s:g}' for s in parts.values())}" for each, parts in value.items())
        return f"{'+'.join(part.removesuffix('_s') for part in first)} in s: {rows}"
    if isinstance(value, str):
        return value
    if name.endswith("_bytes_per_s"):
        return f"{value / 1e9:,.6g} GB/s"
    if name.endswith("_bytes"):
        return f"{value / 1e9:,.6g} GB"
    if name.endswith("_s"):
        return format_seconds(value) if value else "0 s"
    return f"{value:.4g} per node-day" if name == "failures" else f"{value:,.6g}"
