"""The same question from 8 to 1,000,000 GPUs: does the interval go up or down, and where does the regime change?

Owns:      the sweep, the names of the regimes, and the sizes at which they meet.
Promises:  every point is a full answer of the planner at that size, or says what is impossible there.
Relies on: the settings saying what stays fixed: with --params the model is fixed and sharded over all GPUs; with
           --stall the stall is fixed; with --keep the model grows with the job, up to 1,024 GPUs, and is replicated beyond
           (`Job.of_size`: what `--gpus` takes at that size).

Regimes, named by how the interval of the fastest tier moves with the number of GPUs N:
    N^-1/2    constant stall: sqrt(2 C M), and M falls as 1/N
    N^-1      fixed model on the RAM tier: the stall falls as 1/N too, until the floor rules
    constant  the drain sets the interval, or only replicas are added: neither stall nor drain changes
    each step the interval has reached one step
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hinan.core.units import format_seconds
from hinan.plan.decision.demands import checked_design
from hinan.plan.decision.design import Design, drain_binds
from hinan.plan.model.checks import Infeasible
from hinan.plan.model.failures import FailureTable
from hinan.plan.model.scenario import Scenario
from hinan.plan.observed.from_settings import of_size, scenario_from
from hinan.plan.observed.measured import MeasuredRun

SIZES = (8, 64, 512, 1024, 4096, 16_384, 65_536, 131_072, 262_144, 524_288, 1_000_000)


@dataclass(frozen=True)
class Point:
    """The answer at one size."""

    gpus: int
    mtti_s: float
    interval_s: float | None
    durable_interval_s: float | None
    stall_s: float | None
    ettr: float | None
    saving_ratio: float | None
    """Lost to stall and interference."""
    restart_ratio: float | None
    restart_overtakes: bool
    """Restart costs more than saving and redo together: R > sqrt(2 C M)."""
    drain_binds: bool
    each_step: bool
    regime: str
    impossible: str | None


def scale(
    settings: Mapping[str, str],
    sizes: Sequence[int] = SIZES,
    *,
    fitted: FailureTable | None = None,
    measured: MeasuredRun | None = None,
) -> list[Point]:
    """The planner's answer at each size, with the regime between neighbours named.

    An MTTI given is that of --gpus (1,024 without): it is turned into a rate per node and scales with the job.
    What a run has measured stays as measured, and a state that its ranks replicate stays replicated.
    """
    base = scenario_from(settings, fitted=fitted, measured=measured)
    points: list[Point] = []
    for gpus in sizes:
        try:
            scenario = of_size(base, gpus)
            points.append(_point(scenario, checked_design(scenario)))
        except Infeasible as error:
            nodes = -(-gpus // base.machine.gpus_per_node)
            points.append(_none(gpus, base.failures.mtti_s(nodes), error.impossible[0]))
    return [_named(points, index) for index in range(len(points))]


def _none(gpus: int, mtti_s: float, why: str) -> Point:
    return Point(gpus, mtti_s, None, None, None, None, None, None, False, False, False, "impossible", why)


def _point(scenario: Scenario, design: Design) -> Point:
    intervals = design.pattern.intervals_s()
    saving = sum(level.stall_s / tau_s for level, tau_s in zip(design.levels, intervals, strict=True))
    redo = sum(level.per_s * tau_s / 2 for level, tau_s in zip(design.levels, intervals, strict=True))
    restart = sum(cause.per_s * cause.restart_s for level in design.levels for cause in level.causes)
    return Point(
        gpus=scenario.job.gpus,
        mtti_s=scenario.mtti_s,
        interval_s=intervals[0],
        durable_interval_s=intervals[-1],
        stall_s=design.levels[0].stall_s,
        ettr=design.ettr,
        saving_ratio=saving,
        restart_ratio=restart,
        restart_overtakes=restart > saving + redo,
        drain_binds=drain_binds(scenario, design.variant),
        each_step=scenario.job.step_known and intervals[0] <= scenario.job.step_s * 1.001,
        regime="",
        impossible=None,
    )


def _named(points: Sequence[Point], index: int) -> Point:
    """The point with its regime: the slope of log interval over log GPUs to the nearest answered neighbour."""
    here = points[index]
    if here.interval_s is None:
        return here
    # Looks back where it can: "how did we get here"; the first answered point looks forward.
    before = [p for p in points[:index] if p.interval_s is not None]
    after = [p for p in points[index + 1 :] if p.interval_s is not None]
    other = before[-1] if before else after[0] if after else None
    if other is None or other.interval_s is None:
        return here
    slope = math.log(here.interval_s / other.interval_s) / math.log(here.gpus / other.gpus)
    return Point(**{**asdict(here), "regime": regime_name(slope, each_step=here.each_step)})


def regime_name(slope: float, *, each_step: bool = False) -> str:
    """Name of a regime from the slope of log interval over log N."""
    if each_step:
        return "each step"
    for name, exponent in (("constant", 0.0), ("N^-1/2", -0.5), ("N^-1", -1.0)):
        if abs(slope - exponent) < 0.1:
            return name
    return f"N^{slope:.2f}"


def meetings(points: Sequence[Point]) -> dict[str, int | None]:
    """First size of the sweep at which each thing is true; None: nowhere in it."""
    return {
        "restart_overtakes_saving": next((p.gpus for p in points if p.restart_overtakes), None),
        "each_step_is_right": next((p.gpus for p in points if p.each_step), None),
        "drain_binds": next((p.gpus for p in points if p.drain_binds), None),
        "impossible_from": _impossible_from(points),
    }


def _impossible_from(points: Sequence[Point]) -> int | None:
    """First size beyond the last one with an answer."""
    beyond = list(points)
    if not beyond or not beyond[-1].impossible:
        return None
    while len(beyond) > 1 and beyond[-2].impossible:
        beyond.pop()
    return beyond[-1].gpus if beyond else None


def scale_json(points: Sequence[Point]) -> dict[str, Any]:
    """The sweep as plain values."""
    return {"points": [asdict(point) for point in points], "meetings": meetings(points)}


def _hung(row: str, text: str) -> list[str]:
    """A row with its last column in as many lines as 80 columns need, each below the other."""
    return textwrap.wrap(
        text, 80, initial_indent=row, subsequent_indent=" " * len(row), break_long_words=False, break_on_hyphens=False
    )


def scale_text(points: Sequence[Point]) -> str:
    """The sweep for a terminal."""
    lines = [f"{'GPUs':>9}{'MTTI':>15}{'every':>13}{'durable':>14}{'ETTR':>8}  regime"]
    for p in points:
        if p.interval_s is None or p.durable_interval_s is None or p.ettr is None:
            lines += _hung(f"{p.gpus:>9,}{format_seconds(p.mtti_s):>15}  ", f"impossible: {p.impossible or ''}")
            continue
        marks = [m for m, on in (("restart>save", p.restart_overtakes), ("drain", p.drain_binds)) if on]
        row = (
            f"{p.gpus:>9,}{format_seconds(p.mtti_s):>15}{format_seconds(p.interval_s):>13}"
            f"{format_seconds(p.durable_interval_s):>14}{p.ettr:>8.4f}  "
        )
        lines += _hung(row, "; ".join([p.regime, *marks]))
    for what, gpus in meetings(points).items():
        lines.append(f"{what.replace('_', ' ')}: {f'{gpus:,} GPUs' if gpus else 'nowhere in this range'}")
    return "\n".join(lines)
