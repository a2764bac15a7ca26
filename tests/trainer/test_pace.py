"""What a job knows about itself: nothing before it was seen, medians then, and earlier attempts with it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hinan.core.ids import StepId
from hinan.formats.records import ClaimRecord, ClosedRecord, ResumeRecord, now_text
from hinan.plan.observed.attempts import Attempt, Failures, Image, Save
from hinan.tiers.arena import Arena
from hinan.tiers.target import Target
from hinan.trainer.attempt.pace import Pace
from hinan.trainer.attempt.past import Past, past_of


def run(pace: Pace, steps: int, step_s: float = 0.5, start_s: float | None = None) -> None:
    began = time.monotonic() if start_s is None else start_s
    for step in range(steps):
        pace.boundary(began + step * step_s)


def test_nothing_is_known_at_first() -> None:
    """No step time before the warm-up is over, no stall from one or two, no drain before one has ended."""
    pace = Pace()
    run(pace, 9)
    pace.drained(None)
    pace.stall(0.1)
    pace.stall(0.1)
    job = pace.job()
    assert (job.step_s, job.stall_s, job.drain_s, job.restart_s) == (None, None, None, None)
    assert job.failures == Failures()


def test_medians_of_what_was_seen() -> None:
    """A drain that is told of again and again is one drain."""
    pace = Pace(nodes=2)
    run(pace, 12)
    for stall_s, drain_s in ((0.1, 4.0), (0.2, 4.0), (9.0, 6.0)):
        pace.stall(stall_s)
        pace.drained(drain_s)
    job = pace.job()
    assert (job.step_s, job.stall_s, job.drain_s, job.nodes) == (pytest.approx(0.5), 0.2, 5.0, 2)
    assert job.samples == {"step_s": 11, "stall_s": 3, "drain_s": 2, "restart_s": 0}


def test_earlier_attempts_count() -> None:
    """Two failures, one answered by RAM; time alive of all; the restart of this one from RAM's newest save."""
    now_s = time.time()
    attempts = (
        Attempt(1, claimed_at_s=now_s - 1000, resumed_at_s=now_s - 990),
        Attempt(2, claimed_at_s=now_s - 500, resumed_at_s=now_s - 490, parent=StepId(1, 40), source="target"),
        Attempt(3, claimed_at_s=now_s - 20),
    )
    saves = (Save(StepId(2, 90), (Image(1, None, now_s - 100),)), Save(StepId(2, 100), (Image(1, None, now_s - 60),)))
    pace = Pace(Past(attempts, saves))
    pace.resumed(StepId(2, 100), "ram")
    run(pace, 12, start_s=time.monotonic())
    job = pace.job()
    assert job.failures == Failures(ram=1, target=1)
    assert job.restart_s == pytest.approx(60 - 0.5, abs=0.3)
    # 40 steps of half a second in attempt 1; from its claim to its last save in attempt 2; this one has just begun
    assert job.observed_s == pytest.approx(20 + 440, abs=1)


def test_the_past_is_read_from_the_run(tmp_path: Path) -> None:
    """Claims, resumes and closes of the target; a record that cannot be read leaves nothing that could mislead."""
    target = Target(tmp_path / "target")
    run_id = target.open_or_create().run_id
    for attempt in (1, 2, 3):
        target.publish_attempt(ClaimRecord(attempt, run_id, "node", 1, 1, 1, now_text()))
    target.publish_attempt(ResumeRecord(2, 1, 40, now_text(), "ram"))
    target.publish_attempt(ClosedRecord(2, 80, now_text()))
    past = past_of(target, Arena(tmp_path / "arena"))
    assert [(a.number, a.source, a.is_closed) for a in past.attempts] == [(1, "", False), (2, "ram", True), (3, "", False)]
    assert Pace(past).job().failures == Failures(ram=1)
    (tmp_path / "target" / "attempts" / "000002.closed").write_text("torn")
    assert past_of(target, Arena(tmp_path / "arena")) == Past()
