"""Nothing of the saving side makes training wait without limit, and none of its failures is silent."""

from __future__ import annotations

import errno
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hinan.core.ids import StepId
from tests.harness.job import Job, MakeJob, until
from tests.programs.lines import read_lines
from tests.programs.loop import resumes


class Loop:
    """A running `small:hung`: one line a step with what it cost."""

    def __init__(self, job: Job, tmp_path: Path, **arguments: Any) -> None:
        self.job, self.stop_file = job, tmp_path / "stop"
        (self.child,) = job.start(program="small:hung", stop_file=str(self.stop_file), **arguments)

    def steps(self) -> list[dict[str, Any]]:
        return read_lines(self.job.out / "steps.jsonl")

    def reaches(self, condition: Callable[[dict[str, Any]], bool], after: int = 0, what: str = "") -> dict[str, Any]:
        """The first step after `after` that is as wanted."""
        found: dict[str, Any] = until(
            lambda: next((s for s in self.steps() if s["step"] > after and condition(s)), None), what=what
        )
        return found

    def stop(self) -> dict[str, Any]:
        """End the loop; what it told."""
        self.stop_file.touch()
        self.child.ok(30)
        return self.job.result()


def held(step: dict[str, Any]) -> bool:
    return step["lost"] is None and step["error"] is None


def test_a_frozen_agent_costs_its_time_out_once(make_job: MakeJob, tmp_path: Path) -> None:
    """The agent is SIGSTOPped: training waits for it at most timeout_s, once; the lost evacuations are said; after SIGCONT
    they are held again."""
    job = make_job()
    job.start_agent()
    loop = Loop(job, tmp_path, timeout_s=1.0)
    loop.reaches(held, after=3, what="held steps")
    job.kill_agent(signal.SIGSTOP)
    lost = loop.reaches(lambda s: s["lost"] is not None, what="a lost step")
    later = loop.reaches(lambda s: s["step"] >= lost["step"] + 20, what="20 more steps")
    job.kill_agent(signal.SIGCONT)
    loop.reaches(held, after=later["step"], what="a held step after SIGCONT")
    loop.stop()
    slow = [s["step"] for s in loop.steps() if s["cost_s"] > 0.8]
    assert slow == [lost["step"]], f"slow steps {slow}"
    assert "no slot was free in time" in loop.child.output


@pytest.mark.parametrize("how", ["raise", "exit", "kill"])
def test_a_hang_1_a_writer_that_falls_leaves_nobody_waiting(how: str, make_job: MakeJob, tmp_path: Path) -> None:
    """A-HANG-1: the writer falls over a bug at rank 0's image (an exception that nobody expects), or its process ends
    (os._exit, SIGKILL), while both ranks wait for the commit: a bug is an error on both that names rank 0 and the
    exception; a dead writer is replaced, and the next one commits the step. In any case the next commit works."""
    once = tmp_path / "once"
    once.write_text("1")
    job = make_job(ranks=2)
    agent = job.start_agent(crash={"do": "WRITE_ASIDE", "rank": 0, "how": how, "file": str(once)})
    for child in job.start(program="small:committing"):
        child.ok()
    assert not once.read_bytes()
    for rank in (0, 1):
        found = job.result(rank)
        first, second = found["waits"]
        assert max(first["waited_s"], second["waited_s"]) < 10
        if how == "raise":
            assert first["error"]["type"] == "SavingError"
            assert "rank 0" in first["error"]["text"] and "RuntimeError('a bug in the writer')" in first["error"]["text"]
        else:
            assert first["error"] is None
        assert (second["error"], found["closed"]) == (None, None)
    assert job.committed() == ([2] if how == "raise" else [1, 2])
    if how == "raise":
        assert "Traceback" in agent.output
    else:
        assert agent.wait() == {"exit": 17, "kill": -signal.SIGKILL}[how]


def test_a_hang_2_a_killed_agent_is_started_again(make_job: MakeJob, tmp_path: Path) -> None:
    """A-HANG-2: the agent is SIGKILLed while training: a new one is started off the critical path, the restart is counted,
    evacuations and commits go on, and no step costs more than timeout_s."""
    job = make_job()
    job.start_agent()
    loop = Loop(job, tmp_path, timeout_s=2.0, close=True)
    loop.reaches(held, after=3, what="held steps")
    job.kill_agent()
    died = loop.steps()[-1]["step"]
    again = loop.reaches(lambda s: held(s) and s["restarts"] >= 1, after=died, what="a held step with a new agent")
    until(lambda: max(job.committed(), default=0) >= again["step"], what="a commit by the new agent")
    found = loop.stop()
    assert found["closed"] is None
    assert max(s["cost_s"] for s in loop.steps()) < 2.0 + 1.0
    assert "agent.lost" in loop.child.output


@pytest.mark.parametrize("call", ["close", "exit"])
def test_a_hang_2_a_killed_agent_does_not_hold_up_the_end(call: str, make_job: MakeJob, tmp_path: Path) -> None:
    """A-HANG-2: the agent is SIGKILLed in the middle of the drain that close() or the exit waits for: both end in bounded
    time, with the step committed by the next agent."""
    hold = tmp_path / "hold"
    hold.touch()
    job = make_job()
    agent = job.start_agent(hold={"do": "PUBLISH_COMMIT", "file": str(hold)})
    (child,) = job.start(steps=3, every=3, commit_every=3, close=call == "close", options={"timeout_s": 20})
    until(Path(f"{hold}.reached").exists, what="the drain")
    until(lambda: job.step() >= 3, what="the last step")
    agent.kill()
    child.wait(60)
    until(lambda: job.committed() == [3], what="the commit by the next agent")


def test_a_hang_3_a_failure_in_the_background_reaches_the_next_call(make_job: MakeJob, tmp_path: Path) -> None:
    """A-HANG-3: the commit of one step fails: it is said at a later step, waiting for it raises the cause, the next commit
    works, and training never waited."""
    bad = tmp_path / "bad"
    job = make_job(options={"timeout_s": 5})
    job.start_agent(first_wait_s=0.001, fail={"do": "WRITE_ASIDE", "errno": errno.EROFS, "file": str(bad)})
    pause = tmp_path / "pause"
    (child,) = job.start(every=1, commit_every=5, touch_at={"4": str(bad)}, pause_file=str(pause), pause_at=[7])
    until(Path(f"{pause}.7").exists, what="step 7")
    until(lambda: job.status()["failed_in_a_row"] == 1, what="the failed commit")
    Path(f"{pause}.7").unlink()
    child.ok()
    # Step 5, or a newer one that stood in for it when the drain began; then another one stands in for both.
    told = re.search(r"report step ([567]) \(attempt 1\) could not be written to .*: Read-only file system", child.output)
    assert told is not None
    assert int(told[1]) not in job.committed() and max(job.committed()) == 20


def test_a_hang_6_a_transient_error_is_retried_within_the_round(make_job: MakeJob, tmp_path: Path) -> None:
    """A-HANG-6: the first two writes of a commit raise EIO: the third try commits the same step; nothing is reported."""
    twice = tmp_path / "twice"
    twice.write_text("11")
    job = make_job(steps=3, every=3, commit_every=3)
    agent = job.start_agent(first_wait_s=0.001, fail={"do": "WRITE_ASIDE", "errno": errno.EIO, "file": str(twice)})
    job.run()
    assert job.committed() == [3]
    assert agent.output.count("drain.retry step=3") == 2
    assert "report" not in job.children[-1].output


def test_a_hang_6_the_store_is_a_file_for_a_moment(make_job: MakeJob, tmp_path: Path) -> None:
    """A-HANG-6: the directory of steps is away and a file stands in its place: nothing is given up, and the step is
    committed when the directory is back."""
    job = make_job(steps=6, every=3, commit_every=3)
    agent = job.start_agent(first_wait_s=0.05, heartbeat_s=0.05)
    pause = tmp_path / "pause"
    (child,) = job.start(wait_committed=[3], pause_file=str(pause), pause_at=[4])
    until(Path(f"{pause}.4").exists, what="step 4")
    steps, aside = job.target_path / "steps", job.target_path / "steps.aside"
    steps.rename(aside)
    steps.write_text("in the way")
    Path(f"{pause}.4").unlink()
    until(lambda: "target.unreadable" in agent.output, what="a look that failed")
    until(lambda: "held step=6" in child.output, what="step 6")
    steps.unlink()
    aside.rename(steps)
    child.ok()
    assert job.committed() == [3, 6]


def test_a_hang_6_failed_commits_are_tolerated_and_then_fatal(make_job: MakeJob, tmp_path: Path) -> None:
    """A-HANG-6: the store is down: with tolerate=3 three failed commits in a row are reported only, the fourth raises
    SavingError with the cause; no step waits for a retry; close() raises too."""
    always = tmp_path / "always"
    always.write_text("1")
    job = make_job()
    job.start_agent(first_wait_s=0.001, fail={"do": "WRITE_ASIDE", "errno": errno.EIO, "file": str(always), "always": True})
    loop = Loop(job, tmp_path, timeout_s=5.0, tolerate=3, close=True)
    raised = loop.reaches(lambda s: s["error"] is not None, what="SavingError")
    assert raised["error"]["type"] == "SavingError"
    for text in ("commits in a row have failed", "Input/output error", str(job.target_path), "tolerate="):
        assert text in raised["error"]["text"]
    found = loop.stop()
    assert loop.child.output.count("could not be written") >= 3
    assert found["closed"]["type"] == "SavingError" and "Input/output error" in found["closed"]["text"]
    assert max(s["cost_s"] for s in loop.steps()) < 5.0


def test_a_target_that_hangs_costs_training_nothing(make_job: MakeJob, tmp_path: Path) -> None:
    """Reading the target hangs (a dead mount): evacuations go on, the trainer is told, and close() ends with the cause."""
    hang = tmp_path / "hang"
    job = make_job()
    job.start_agent(hang_file=str(hang), heartbeat_s=0.05, unreachable_after_s=1.0)
    loop = Loop(job, tmp_path, timeout_s=2.0, close=True, tolerate=1000)
    loop.reaches(held, after=3, what="held steps")
    hang.touch()
    until(lambda: "cannot be reached (reading it does not end)" in loop.child.output, what="the report")
    loop.reaches(held, after=loop.steps()[-1]["step"] + 3, what="held steps while the target hangs")
    found = loop.stop()
    hang.unlink()
    assert "cannot be reached" in found["closed"]["text"]
    assert found["close_s"] < 20
    assert max(s["cost_s"] for s in loop.steps()) < 2.5


def test_sigterm_of_the_agent_finishes_the_running_drain(make_job: MakeJob, tmp_path: Path) -> None:
    """The agent gets SIGTERM in the middle of a drain: it finishes and commits it, then ends; the RAM stays and serves."""
    hold = tmp_path / "hold"
    hold.touch()
    job = make_job(every=3, commit_every=3)
    agent = job.start_agent(hold={"do": "SYNC", "file": str(hold)})
    (child,) = job.start(die_at=3)
    until(Path(f"{hold}.reached").exists, what="the drain")
    child.wait()
    agent.kill(signal.SIGTERM)
    until(lambda: not job.connects(), what="the end of its listening")
    hold.unlink()
    assert agent.wait() == 0
    assert job.committed() == [3]
    assert "committed step=3" in agent.output
    job.start_agent()
    job.run(steps=6)
    assert resumes(job.out)[-1][1:] == (3, "ram")


def test_sigterm_of_the_agent_waits_for_its_grace_only(make_job: MakeJob, tmp_path: Path) -> None:
    """A drain that does not end within the grace is left: the agent ends, nothing half is promised, RAM serves."""
    hold = tmp_path / "hold"
    hold.touch()
    job = make_job(every=3, commit_every=3)
    agent = job.start_agent(hold={"do": "SYNC", "file": str(hold)}, grace_s=0.3)
    (child,) = job.start(die_at=3)
    until(Path(f"{hold}.reached").exists, what="the drain")
    child.wait()
    agent.kill(signal.SIGTERM)
    assert agent.wait(10) == 0
    assert job.committed() == []
    hold.unlink()
    job.start_agent()
    job.run(steps=6)
    assert resumes(job.out)[-1][1:] == (3, "ram")
    assert StepId(2, 6) in job.target.step_ids()


def test_a_hang_4_a_rank_that_never_evacuates_holds_up_nobody(make_job: MakeJob) -> None:
    """A-HANG-4: rank 1 trains and never calls step(): rank 0 loses timeout_s once, its own collectives go on, and waiting
    for the commit of a step ends in time with the missing rank's number."""
    job = make_job(ranks=2)
    job.start_agent()
    for child in job.start(program="small:absent_rank", timeout_s=1.0):
        child.ok()
    zero, one = (job.result(rank) for rank in (0, 1))
    assert zero["total"] == one["total"] == 2.0
    assert zero["spent_s"] < 1.0 + 1.0
    assert zero["first"]["type"] == "AgentError"
    assert "rank 1 did not evacuate it" in zero["first"]["text"]
