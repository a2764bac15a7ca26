"""Torn files, the order of a commit, exits that do not wait: a restart finds the newest step that was promised."""

from __future__ import annotations

import errno
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hinan.core.commit import Do, drain_effects
from hinan.core.ids import StepId
from tests.harness.disks import Disks, fill
from tests.harness.job import Job, MakeJob, assert_same_run, until
from tests.programs.loop import resumes

Reference = Callable[[int], Job]


def last_resume(job: Job) -> tuple[int, str]:
    """(step, source) of the newest attempt."""
    return resumes(job.out)[-1][1:]


def lose_the_host(job: Job) -> None:
    """Agent killed and RAM gone: what a host takes along when it dies."""
    job.end_agent()
    job.arena.wipe()


def go_on(job: Job, **arguments: object) -> None:
    """The next attempt, to its good end."""
    job.start_agent()
    job.run(**arguments)


def test_a_commit_1_nothing_is_promised_or_deleted_before_its_successor_stands(
    make_job: MakeJob, reference: Reference, tmp_path: Path
) -> None:
    """A-COMMIT-1: while the drain of step 12 hangs, step 6 is the committed one and nothing of it is deleted; after the
    death of the whole job and the loss of the RAM, step 6 serves; what is left of step 12 is reclaimed."""
    held = tmp_path / "hold"
    job = make_job(ranks=2, keep_last=1)
    job.start_agent(hold={"do": "PUBLISH_MANIFEST", "file": str(held)})
    for child in job.start(wait_committed=[6], touch_at={"7": str(held)}, die_at=13):
        child.wait()
    until(Path(f"{held}.reached").exists, what="the drain of step 12")
    assert job.committed() == [6]
    assert job.status()["committed"] == 6
    lose_the_host(job)
    assert job.target.step_ids() == [StepId(1, 6), StepId(1, 12)]
    go_on(job)
    assert last_resume(job) == (6, "target")
    assert_same_run(job, reference(2))
    assert StepId(1, 12) not in job.target.step_ids()
    assert "bury step=12" in job.agents[-1].output


BROKEN = {
    "no manifest": lambda d: (d / "rank-00000.json").unlink(),
    "a shard is gone": lambda d: (d / "rank-00001.safetensors").unlink(),
    "a shard is short by 1 byte": lambda d: shorten(d / "rank-00001.safetensors"),
    "an empty manifest": lambda d: (d / "rank-00001.json").write_bytes(b""),
    "only a temporary name": lambda d: only_a_part(d),
}


def shorten(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)


def only_a_part(directory: Path) -> None:
    for path in list(directory.iterdir()):
        path.unlink()
    (directory / ".rank-00000.safetensors.1-abc.part").write_bytes(b"torn")


@pytest.fixture(scope="module")
def two_committed(zygote: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The target of a run of two ranks with steps 6 and 12 committed, whose host is lost."""
    job = Job(zygote, tmp_path_factory.mktemp("two") / "run", ranks=2)  # type: ignore[arg-type]
    job.start_agent()
    for child in job.start(wait_committed=[6, 12], die_at=12):
        child.wait()
    lose_the_host(job)
    return job.root


def copy_of(root: Path, job: Job) -> None:
    """Let a job go on from a copy of another one's target and output."""
    shutil.rmtree(job.root)
    shutil.copytree(root, job.root)


@pytest.mark.parametrize("form", BROKEN)
def test_a_commit_2_a_broken_newest_step_is_skipped_with_its_reason(
    form: str, make_job: MakeJob, reference: Reference, two_committed: Path
) -> None:
    """A-COMMIT-2: the newest step lacks something; the restart takes the older one and its log says why not the newest."""
    job = make_job("run", ranks=2)
    copy_of(two_committed, job)
    BROKEN[form](job.target.directory(StepId(1, 12)))
    job.start_agent()
    first, _ = job.start()
    first.ok()
    assert last_resume(job) == (6, "target")
    if form == "only a temporary name":  # it was never promised: the agent may have removed it before the trainer looked
        said = [
            line for line in (first.output + job.agents[-1].output).splitlines() if "step=12" in line or "step 12" in line
        ]
        assert any("unfinished" in line or "its drain was interrupted" in line for line in said)
    else:
        said = [line for line in first.output.splitlines() if "decide step 12" in line]
        assert len(said) == 1 and "rank-0000" in said[0], first.output
    assert_same_run(job, reference(2))


def test_a_commit_3_a_full_disk_fails_one_commit_and_no_other(
    disks: Disks, make_job: MakeJob, reference: Reference, tmp_path: Path
) -> None:
    """A-COMMIT-3: the second commit meets a full disk: the error has its errno, the first still stands, nothing half is
    visible; with room again the third commits, and what the second left is gone."""
    disks.tmpfs("disk", 24 << 20)
    job = make_job("disk/run", every=4, commit_every=4)
    job.start_agent(first_wait_s=0.001)
    pause = tmp_path / "pause"
    child = job.start(wait_committed=[4, 12], pause_file=str(pause), pause_at=[5, 9])[0]
    until(lambda: Path(f"{pause}.5").exists(), what="step 5")
    assert job.committed() == [4]
    filler = fill(job.target_path, leave_bytes=8192)
    Path(f"{pause}.5").unlink()
    until(lambda: Path(f"{pause}.9").exists(), what="step 9")
    until(lambda: job.status()["failed_in_a_row"] == 1, what="the failed commit")
    assert job.committed() == [4]
    assert not [p for p in job.target.directory(StepId(1, 8)).glob("*") if p.is_file()]
    filler.unlink()
    Path(f"{pause}.9").unlink()
    child.ok()
    assert "No space left on device" in child.output
    assert job.committed() == [4, 12, 20] or 20 in job.committed()
    until(lambda: StepId(1, 8) not in job.target.step_ids(), what="the end of what the failed commit left")
    assert_same_run(job, reference(1))


@pytest.mark.parametrize("how", ["error", "kill", "full"])
def test_a_commit_4_a_step_is_never_a_mixture(how: str, make_job: MakeJob, reference: Reference, tmp_path: Path) -> None:
    """A-COMMIT-4: writing rank 1's image of step 12 fails (an error, a SIGKILL, a full disk) after rank 0's stands: the
    restart takes all of step 6, and the next commit of step 12 is another attempt's, under another name."""
    budget = tmp_path / "budget"
    job = make_job(ranks=2)
    code = errno.ENOSPC if how == "full" else errno.EROFS
    fault = (
        {"die": {"step": 12, "do": "WRITE_ASIDE", "rank": 1}}
        if how == "kill"
        else {"fail": {"do": "WRITE_ASIDE", "rank": 1, "errno": code, "file": str(budget), "always": True}}
    )
    agent = job.start_agent(first_wait_s=0.001, **fault)
    children = job.start(wait_committed=[6], die_at=12, touch_at={"7": str(budget)})
    for child in children:
        child.wait()
    if how == "kill":
        agent.wait()
    else:
        until(lambda: job.status()["failed_in_a_row"] == 1, what="the failed commit")
    assert job.target.image_path(StepId(1, 12), 0).exists()
    assert not job.target.image_path(StepId(1, 12), 1).exists()
    lose_the_host(job)
    budget.unlink(missing_ok=True)
    go_on(job, wait_committed=[12])
    assert last_resume(job) == (6, "target")
    assert {s.attempt for s in job.target.step_ids() if s.step == 12} == {2}
    assert_same_run(job, reference(2))


def rounds(count: int) -> list[tuple[str, int | None, float, bool]]:
    """Places to be killed at: every effect of a drain of two ranks, and shares of the bytes; with and without the RAM."""
    shares = [0.1, 0.25, 0.5, 0.75, 0.85]
    effects = [(e.do.name, e.rank, 0.0) for e in drain_effects([0, 1])]
    effects += [(Do.WRITE_ASIDE.name, rank, share) for share in shares for rank in (0, 1)]
    chance = random.Random(5)
    chance.shuffle(effects)
    return [(*effect, i % 3 == 2) for i, effect in enumerate(effects[:count])]


def killed_in_the_drain(job: Job, place: tuple[str, int | None, float, bool], reference: Job) -> None:
    do, rank, share, ram_stays = place
    agent = job.start_agent(piece_bytes=4096, die={"step": 12, "do": do, "rank": rank, "share": share})
    for child in job.start(wait_committed=[6], die_at=12):
        child.wait()
    assert agent.wait() == -9, agent.output
    assert job.committed() == [6]
    if not ram_stays:
        lose_the_host(job)
    go_on(job)
    # A step that is complete on the target lacks only its record: it serves, and the record is published later.
    on_target = 12 if do == Do.PUBLISH_COMMIT.name else 6
    assert last_resume(job) == ((12, "ram") if ram_stays else (on_target, "target"))
    assert_same_run(job, reference)
    assert job.target.problems == {}


@pytest.mark.parametrize("place", rounds(20)[:3], ids=str)
def test_a_commit_5_killed_in_the_drain(
    place: tuple[str, int | None, float, bool], make_job: MakeJob, reference: Reference
) -> None:
    """A-COMMIT-5: the agent is SIGKILLed at a chosen place of the drain: the restart resumes, bit-exactly, at the newest
    step that was promised: the held one where the RAM lives, else the committed one."""
    killed_in_the_drain(make_job(ranks=2), place, reference(2))


@pytest.mark.slow
@pytest.mark.parametrize("place", rounds(21)[3:], ids=str)
def test_a_commit_5_killed_in_the_drain_all_places(
    place: tuple[str, int | None, float, bool], make_job: MakeJob, reference: Reference
) -> None:
    """A-COMMIT-5: the other places."""
    killed_in_the_drain(make_job(ranks=2), place, reference(2))


@pytest.mark.parametrize("ending", ["return", "exit", "destroy", "_exit"])
def test_a_commit_6_an_exit_without_close_loses_nothing(ending: str, make_job: MakeJob) -> None:
    """A-COMMIT-6: a loop that ends without close() has its newest evacuated step committed before the process ends; after
    os._exit the agent commits it from RAM by itself."""
    ranks = 2 if ending == "destroy" else 1
    job = make_job(ranks=ranks, close=False, ending=ending, steps=9, commit_every=1000)
    job.start_agent()
    statuses = [child.wait() for child in job.start()]
    assert statuses == [1 if ending == "exit" else 0] * ranks
    if ending == "_exit":
        until(lambda: job.committed() == [9], what="the agent's own commit")
    assert job.committed() == [9]


def test_a_commit_6_an_exit_that_cannot_be_saved_says_so(make_job: MakeJob, tmp_path: Path) -> None:
    """A-COMMIT-6: where the newest step cannot be committed at exit, the process says so and ends with a status that is
    not 0, in bounded time; the copy stays in RAM and the next attempt has it."""
    always = tmp_path / "always"
    always.write_text("1")
    job = make_job(steps=9, commit_every=1000, close=False)
    job.start_agent(first_wait_s=0.001, fail={"do": "WRITE_ASIDE", "errno": errno.EIO, "file": str(always), "always": True})
    (child,) = job.start()
    assert child.wait(20) != 0
    assert "ended without close()" in child.output and "Input/output error" in child.output
    always.unlink()
    job.run(steps=12)
    assert last_resume(job) == (9, "ram")


def test_a_commit_7_held_and_committed_are_said_when_they_are_true(make_job: MakeJob, tmp_path: Path) -> None:
    """A-COMMIT-7: while the drain hangs, log, handle and status say "held" and nothing more; "committed" comes after the
    record stands, in all three."""
    hold = tmp_path / "hold"
    hold.touch()
    job = make_job(steps=3, every=3, commit_every=3, wait_committed=[3])
    agent = job.start_agent(hold={"do": "PUBLISH_COMMIT", "file": str(hold)})
    (child,) = job.start()
    until(Path(f"{hold}.reached").exists, what="the drain")
    status = job.status()
    assert "held step=3" in child.output
    assert "committed step=3" not in agent.output and "committed step=3" not in child.output
    assert (status["watermark"]["step"], status["committed"], status["draining"]) == (3, 0, 3)
    hold.unlink()
    child.ok()
    assert "committed step=3" in agent.output
    assert json.loads((job.target.directory(StepId(1, 3)) / "COMMIT").read_bytes())["body"]["step"] == 3
