"""What launchers and clusters do to a job: process groups killed, a grace that is too short, ids that are all alike."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.harness.job import Job, MakeJob, assert_same_run, until
from tests.programs.lines import read_lines
from tests.programs.loop import resumes
from tests.programs.points import VARIABLE

Reference = Callable[[int], Job]


def test_a_platform_1_a_drain_outlives_the_process_groups_of_the_trainers(
    make_job: MakeJob, reference: Reference, tmp_path: Path
) -> None:
    """A-PLATFORM-1: a launcher ends its workers' process groups, SIGTERM first and then SIGKILL, in the middle of a drain
    by the agent that a worker has started: the agent is in none of them, and commits the step."""
    points, pause = tmp_path / "points", tmp_path / "pause"
    points.mkdir()
    (points / "agent-before-WRITE_ASIDE").touch()
    job = make_job(ranks=2)
    children = job.start(
        env={VARIABLE: str(points)}, program="torture:main", pause_file=str(pause), pause_at=[7], wait_committed=[]
    )
    held = points / "agent-before-WRITE_ASIDE.reached"
    until(held.exists, what="the drain of step 6")
    until(lambda: all(job.step(rank) >= 7 for rank in (0, 1)), what="step 7")
    for number in (signal.SIGTERM, signal.SIGKILL):
        for child in children:
            with suppress(ProcessLookupError):  # SIGTERM was enough
                os.killpg(child.pid, number)
    for child in children:
        child.wait()
    assert job.committed() == []
    held.unlink()
    until(lambda: job.committed() == [6], what="the commit")
    Path(f"{pause}.7").unlink()
    job.run()
    assert resumes(job.out)[-1][1:] == (6, "ram")
    assert_same_run(job, reference(2))


@pytest.mark.parametrize("host", ["stays", "goes"])
def test_a_platform_2_the_last_ram_copy_needs_no_trainer_to_be_drained(
    host: str, make_job: MakeJob, reference: Reference, tmp_path: Path
) -> None:
    """A-PLATFORM-2: the job is told to end while the trainer is in a long evaluation, and is killed: the agent drains the
    newest step by itself. Where the host goes before that is done, the step committed before serves, whole."""
    hold, pause = tmp_path / "hold", tmp_path / "pause"
    job = make_job(commit_every=999)
    agent = job.start_agent(piece_bytes=4096, hold={"do": "PUBLISH_MANIFEST", "file": str(hold)})
    (child,) = job.start(wait_committed=[3], pause_file=str(pause), pause_at=[7])
    until(Path(f"{pause}.7").exists, what="the evaluation after step 7")
    assert job.committed() == [3]
    if host == "goes":
        hold.touch()
    child.kill(signal.SIGTERM)
    child.wait()
    if host == "stays":
        until(lambda: job.committed() == [3, 6], what="the agent's own commit")
    else:
        until(Path(f"{hold}.reached").exists, what="the drain")
        agent.kill(signal.SIGKILL)
        agent.wait()
        job.arena.wipe()
    Path(f"{pause}.7").unlink()
    job.start_agent()
    job.run()
    assert resumes(job.out)[-1][1:] == ((6, "ram") if host == "stays" else (3, "target"))
    assert_same_run(job, reference(1))
    assert job.target.problems == {}


def test_a_platform_8_attempts_are_told_apart_although_the_launcher_gives_equal_ids(make_job: MakeJob) -> None:
    """A-PLATFORM-8: two launches have the launcher's default run id and restart count: each is an attempt of its own, by
    hinan's own number, and the second goes on where the first was killed; what the launcher said is only written down."""
    job = make_job()
    launcher = {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0"}
    job.start_agent()
    (first,) = job.start(env=launcher, die_at=7)
    first.wait()
    (second,) = job.start(env=launcher, steps=9)
    second.ok()
    claims = {n: claim for n, claim in job.target.claims().items() if claim is not None}
    assert {n: claim.launcher for n, claim in claims.items()} == {1: launcher, 2: launcher}
    assert [(attempt, step) for attempt, step, _ in resumes(job.out)] == [(1, 0), (2, 6)]
    lines = read_lines(job.out / "rank-0.jsonl")
    assert [(line["attempt"], line["step"]) for line in lines][-3:] == [(2, 7), (2, 8), (2, 9)]
