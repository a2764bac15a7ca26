"""What a checkpoint is made of: no code, few messages, and names that a store may show late."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from hinan.formats import records
from tests.faults.test_peers import told
from tests.harness.job import Job, until

MakeJob = Callable[..., Job]


def from_another_host(job: Job) -> None:
    """Let the run's first attempt have been another host's, with its RAM."""
    until(lambda: job.agent is None, what="the agent's end after close")
    path = job.target_path / "attempts" / "000001.claim"
    claim = records.decode(path.read_bytes(), records.ClaimRecord, str(path))
    path.write_bytes(records.encode(replace(claim, node="another")))


@pytest.mark.parametrize("late_rank", [0, 1])
def test_a_format_5_what_a_store_shows_late_is_waited_for(late_rank: int, make_job: MakeJob) -> None:
    """A-FORMAT-5: a run goes on on another host, where rank 0 (which decides) or rank 1 (which reads) sees the steps only
    after a while: both wait and take the committed step; neither starts at 0, and the step is not held to be damaged."""
    job = make_job(ranks=2)
    job.start_agent()
    arguments = {"program": "peers:sees_late", "names": ["steps"], "late_s": 1.0}
    for child in job.start(**arguments, late_ranks=[]):
        child.ok(30)
    from_another_host(job)
    job.start_agent()
    for child in job.start(**arguments, late_ranks=[late_rank]):
        child.ok(30)
    for found in told(job):
        assert (found["error"], found["step"], found["source"], found["w"]) == (None, 1, "target", [1.0] * 4)
    assert job.target.failures() == set()
    assert ("decide waits for" in job.children[-2].output) == (late_rank == 0)


def test_a_format_5_the_wait_has_an_end(make_job: MakeJob) -> None:
    """A-FORMAT-5: another host's attempt has saved nothing: a restart looks for the visibility time, and then starts."""
    job = make_job()
    job.target.open_or_create()
    claim = records.ClaimRecord(1, job.target.run().run_id, "another", 1, 0, 1, "")
    job.target.publish_attempt(claim)
    job.start_agent()
    (child,) = job.start(program="peers:sees_late", names=[], late_s=0.0, late_ranks=[], visibility_s=0.5)
    child.ok(30)
    (found,) = told(job)
    assert (found["error"], found["step"]) == (None, 0)
    assert found["s"] > 0.5 and "decide waits for" in child.output
