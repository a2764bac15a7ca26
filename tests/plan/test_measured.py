"""Figures of a run: hand-made facts with known answers, and that nothing is claimed without evidence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hinan.core.errors import ConfigError
from hinan.core.ids import StepId
from hinan.plan.decision.scale import scale
from hinan.plan.model.failures import table
from hinan.plan.model.origin import Kind
from hinan.plan.observed.attempts import Attempt, Image, Save, clock_s
from hinan.plan.observed.from_settings import scenario_from
from hinan.plan.observed.measured import Figure, MeasuredRun, RunFacts, measure, together
from hinan.plan.show.webpage import _scale


def save(attempt: int, step: int, held_s: float | None, *, stall_s: float = 0.1, drain_s: float = 3.0) -> Save:
    """A save of two ranks: rank 1 stalls longer and holds it last."""
    first = None if held_s is None else held_s - 0.5
    images = (Image(900, stall_s / 2, first), Image(1000, stall_s, held_s))
    return Save(StepId(attempt, step), images, None if held_s is None else held_s + drain_s)


RUN = RunFacts(
    "run 7 at /t",
    (
        Attempt(1, claimed_at_s=0, resumed_at_s=5),
        Attempt(2, claimed_at_s=100, resumed_at_s=104, parent=StepId(1, 24)),
        Attempt(3, claimed_at_s=200, resumed_at_s=203, parent=StepId(2, 30), is_closed=True, closed_at_s=260),
    ),
    (
        save(1, 10, 30, stall_s=0.1, drain_s=2),
        save(1, 20, 50, stall_s=0.3, drain_s=4),
        save(2, 30, 118, stall_s=0.2, drain_s=6),
        save(3, 40, 230, stall_s=0.2, drain_s=8),
        save(3, 50, 250, stall_s=0.4, drain_s=10),
    ),
)


def values(run: RunFacts) -> dict[str, float]:
    return {name: figure.value for name, figure in measure(run).figures.items()}


def test_figures_follow_from_the_facts() -> None:
    """Medians over saves of the longest rank; restart less the steps in between; alive time over failures."""
    found = measure(RUN)
    assert {name: figure.value for name, figure in found.figures.items()} == pytest.approx(
        {
            "gpus": 2,
            "state-bytes": 1000,
            "shard-gpus": 1,
            "step": 2.0,  # 20 s over 10 steps, in attempts 1 and 3
            "stall": 0.2,
            "drain": 6.0,
            # 118 - 50 - (4 steps that only the resume shows + 6 before the first save) x 2 s; 230 - 118 - 10 x 2 s
            "restart": (48 + 92) / 2,
            "mtti": (50 + 18 + 60) / 2,
        }
    )
    assert not found.unclaimed
    assert all(figure.source.startswith("run 7 at /t: ") for figure in found.figures.values())
    assert "median of 5 x save" in found.figures["stall"].source
    assert "median of 2 x restart" in found.figures["restart"].source
    assert "2 failures" in found.figures["mtti"].source
    assert "process failures on one host" in found.figures["mtti"].source


def test_one_sample_is_no_figure() -> None:
    """One save: size and state are known, no duration is, and each says why. One failure is no MTTI either."""
    found = measure(replace(RUN, saves=RUN.saves[:1], attempts=RUN.attempts[:1]))
    assert set(found.figures) == {"gpus", "state-bytes", "shard-gpus"}
    assert set(found.unclaimed) == {"step", "stall", "drain", "restart", "mtti"}
    assert found.unclaimed["stall"] == "1 usable x save, 2 are needed"
    one_failure = measure(replace(RUN, saves=RUN.saves[:3], attempts=RUN.attempts[:2]))
    assert one_failure.unclaimed.keys() == {"restart", "step", "mtti"}
    assert one_failure.unclaimed["mtti"] == "1 failure in 68 s alive, 2 are needed"


def test_clocks_that_disagree_are_no_samples() -> None:
    """Commits before they were held, steps that go back in time, clocks that cannot be read: left out, never negative."""
    skewed = tuple(replace(each, committed_at_s=1.0) for each in RUN.saves)
    assert "drain" not in values(replace(RUN, saves=skewed))
    back = (*RUN.saves[:3], save(3, 40, 250), save(3, 50, 230), save(3, 60, 270))
    assert values(replace(RUN, saves=back))["step"] == pytest.approx(3.0)  # of 2 s and 4 s; -2 s is none
    unreadable = tuple(save(each.step_id.attempt, each.step_id.step, None) for each in RUN.saves)
    assert {"stall", "gpus"} <= values(replace(RUN, saves=unreadable)).keys()
    assert not {"step", "drain", "restart"} & values(replace(RUN, saves=unreadable)).keys()
    early = (RUN.attempts[0], replace(RUN.attempts[1], claimed_at_s=-50, resumed_at_s=-40), RUN.attempts[2])
    assert values(replace(RUN, attempts=early))["mtti"] == pytest.approx((0 + 168 + 60) / 2)
    assert clock_s("2026-01-02T03:04:05.500+00:00") == clock_s("2026-01-02T03:04:05.500") == 1767323045.5
    assert clock_s("yesterday") is None


def test_attempts_closed_on_purpose_are_no_failures() -> None:
    """Their time alive counts, their end does not; a last attempt that is still open has not failed either."""
    closed = (replace(RUN.attempts[0], is_closed=True, closed_at_s=60), *RUN.attempts[1:])
    assert measure(replace(RUN, attempts=closed)).unclaimed["mtti"] == "1 failure in 138 s alive, 2 are needed"
    assert "restart" not in values(replace(RUN, attempts=closed))
    all_closed = tuple(replace(each, is_closed=True) for each in RUN.attempts)
    found = measure(replace(RUN, attempts=all_closed))
    assert found.unclaimed["mtti"] == "no attempt has failed and been followed by another"
    last_open = (*RUN.attempts[:2], replace(RUN.attempts[2], is_closed=False, closed_at_s=None))
    assert values(replace(RUN, attempts=last_open))["mtti"] == pytest.approx((50 + 18 + 50) / 2)


def test_attempts_whose_saves_are_deleted() -> None:
    """Their steps stand in the next resume: alive for that long. Without a step's time no MTTI is claimed."""
    kept = (*RUN.saves[3:], save(3, 60, 270))
    assert values(replace(RUN, saves=kept))["mtti"] == pytest.approx((24 * 2 + 6 * 2 + 70) / 2)
    assert "attempt 1 are deleted" in measure(replace(RUN, saves=RUN.saves[3:4])).unclaimed["mtti"]


def test_damage_is_said_and_an_empty_run_refused() -> None:
    """Damaged records of attempts: no restart and no MTTI. No save at all: what is missing and the way out."""
    found = measure(replace(RUN, damaged_attempts=["attempts/000002.resume: torn"], damaged_steps=["steps/x: torn"]))
    assert not {"restart", "mtti"} & found.figures.keys()
    assert found.notes([])[0].count("attempts/000002.resume") == 2
    assert found.notes(["restart", "mtti"]) == (
        "unreadable, left out: attempts/000002.resume: torn",
        "unreadable, left out: steps/x: torn",
    )
    with pytest.raises(ConfigError, match=r"no step stands .*steps/x: torn.* give --state-bytes"):
        measure(replace(RUN, saves=(), damaged_steps=["steps/x: torn"]))


MEASURED = measure(RUN)


def kinds(measured: MeasuredRun, **settings: str) -> dict[str, Kind]:
    scenario = scenario_from({name.replace("_", "-"): text for name, text in settings.items()}, measured=measured)
    return {name: origin.kind for name, origin in scenario.origins().items()}


def test_what_is_typed_wins() -> None:
    """A figure stands in only for what no setting says, in its own or in other words; origins tell which is which."""
    fields = ("job.gpus", "job.state_bytes", "job.shard_gpus", "job.step_s", "job.stall_s", "store.drain_s")
    fields += ("restart.total_s", "failures")
    of = kinds(MEASURED)
    assert {of[name] for name in fields} == {Kind.MEASURED}
    assert of["store.interference_ratio"] is Kind.GUESSED
    scenario = scenario_from({}, measured=MEASURED)
    assert (scenario.job.gpu_bytes, scenario.job.stall_s, scenario.store.drain_s) == pytest.approx((1000, 0.2, 6))
    assert (scenario.restart.total_s, scenario.mtti_s) == pytest.approx((70, 64))
    assert "run 7 at /t" in scenario.origins()["failures"].source
    own = {"gpus": "2", "state_bytes": "1GB", "step": "1s", "stall": "1s", "drain": "1s", "restart": "1s", "mtti": "1h"}
    of = kinds(MEASURED, **own)
    assert Kind.MEASURED not in {of.get(name) for name in fields}
    other_words = {"keep": "0.5", "floor": "1ms", "store_bandwidth": "1GB/s", "detect": "9s", "failures": "rsc1"}
    of = kinds(MEASURED, **other_words)
    assert {name for name in fields if of.get(name) is Kind.MEASURED} == {"job.gpus", "job.step_s"}
    fitted = scenario_from({}, fitted=table("rsc2"), measured=MEASURED)
    assert fitted.failures.total_per_node_day == table("rsc2").total_per_node_day


def test_another_size_keeps_the_rate_of_a_node_and_the_replicas() -> None:
    """MTTI of the run is that of its one node; a job of 512 nodes fails 512 times as often; each GPU holds it whole."""
    scenario = scenario_from({"gpus": "4096"}, measured=MEASURED)
    assert scenario.mtti_s == pytest.approx(64 / 512)
    assert scenario.job.gpu_bytes == 1000
    mild = replace(MEASURED, figures={**MEASURED.figures, "mtti": replace(MEASURED.figures["mtti"], value=1e9)})
    points = scale({}, (8, 4096), measured=mild)
    assert [point.mtti_s for point in points] == pytest.approx([1e9, 1e9 / 512])
    assert [point.stall_s for point in points] == pytest.approx([0.2, 0.2])
    at_1024 = next(row for row in _scale(scenario_from({}, measured=mild)) if row["gpus"] == 1024)
    assert at_1024["levels"][0]["own_stall_s"] == pytest.approx(0.2)
    assert scenario_from({}, measured=mild).job.of_size(1024).sharded_over == 1


def test_a_run_and_the_machines_links_stand_side_by_side() -> None:
    """Each figure keeps its kind and source; what both know is the run's; the summary marks what was not measured."""
    links = MeasuredRun(
        "wire of x",
        {"d2h": Figure(5e9, "wire of x: GPU 0", Kind.CEILING), "stall": Figure(9.0, "x")},
        notes_on_use=["careful"],
    )
    both = together(measure(RUN), links)
    assert both is not None
    scenario = scenario_from({}, measured=both)
    origins = scenario.origins()
    assert scenario.machine.d2h_bytes_per_s == 5e9
    assert str(origins["machine.d2h_bytes_per_s"]) == "ceiling: wire of x: GPU 0"
    assert origins["job.stall_s"].source.startswith("run 7 at /t")
    assert scenario.measured.startswith("taken from run 7 at /t and wire of x: ")
    assert "d2h 5 GB/s (ceiling)" in scenario.measured
    assert "careful" in scenario.notes
    assert together(None, links) is links
    assert together(None, None) is None
