"""Kills of trainers and agents, from outside: the run goes on bit-exactly."""

from __future__ import annotations

import pytest

from tests.harness.job import MakeJob, assert_same_run, until
from tests.programs.loop import resumes


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_killed_job_resumes_from_ram(make_job: MakeJob, ranks: int) -> None:
    """All trainers are SIGKILLed; the next attempt reads the newest held step from RAM and ends as if nothing had been."""
    reference = make_job("reference", ranks=ranks)
    reference.run()
    job = make_job("run", ranks=ranks)
    job.start()
    until(lambda: job.step() >= 11, what="step 11")
    job.kill_all()
    job.run()
    (_, _, _), (_, step, source) = resumes(job.out)
    assert step >= 9
    assert source == "ram"
    assert_same_run(job, reference)


def test_agent_and_trainers_killed(make_job: MakeJob) -> None:
    """The agent dies with the trainers: a new one finds the arena, and the RAM copy serves."""
    reference = make_job("reference")
    reference.run()
    job = make_job("run")
    (child,) = job.start(die_at=13)
    child.wait()
    job.kill_agent()
    job.run()
    assert resumes(job.out)[-1][1:] == (12, "ram")
    assert_same_run(job, reference)


def test_host_lost(make_job: MakeJob) -> None:
    """Agent killed and RAM wiped: the newest committed step on the target serves."""
    reference = make_job("reference")
    reference.run()
    job = make_job("run", every=1, commit_every=4)
    (child,) = job.start(die_at=13)
    child.wait()
    until(lambda: max(job.committed(), default=0) >= 4, what="a commit")
    job.kill_agent()
    job.arena.wipe()
    committed = max(job.committed())
    job.run()
    step, source = resumes(job.out)[-1][1:]
    # What the agent was draining as it died may be whole on the target, and not committed yet: it serves as well.
    assert (step >= committed, source) == (True, "target")
    assert_same_run(job, reference)
