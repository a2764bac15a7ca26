"""The report as one page that needs no network: numbers embedded, curves drawn by a port of the planner's own search.

Owns:      what is embedded. The arithmetic of the page is `report.js` and `search.js`, its looks `report.html`, its wiring
           `page.js`.
Promises:  one file; moving a slider gives what `hinan plan` would give with that input (tested in a browser).
Never:     loads anything: no fonts, no scripts, no addresses.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, fields, replace
from importlib.resources import files
from typing import Any

from hinan.core.units import format_bytes, format_seconds
from hinan.plan.decision.answer import Answer
from hinan.plan.decision.choice import preference, usable_variants
from hinan.plan.decision.demands import checked_design
from hinan.plan.decision.design import bounds_of, build_levels, rate_per_s, restart_parts_s
from hinan.plan.decision.limits import LEAST_ETTR
from hinan.plan.decision.scale import SIZES
from hinan.plan.decision.variants import Variant, drains_s, slots_of, waits_for_save
from hinan.plan.model.checks import Infeasible
from hinan.plan.model.failures import HOST_LOSS, FailureClass
from hinan.plan.model.scenario import Scenario
from hinan.plan.observed.from_settings import of_size
from hinan.plan.show.explain import explain, shown

MODEL = ("report.js", "search.js")
"""The arithmetic of the page."""
DRAIN_LENGTHS = (0.1, 10.0)
"""So many times as long the page's slider may make all drains: what wants a slot at one end only has one to choose."""


def report(found: Answer) -> str:
    """The page as text."""
    page = files("hinan.plan.show")
    data = json.dumps(_data(found), allow_nan=False).replace("</", "<\\/")
    text = page.joinpath("report.html").read_text(encoding="utf-8")
    for mark, parts in (("/*MODEL*/", MODEL), ("/*PAGE*/", ("page.js",))):
        text = text.replace(mark, "".join(page.joinpath(part).read_text(encoding="utf-8") for part in parts))
    return text.replace("/*DATA*/", data)


def _data(found: Answer) -> dict[str, Any]:
    scenario, witnesses = found.scenario, found.witnesses
    band = 1.96 * witnesses.simulated_stderr
    closed, exact = witnesses.shown()
    return {
        "subtitle": f"{scenario.size} ({scenario.machine.name}), "
        f"{format_bytes(scenario.job.state_bytes)} of state, interrupted every {format_seconds(scenario.mtti_s)}",
        "gpus": scenario.job.gpus,
        "mtti_s": scenario.mtti_s,
        "step_s": scenario.job.step_s,
        "usd_per_gpu_hour": scenario.machine.usd_per_gpu_hour,
        **model(scenario),
        "parts": _parts(scenario),
        "scale": _scale(scenario),
        "refused": None if witnesses.exact is not None else {"simulated": witnesses.simulated},
        "classes": [_plain(each) for each in found.classes],
        "warnings": found.warnings,
        "witnesses": f"Three witnesses as planned: closed form {closed}, exact form {exact}, "
        f"simulation {witnesses.simulated:.4f} ± {band:.4f} ({witnesses.monte_carlo.failures:,} failures, "
        f"{witnesses.how_far}).",
        "binding": ""
        if found.binding is None
        else f"Binding constraint: {found.binding.name}; {found.binding.what} buys {found.binding.gain_ratio:.4%}.",
        "why": explain(found, inputs=False),
        "inputs": _inputs(scenario),
    }


def model(scenario: Scenario) -> dict[str, Any]:
    """What the page decides with: all ways to build it, and what bounds and limits them."""
    bounds, usable = bounds_of(scenario), usable_variants(scenario, DRAIN_LENGTHS)[0]
    return {
        "bounds": {"quantum": bounds.quantum_s, "budget": bounds.max_stall_ratio, "fixed": bounds.fixed_first_s},
        "limits": _limits(scenario),
        "verify": {"cost_s": scenario.restart.verify_s, "fixed_s": scenario.restart.detection_latency_s},
        "variants": [
            {"levels": levels, "slots": _slots(scenario, v), "preference": preference(v)}
            for v in usable
            if (levels := _levels(scenario, v))
        ],
    }


def _levels(scenario: Scenario, variant: Variant) -> list[dict[str, Any]]:
    """Levels with what the sliders need: stall and slow-down apart, drain and latency apart, and limits before anything
    that a slider moves is taken off them."""
    try:
        levels = build_levels(scenario, variant)
    except Infeasible:
        return []
    rows = []
    for level, drain_s in zip(levels, drains_s(scenario, variant), strict=True):
        commit_s = scenario.demands.commit_within_s
        slow_s = min(level.stall_s, scenario.store.interference_ratio * drain_s)
        rows.append(
            {
                "name": level.name,
                "drain_s": drain_s,
                "slow_s": slow_s,
                "own_stall_s": level.stall_s - slow_s,
                "redo_s": scenario.demands.max_redo_s if any(c.name != FailureClass.SILENT for c in level.causes) else None,
                "commit_s": commit_s if not level.causes and math.isfinite(commit_s) else None,
                "causes": [
                    {
                        "name": cause.name,
                        "per_s": cause.per_s,
                        "restart_s": cause.restart_s,
                        "silent": cause.name == FailureClass.SILENT,
                    }
                    for cause in level.causes
                ],
            }
        )
    return rows


def _slots(scenario: Scenario, variant: Variant) -> dict[str, Any]:
    """What its slots make of the least intervals, as `slots.py` says; free_saves None: no image waits in RAM."""
    room = slots_of(scenario, variant)
    return {
        **asdict(room),
        "own": list(room.own),
        "free_saves": room.free_saves if math.isfinite(room.free_saves) else None,
    }


def _limits(scenario: Scenario) -> dict[str, float | None]:
    """What refuses a design after the search, as in `limits.py`; None: nothing does."""
    demands = scenario.demands
    day_usd = scenario.job.gpus * 24 * scenario.machine.usd_per_gpu_hour
    losses = (demands.max_loss_ratio, None if demands.max_usd_per_day is None else demands.max_usd_per_day / day_usd)
    hosts_per_s = sum(rate_per_s(scenario, failure) for failure in HOST_LOSS)
    return {
        "rto_s": demands.max_rto_s,
        "loss": min((loss for loss in losses if loss is not None), default=None),
        "hosts_per_s": None if waits_for_save(scenario) else hosts_per_s,
        "least_ettr": LEAST_ETTR,
    }


def _parts(scenario: Scenario) -> dict[str, dict[str, float]]:
    tiers = {tier for variant in usable_variants(scenario)[0] for tier in variant.tiers}
    return {f"{tier}/{failure}": restart_parts_s(scenario, failure, tier) for tier in tiers for failure in FailureClass}


def _scale(scenario: Scenario) -> list[dict[str, Any]]:
    """Levels of the best variant at other sizes, the rate per node kept, whatever is lost there."""
    demands = replace(scenario.demands, max_loss_ratio=None, max_usd_per_day=None)
    rows = []
    for gpus in sorted({*SIZES, scenario.job.gpus}):
        try:
            other = of_size(replace(scenario, demands=demands), gpus)
            way = checked_design(other).variant
        except Infeasible:
            continue
        known = {"levels": _levels(other, way), "slots": _slots(other, way), "limits": _limits(other)}
        rows.append({"gpus": gpus, **known})
    return rows


def _plain(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _inputs(scenario: Scenario) -> list[list[str]]:
    rows = []
    for name, origin in scenario.origins().items():
        rows.append([name, shown(name, scenario.shown(name)), str(origin.kind), origin.source])
    return rows
