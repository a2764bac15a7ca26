"""One rank that stands still, or cannot join, costs the others a limit that is theirs to set, and it is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.harness.job import Job, MakeJob, until


def told(job: Job) -> list[dict[str, Any]]:
    """What each rank told."""
    return [job.result(rank) for rank in range(job.ranks)]


def test_a_hang_5_a_slow_reader_ends_the_restore_by_name(make_job: MakeJob, tmp_path: Path) -> None:
    """A-HANG-5: rank 3 of 4 stands still while it reads its image: after `restore_timeout_s` the restore fails on the
    others; rank 0 names the rank and what it reads, the others what is read. Rank 3 ends with an error when it comes; the
    next attempt has the same step."""
    stall = tmp_path / "stall"
    job = make_job(ranks=4)
    arguments = {"program": "peers:slow_reader", "stall_file": str(stall), "slow_rank": 3}
    job.start_agent()
    for child in job.start(**arguments, limit_s=60):
        child.ok()
    assert job.committed() == [1]
    until(lambda: job.agent is None, what="the agent's end after close")
    stall.touch()
    job.start_agent()
    *others, slow = job.start(**arguments, limit_s=1.0)
    for child in others:
        child.ok(20)
    for found in told(job)[:3]:
        assert found["error"]["type"] == "PeerError"
        assert "'reading step 1 (attempt 1) from target'" in found["error"]["text"]
        assert 1.0 <= found["s"] < 5.0
    assert "Ranks 3 failed" in told(job)[0]["error"]["text"]
    stall.unlink()
    slow.ok(20)
    assert told(job)[3]["error"]["type"] == "PeerError"
    for child in job.start(**arguments, limit_s=60):
        child.ok()
    assert [(found["error"], found["step"], found["w"]) for found in told(job)] == [(None, 1, [1.0] * 4)] * 4


def test_a_hang_7_a_rank_that_cannot_join_is_told_at_construction(make_job: MakeJob) -> None:
    """A-HANG-7: rank 1 cannot join hinan's group: both ranks are told so when the Evacuator is made, in bounded time,
    and not in mid-training."""
    job = make_job(ranks=2)
    for child in job.start(program="peers:cannot_join", interface="nowhere0", limit_s=1.0):
        child.ok(20)
    for rank, found in enumerate(told(job)):
        assert found["error"]["type"] == "PeerError"
        assert f"rank {rank} could not join hinan's own process group" in found["error"]["text"]
        assert found["s"] < 5.0


@pytest.mark.slow
def test_a_hang_7_an_agent_that_cannot_listen_is_told_before_training(make_job: MakeJob) -> None:
    """A-HANG-7: something lies where the agent's socket must be: it is said in restore(), in bounded time, with the end of
    the agent's log; steps go on without being held, and close() returns with an error that names the socket."""
    job = make_job()
    job.target.open_or_create()
    job.arena.create()
    in_the_way = job.arena.root / "agent.sock"
    in_the_way.mkdir()
    (child,) = job.start(program="peers:without_agent", wait_s=4.0)
    child.ok(60)
    in_the_way.rmdir()
    (found,) = told(job)
    first = child.output.index("restore.unsettled")
    assert str(in_the_way) in child.output[first:] and "Is a directory" in child.output[first:]
    assert first < child.output.index("restored step=0")
    assert found["error"]["type"] == "SavingError" and str(in_the_way) in found["error"]["text"]
    assert found["s"] < 30
