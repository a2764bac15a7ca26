"""Copies that go on while training does: what is held is the boundary's, whatever the loop changes (rules D1 to D4)."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from hinan.core.ids import StepId
from tests.harness.job import MakeJob
from tests.programs.lines import read_lines
from tests.programs.long_write import WEIGHT_BYTES


class Seen(NamedTuple):
    """One evacuation of a loop of `tests.programs.overlap`."""

    step: int
    how: str
    end: str
    differ: list[str]


def trained(make_job: MakeJob, kind: str, **settings: Any) -> tuple[list[Seen], str]:
    """What became of each evacuation, and the log."""
    job = make_job("run")
    job.start_agent()
    (child,) = job.start(program="overlap:main", kind=kind, **settings)
    child.ok()
    lines = [line.split() for line in (job.out / "evacuations").read_text().splitlines()]
    return [Seen(int(line[0]), line[1], line[2], line[3:]) for line in lines], child.output


EVERY_DAY = ["adamw", "batch_norm", "ema", "in_backward", "duck_typed_with_gate", "replaced_storages", "scaled"]
NOW_AND_THEN = ["fused", "momentum", "compiled", "wrapped", "lbfgs", "amax", "tensor_lr"]


@pytest.mark.parametrize("kind", [*EVERY_DAY, *(pytest.param(kind, marks=pytest.mark.slow) for kind in NOW_AND_THEN)])
def test_what_is_held_is_the_boundarys(make_job: MakeJob, kind: str) -> None:
    """Overlap is earned and used, each optimizer is held back, and no byte of the image is younger than its boundary."""
    seen, _ = trained(make_job, kind)
    assert [s for s in seen if s.end == "lost" or s.differ] == []
    assert [s.how for s in seen[-2:]].count("overlapped") >= 1
    assert sum(s.how == "overlapped" for s in seen) >= 3
    assert seen[0].how == "waited"  # nobody has earned anything at the first boundary


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("duck_typed", "call evac.gate() right before"),
        ("max_norm", "is changed after evac.step() and before"),
        ("decay_by_hand", "is changed after evac.step() and before"),
    ],
)
def test_what_has_not_earned_overlap_is_waited_for_and_told(make_job: MakeJob, kind: str, why: str) -> None:
    """Nothing is torn and nothing is lost; one notice says why and what to write."""
    seen, log = trained(make_job, kind)
    assert [s for s in seen if s.end == "lost" or s.differ] == []
    assert {s.how for s in seen} == {"waited"}
    assert log.count(why) == 1


def test_a_counted_write_before_the_gate_costs_one_step(make_job: MakeJob) -> None:
    """The version tells: the step is given up, named, and from then on the copies are waited for."""
    seen, log = trained(make_job, "counted_write")
    lost = [s.step for s in seen if s.end == "lost"]
    assert lost == [6]
    assert {s.how for s in seen if s.step > 6} == {"waited"}
    assert [s for s in seen if s.differ] == []
    assert "model.0.weight was changed after evac.step() and before its gate" in log


@pytest.mark.parametrize("kind", ["data_write", "moment_write", "collective_write"])
def test_what_no_version_counts_tears(make_job: MakeJob, kind: str) -> None:
    """The limit of what is seen without the check, planted so that the next test can find it."""
    seen, _ = trained(make_job, kind)
    assert any(s.differ for s in seen), "the planted write must tear, or this test shows nothing"


@pytest.mark.parametrize("kind", ["data_write", "moment_write", "collective_write", "adamw", "batch_norm"])
def test_with_check_bits_nothing_torn_is_held(make_job: MakeJob, kind: str) -> None:
    """The step is given up, the loop is waited for from then on; loops that keep the rules lose nothing."""
    seen, _ = trained(make_job, kind, check="bits")
    assert [s for s in seen if s.differ] == []
    assert [s.step for s in seen if s.end == "lost"] == ([6] if "write" in kind else [])
    assert {s.how for s in seen if s.step > 6} == ({"waited"} if "write" in kind else {"overlapped"})


def test_hand_written_updates_among_others_never_earn_overlap(make_job: MakeJob) -> None:
    """A gap between two optimizer steps in which something moved is a break."""
    seen, _ = trained(make_job, "alternating")
    assert [s for s in seen if s.end == "lost" or s.differ] == []
    assert {s.how for s in seen} == {"waited"}


def test_a_loop_that_stops_using_its_optimizer_is_waited_for(make_job: MakeJob) -> None:
    """Only the one evacuation in flight at the switch is beyond help (check="bits" would find it)."""
    seen, _ = trained(make_job, "switching")
    assert [s.step for s in seen if s.differ] == [6]
    assert {s.how for s in seen if s.step > 6} == {"waited"}


@pytest.mark.parametrize(("kind", "warnings"), [("late_scheduler", 1), ("late_scaler", 1), ("scheduled", 0)])
def test_a_scheduler_or_scaler_that_moves_late_is_named(make_job: MakeJob, kind: str, warnings: int) -> None:
    """D4: once, at the first evacuation that shows it."""
    _, log = trained(make_job, kind, every=3)
    assert log.count("moves after evac.step()") == warnings


def test_evacuations_wait_for_gradients_to_be_consumed(make_job: MakeJob) -> None:
    """D4: with an optimizer step every fourth iteration, evacuations due every third come at the next one without them."""
    seen, _ = trained(make_job, "accumulated", steps=26, every=3)
    assert [s.step for s in seen] == [4, 8, 12, 16, 20, 24]
    assert [s for s in seen if s.end == "lost" or s.differ] == []
    assert seen[-1].how == "overlapped"


def test_each_optimizers_gradients_are_waited_for(make_job: MakeJob) -> None:
    """D4: another optimizer that steps in every iteration does not make those of the slower one consumed."""
    seen, _ = trained(make_job, "two_paces", steps=18, every=3)
    assert [s.step for s in seen] == [4, 8, 12, 16]
    assert [s for s in seen if s.end == "lost" or s.differ] == []


def test_the_next_seal_tells_the_whole_stall(make_job: MakeJob) -> None:
    """Its own seal stood before the optimizer was held back; what that came to is in the seal after it."""
    job = make_job(width=1024, steps=13, every=3, commit_every=3)
    job.run()
    lines = {line["step"]: line["stall_s"] for line in read_lines(job.out / "rank-0.jsonl")}
    at_boundary, came_to = lines[9], lines[11]
    assert at_boundary < came_to
    manifest = job.target.manifest(StepId(1, 12), 0)
    assert manifest is not None
    assert manifest.sealed.settled_stall_s == pytest.approx(came_to)


def test_a_long_write_that_tears_a_copy_is_not_resumed_from(make_job: MakeJob) -> None:
    """torch counts a write at its end: the copy ended in the middle of one, and the trainer was killed soon after."""
    job = make_job("run")
    job.start_agent()
    (child,) = job.start(program="long_write:main")
    assert child.wait() == -9
    told = job.result()
    assert told["beside_bytes"] >= WEIGHT_BYTES, "nothing was copied beside training, and nothing tested"
    assert (told["held"], "m.w was changed" in (told["lost"] or "")) == (False, True)
    job.run(program="long_write:main")
    assert (job.result()["step"], job.result()["is_uniform"]) == (3, True)
