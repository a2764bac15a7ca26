"""Edges of a run's life with real processes: ends and starts that meet, an agent that dies late, what leaks."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hinan.host.process import Process
from tests.harness.job import TMPFS, Job, MakeJob, until
from tests.programs.loop import resumes
from tests.programs.points import VARIABLE
from tests.survive.test_kill import assert_same_run


def points_of(job: Job) -> tuple[Path, dict[str, str]]:
    points = job.root / "points"
    points.mkdir()
    return points, {VARIABLE: str(points)}


@pytest.fixture
def ram() -> Iterator[Path]:
    """A directory of this test's own on the machine's tmpfs; the usual temporary directory lies on a disk."""
    with tempfile.TemporaryDirectory(dir=TMPFS, prefix="hinan-test-") as path:
        yield Path(path)


def reached(points: Path, name: str) -> Path:
    path = points / f"{name}.reached"
    until(path.exists, what=f"{name} reached")
    return path


def test_a_rank_dies_in_the_first_copy(make_job: MakeJob) -> None:
    """One rank has sealed its first image, the other one never did: nothing was promised, and the run begins again."""
    reference = make_job("reference", ranks=2, steps=8)
    reference.run()
    job = make_job("run", ranks=2, steps=8)
    points, env = points_of(job)
    (points / "copied-0").touch()
    job.start(env, "torture:main")
    reached(points, "copied-0")
    until(lambda: any(files.sealed for files in job.arena.scan()), what="the other rank's seal")
    job.kill_all()
    (points / "copied-0.reached").unlink()
    for child in job.start(env, "torture:main"):
        child.ok()
    assert_same_run(job, reference)


def test_sigterm_lets_a_drain_finish(make_job: MakeJob) -> None:
    """The agent is told to end while it drains: the step is committed first, and the RAM stays."""
    job = make_job("run", steps=6, every=6, commit_every=6, close=False)
    points, env = points_of(job)
    (points / "agent-before-PUBLISH_COMMIT").touch()
    (child,) = job.start(env, "torture:main", die_at=6)
    held = reached(points, "agent-before-PUBLISH_COMMIT")
    child.wait()
    agent = job.agent
    assert agent is not None
    os.kill(agent.pid, signal.SIGTERM)
    until(lambda: _deaf(job), what="the end to begin")
    assert agent.is_alive
    held.unlink()
    until(lambda: not agent.is_alive, what="the agent's end")
    assert job.committed() == [6]
    assert job.arena.exists


def _log(job: Job) -> str:
    return (job.arena.root / "agent.log").read_text()


def _deaf(job: Job) -> bool:
    """Whether nobody listens at the agent's socket any more."""
    with socket.socket(socket.AF_UNIX) as s:
        try:
            s.connect(str(job.arena.root / "agent.sock"))
        except OSError:
            return True
    return False


def test_the_agent_dies_while_the_run_closes(make_job: MakeJob) -> None:
    """The last step is being committed for close(): a new agent takes over, and the training ends well."""
    job = make_job("run", steps=6, every=6, commit_every=6)
    points, env = points_of(job)
    (points / "closing-0").touch()
    (points / "agent-before-PUBLISH_COMMIT").touch()
    (child,) = job.start(env, "torture:main")
    closing = reached(points, "closing-0")
    held = reached(points, "agent-before-PUBLISH_COMMIT")
    closing.unlink()
    until(lambda: "trainer.closing" in _log(job), what="close to be asked")
    job.kill_agent()
    held.unlink()
    child.ok()
    assert job.committed() == [6]
    until(lambda: not job.arena.exists, what="the arena to be freed")


def test_evacuators_of_one_process_leave_no_thread(make_job: MakeJob) -> None:
    """A notebook makes one after the other: their threads end with them, and do not wait for the collector of cycles."""
    job = make_job("run")
    (child,) = job.start(program="edges:one_after_another")
    child.ok()
    assert (job.out / "done").exists()


@pytest.mark.parametrize("how", ["gone", "interrupted"])
def test_a_close_that_failed_can_be_tried_again(how: str, make_job: MakeJob) -> None:
    """The second close() is no empty "yes": it returns when the newest step is committed."""
    job = make_job("run")
    (child,) = job.start(program="edges:closed_again", how=how)
    child.ok()
    assert job.committed() == [1]
    assert (job.out / "done").exists()


def test_a_run_goes_on_right_after_it_was_closed(make_job: MakeJob) -> None:
    """More steps are asked for while the old agent may still live; then all dies: nothing is lost."""
    reference = make_job("reference", steps=20)
    reference.run()
    job = make_job("run")
    job.run(steps=9)
    (child,) = job.start(steps=20, die_at=16)
    child.wait()
    job.run(steps=20)
    assert resumes(job.out)[-1][1:] == (15, "ram")
    assert_same_run(job, reference)


def test_the_arena_is_taken_away(make_job: MakeJob) -> None:
    """Somebody cleans up the tmpfs under a running job: evacuations are lost and reported, training goes on to its end."""
    reference = make_job("reference", steps=24)
    reference.run()
    job = make_job("run", steps=24, every=1, commit_every=24, step_s=0.01)
    (child,) = job.start(program="torture:main")
    until(lambda: job.step() >= 4, what="step 4")
    shutil.rmtree(job.arena.root)
    child.ok()
    assert "report" in child.output
    assert_same_run(job, reference)


def test_a_structure_that_grows(make_job: MakeJob) -> None:
    """Slots of the new length come under names that were used before; every step is evacuated and committed."""
    job = make_job("run")
    for child in job.start(program="edges:grows"):
        child.ok()
    assert (job.out / "done").exists()


def test_misuse_is_told_at_once(make_job: MakeJob) -> None:
    job = make_job("run")
    began = time.monotonic()
    for child in job.start(program="edges:misused"):
        child.ok()
    assert time.monotonic() - began < 60
    assert (job.out / "done").exists()


@pytest.mark.parametrize("check", ["off", "bits"])
@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.slow), 23])
def test_an_interrupt_anywhere_loses_nothing(stride: int, check: str, make_job: MakeJob) -> None:
    """Ctrl-C at every line of an evacuation: asked for again, the step is held, whole, and is that of the present state."""
    job = make_job("run")
    (child,) = job.start(program="edges:interrupted", stride=stride, check=check)
    child.ok(100)
    assert int((job.out / "done").read_text()) > 700 / stride


@pytest.mark.parametrize("check", ["off", "bits"])
def test_a_gate_that_is_interrupted_anywhere_is_passed_again(check: str, make_job: MakeJob) -> None:
    """Ctrl-C at every line of an optimizer's gate: called again it steps, and what was on its way is held and whole."""
    job = make_job("run")
    (child,) = job.start(program="edges:interrupted_at_the_gate", check=check)
    child.ok(100)
    assert int((job.out / "done").read_text()) > 30


def test_interrupted_evacuations_are_given_up_for_all_ranks(make_job: MakeJob) -> None:
    """Those that nobody asks for again are lost, by name; their slots are not."""
    job = make_job("run")
    (child,) = job.start(program="edges:interrupted_and_left")
    child.ok()
    assert child.output.count("it was interrupted before it began") == 8
    assert "no slot was free" not in child.output
    assert (job.out / "done").exists()


def test_a_forked_child_is_refused(make_job: MakeJob) -> None:
    """It has neither threads nor slots of its own; what it does costs the parent nothing."""
    job = make_job("run")
    (child,) = job.start(program="edges:forked")
    child.ok()
    assert "lost" not in child.output
    assert (job.out / "done").exists()


@pytest.mark.slow
def test_both_ranks_wait_for_commits(make_job: MakeJob) -> None:
    job = make_job("run", ranks=2)
    for child in job.start(program="edges:waits"):
        child.ok()


@pytest.mark.slow
def test_an_arena_with_a_long_path(make_job: MakeJob, ram: Path) -> None:
    """Longer than a socket's name may be: the agent is reached all the same."""
    tmpfs = ram / ("long" * 20) / ("longer" * 10)
    tmpfs.mkdir(parents=True)
    reference = make_job("reference")
    reference.run()
    job = make_job("run", tmpfs=tmpfs, options={"ram": str(tmpfs)})
    (child,) = job.start(die_at=13)
    child.wait()
    job.run()
    assert resumes(job.out)[-1][1:] == (12, "ram")
    assert_same_run(job, reference)


@pytest.mark.slow
def test_an_idle_agent_costs_nothing(make_job: MakeJob, tmp_path: Path) -> None:
    """While training computes and nothing is due, the agent uses less than a twentieth of a core."""
    pause = tmp_path / "pause"
    job = make_job("run", steps=12, every=3, commit_every=3, pause_file=str(pause))
    job.start(steps=12, program="edges_pause:main")
    until(lambda: job.committed(), what="a commit")
    agent = until(lambda: job.agent, what="the agent")
    before, began = _cpu_s(agent), time.monotonic()
    until(lambda: time.monotonic() - began > 3.0)
    used = _cpu_s(agent) - before
    pause.unlink()
    for child in job.children:
        child.ok()
    assert used / 3.0 < 0.05


def _cpu_s(who: Process) -> float:
    fields = Path(f"/proc/{who.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
def test_nothing_leaks_over_many_evacuations(make_job: MakeJob) -> None:
    """Descriptors, threads and facts are the same after 400 evacuations as after 40, in trainer and agent."""
    job = make_job("run")
    (child,) = job.start(program="edges:many")
    counts = job.out / "counts"
    until(lambda: counts.exists() and len(counts.read_text().splitlines()) >= 3, 60)
    agent = until(lambda: job.agent, what="the agent")
    early = _of(agent), len(os.listdir(job.arena.root))
    until(lambda: len(counts.read_text().splitlines()) >= 18 or child.pid in job.zygote._ended, 120)
    late = _of(agent), len(os.listdir(job.arena.root))
    child.ok(120)
    lines = [line.split() for line in counts.read_text().splitlines()]
    for fds, threads in (map(int, line[1:]) for line in lines[3:]):
        assert abs(fds - int(lines[2][1])) <= 2
        assert abs(threads - int(lines[2][2])) <= 1
    assert late[0][0] - early[0][0] <= 3
    assert late[0][1] - early[0][1] <= 1
    assert late[1] - early[1] <= 6
    assert late[0][2] - early[0][2] < 8 << 20


def _of(who: Process) -> tuple[int, int, int]:
    directory = Path(f"/proc/{who.pid}")
    resident = int(re.search(r"RssAnon:\s+(\d+)", (directory / "status").read_text())[1]) * 1024  # type: ignore[index]
    return len(list((directory / "fd").iterdir())), len(list((directory / "task").iterdir())), resident


@pytest.mark.slow
@pytest.mark.parametrize("every", ["0.05s", "auto"])
def test_all_ranks_evacuate_the_same_steps_under_a_changing_cadence(make_job: MakeJob, every: str) -> None:
    """A cadence in seconds changes while ranks are killed: in every attempt both ranks held the same steps."""
    job = make_job("run", ranks=2, steps=160, every=every, commit_every=every, step_s=0.004)
    for goal in (60, 110):
        children = job.start(program="torture:main")
        until(lambda goal=goal: job.step() >= goal, what=f"step {goal}")
        children[goal % 2].kill()
        for child in children:
            child.kill() if _is_up(child.pid) else None
            child.wait()
    for child in job.start(program="torture:main"):
        child.ok()
    held = [_held(job, rank) for rank in (0, 1)]
    assert held[0].keys() == held[1].keys()
    for attempt in held[0]:
        a, b = held[0][attempt], held[1][attempt]
        common = min(len(a), len(b))
        assert a[:common] == b[:common]
        assert abs(len(a) - len(b)) <= 1
    changed = [(job.root / f"rank-{rank}.log").read_text().count("cadence.changed") for rank in (0, 1)]
    if every != "auto":
        assert min(changed) >= 1


def _is_up(pid: int) -> bool:
    return Process(pid, 0).pid in {int(n) for n in os.listdir("/proc") if n.isdigit()}


def _held(job: Job, rank: int) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for step, attempt in re.findall(r"held step=(\d+) attempt=(\d+)", (job.root / f"rank-{rank}.log").read_text()):
        found.setdefault(int(attempt), []).append(int(step))
    return found
