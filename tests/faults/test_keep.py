"""Retention deletes nothing that a restart may need, whatever fails, is rolled back, or stood there before."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

from hinan.core.ids import StepId
from tests.harness.job import Job, MakeJob, assert_same_run, until
from tests.programs.loop import resumes

Reference = Callable[[int], Job]


def next_attempt(job: Job, **arguments: object) -> tuple[int, str]:
    """Lose the host (its agent and its RAM), and start the ranks on another; what they resumed from."""
    for child in job.children:
        child.wait()
    job.end_agent()
    job.arena.wipe()
    job.start_agent()
    for child in job.start(**arguments):
        child.wait()
    return resumes(job.out)[-1][1:]


def test_a_keep_1_the_only_step_stays_until_the_next_is_whole(make_job: MakeJob, reference: Reference) -> None:
    """A-KEEP-1: keep one; the host dies when half of step 12 is written: step 6 still stands beside it and serves. At the
    end one step stands."""
    job = make_job(keep_last=1, every=6)
    agent = job.start_agent(
        piece_bytes=4096, heartbeat_s=0.02, die={"step": 12, "do": "WRITE_ASIDE", "rank": 0, "share": 0.5}
    )
    job.start(wait_committed=[6], die_at=12)
    agent.wait()
    whole, part = job.target.directory(StepId(1, 6)), job.target.directory(StepId(1, 12))
    assert job.committed() == [6] and (whole / "rank-00000.safetensors").exists()
    assert 0 < sum(p.stat().st_size for p in part.iterdir()) < sum(p.stat().st_size for p in whole.iterdir())
    assert next_attempt(job) == (6, "target")
    assert_same_run(job, reference(1))
    until(lambda: job.agent is None, what="the agent's end after close")
    assert len(job.committed()) == 1


def test_a_keep_3_another_runs_steps_in_the_same_place_count_for_nothing(make_job: MakeJob) -> None:
    """A-KEEP-3: the target holds an older training with higher steps; a fresh one keeps one step there, and is killed: it
    goes on from its own newest, and not a byte of the older one has changed."""
    job = make_job(keep_last=1)
    job.start_agent()
    job.run(steps=30)
    until(lambda: job.agent is None, what="the agent's end after close")
    older = {p: p.read_bytes() for s in job.target.step_ids() for p in job.target.directory(s).iterdir()}
    assert job.committed() == [30]
    assert next_attempt(job, options={"fresh": True}, steps=12, wait_committed=[6, 12], die_at=12) == (0, "")
    assert {s for s in job.target.step_ids() if s.attempt == 2} >= {StepId(2, 12)}
    assert next_attempt(job, steps=15) == (12, "target")
    assert older == {p: p.read_bytes() for p in older}


def test_a_keep_5_a_step_that_failed_stands_in_nobodys_way(make_job: MakeJob, reference: Reference, tmp_path: Path) -> None:
    """A-KEEP-5: the commit of step 12 fails and the run goes back to 6: 6 is the newest until then, and afterwards steps 9
    and 12 are both committed, and serve."""
    bad = tmp_path / "bad"
    job = make_job()
    job.start_agent(fail={"do": "WRITE_ASIDE", "errno": errno.EROFS, "file": str(bad), "always": True})
    job.start(wait_committed=[6], touch_at={"7": str(bad)}, die_at=12)
    until(lambda: job.step() >= 12 and job.status()["failed_in_a_row"] >= 1, what="the failed commit")
    assert job.committed() == [6] and job.status()["committed"] == 6
    assert next_attempt(job, commit_every=3, wait_committed=[9, 12], die_at=12) == (6, "target")
    assert {StepId(2, 9), StepId(2, 12)} <= {s for s, stored in job.target.stored().items() if stored.committed}
    assert next_attempt(job) == (12, "target")
    assert_same_run(job, reference(1))
