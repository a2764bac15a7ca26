"""All ranks come to one answer: which step, which place, which steps to evacuate, whatever each of them sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from hinan.tiers.arena import PROVEN
from tests.faults.test_peers import told
from tests.faults.test_trust import flip
from tests.harness.job import Job, MakeJob, assert_same_run, until
from tests.programs.loop import resumes
from tests.programs.points import VARIABLE

WIDTH = 160


def killed_apart(job: Job, points: Path, step: int = 9) -> None:
    """Kill a job, agent first, while rank 1 is in the middle of its copy of this step and all others hold it."""
    points.mkdir()
    held_at = points / "copying-1"
    job.start_agent()
    job.start(env={VARIABLE: str(points)}, program="torture:main", touch_at={str(step - 1): str(held_at)})

    def others_hold_it() -> bool:
        held = {f.rank for f in job.arena.scan() if f.sealed is not None and f.sealed.step == step}
        return held == set(range(job.ranks)) - {1}

    until(Path(f"{held_at}.reached").exists, what="rank 1 in its copy")
    until(others_hold_it, what="the other ranks' seals")
    job.end_agent()
    job.kill_all()


def one_answer(job: Job, step: int, source: str) -> None:
    """The next attempt goes on from here on every rank."""
    job.start_agent()
    job.run()
    assert [resumes(job.out, rank)[-1][1:] for rank in range(job.ranks)] == [(step, source)] * job.ranks


def test_a_agree_1_a_step_of_one_rank_alone_is_no_step(make_job: MakeJob, tmp_path: Path) -> None:
    """A-AGREE-1: rank 0 holds step 9, rank 1 died in its copy; both hold step 6: both take 6, the log says which rank 9
    lacks, and the run ends as if nothing had been."""
    reference = make_job("reference", ranks=2, width=WIDTH)
    reference.start_agent()
    reference.run()
    job = make_job(ranks=2, width=WIDTH)
    killed_apart(job, tmp_path / "points")
    one_answer(job, 6, "ram")
    assert "decide step 9 (attempt 1) from ram: no image of rank 1 of 2" in job.children[-2].output
    assert_same_run(job, reference)


@pytest.mark.parametrize("change", ["none", "empty", "dirty"])
def test_a_agree_2_different_steps_in_ram(change: str, make_job: MakeJob, tmp_path: Path) -> None:
    """A-AGREE-2: ranks 0 and 2 hold steps 9 and 6 in RAM, rank 1 only 6, the target has 3, and the agent is dead: all take
    6 from RAM. Where rank 1's RAM is empty, all take 3 from the target; where its step 6 is dirty too (sealed, not proven,
    and changed since), the same. Each time the reason is in the log."""
    job = make_job(ranks=3, width=WIDTH, wait_committed=[3], commit_every=1000 * 3)
    killed_apart(job, tmp_path / "points")
    (files,) = [f for f in job.arena.scan() if f.rank == 1 and f.sealed is not None and f.sealed.step == 6]
    if change == "empty":
        for path in job.arena.root.glob(f"{files.name}*"):
            path.unlink()
    if change == "dirty":
        job.arena.path(files.name, PROVEN).unlink(missing_ok=True)
        flip(job.arena.path(files.name), 40)
    one_answer(job, *((6, "ram") if change == "none" else (3, "target")))
    said = [line.partition(" decide ")[2] for line in job.children[-3].output.splitlines() if " decide " in line]
    taken = "step 6 (attempt 1) from ram" if change == "none" else "step 3 (attempt 1) from target"
    assert f"{taken}: all 3 images found and proven" in [line.removesuffix(", digest taken late") for line in said]
    if change != "empty":  # then nothing in RAM is worth keeping, and an agent of another run may have freed it
        assert "step 9 (attempt 1) from ram: no image of rank 1 of 3" in said
    if change == "dirty":
        assert [line for line in said if line.startswith("step 6 (attempt 1) from ram: ") and "rank 1" in line]


def test_a_agree_4_one_rank_decides_and_tells_the_others(make_job: MakeJob) -> None:
    """A-AGREE-4: rank 1 sees what rank 0 has made on the target only after a while, at the start and at the restart: it
    waits for the names it was told of, both take the same step, and nobody hangs."""
    job = make_job(ranks=2)
    job.start_agent()
    late = {"program": "peers:sees_late", "late_ranks": [1], "late_s": 0.6}
    for child in job.start(**late, names=["run.json"]):
        child.ok(30)
    assert [found["error"] for found in told(job)] == [None, None]
    until(lambda: job.agent is None, what="the agent's end after close")
    job.start_agent()
    for child in job.start(**late, names=["run.json", "attempts", "steps"]):
        child.ok(30)
    assert [(found["error"], found["step"]) for found in told(job)] == [(None, 1), (None, 1)]


def test_a_agree_6_no_rank_evacuates_by_its_own_clock(make_job: MakeJob) -> None:
    """A-AGREE-6: cadences are given in seconds, and rank 1's clocks are ahead, drift and step backwards: both ranks follow
    the same changes of the cadence and evacuate at the same steps, and their collectives go on."""
    job = make_job(ranks=2)
    job.start_agent()
    for child in job.start(program="peers:odd_clock"):
        child.ok(30)
    zero, one = told(job)
    assert zero == one
    assert len(zero["evacuated"]) > 3 and zero["from_step"] > 0


def test_a_agree_7_the_trainers_group_is_never_touched(make_job: MakeJob) -> None:
    """A-AGREE-7: from construction to close, with commits and with a restore that checks every byte, the default group has
    carried out not one collective, and hinan's own none while training; no tensor of hinan is on the default device."""
    job = make_job(ranks=2)
    job.start_agent()
    for steps, resumed in ((2, 0), (4, 2)):
        for child in job.start(program="peers:counted", steps=steps):
            child.ok(30)
        for found in told(job):
            before, after, control = found["seen"]
            assert before == after == control - 1
            assert found["own"][0] == found["own"][1] > 0
            assert (found["resumed"], found["w"]) == (resumed, [float(steps)] * 4)
        until(lambda: job.agent is None, what="the agent's end after close")
        job.start_agent()
