"""Targets and files that cannot be used: each is named with a way out, and earlier evacuations stay as they were."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hinan.core.ids import StepId
from tests.faults.starts import refused, saved, start_once, still_resumes
from tests.harness.disks import Disks, fill
from tests.harness.job import Job, MakeJob, until
from tests.programs.lines import read_lines
from tests.programs.loop import resumes


def steps(job: Job) -> list[dict[str, Any]]:
    """Whole lines that `small:hung` wrote."""
    return read_lines(job.out / "steps.jsonl")


def test_the_parent_of_the_target_does_not_exist(make_job: MakeJob) -> None:
    """The target's parent is missing: it is named, and nothing is created."""
    job = make_job()
    job.target_path = job.root / "absent" / "target"
    refused(job, "TargetError", str(job.root / "absent"), "create it")
    assert not (job.root / "absent").exists()


def test_a_file_in_the_place_of_the_target(make_job: MakeJob) -> None:
    """The target is a file: it is named and left alone."""
    job = make_job()
    job.target_path.write_text("mine")
    refused(job, "TargetError", str(job.target_path), "must be a directory")
    assert job.target_path.read_text() == "mine"


def test_a_target_that_holds_other_things(make_job: MakeJob) -> None:
    """The target is somebody's directory: what is in it is named, and nothing is added."""
    job = make_job()
    job.target_path.mkdir()
    (job.target_path / "thesis.tex").write_text("mine")
    refused(job, "TargetError", "thesis.tex", "empty or new directory")
    assert [p.name for p in job.target_path.iterdir()] == ["thesis.tex"]


def test_a_read_only_target(disks: Disks, make_job: MakeJob) -> None:
    """The target cannot be written: the error names it and the cause; with write permission the run goes on."""
    job = saved(make_job())
    seen = disks.read_only("seen", job.root)
    refused(job, "TargetError", str(seen / "target"), "Read-only file system", targets=[str(seen / "target")])
    still_resumes(job)


def test_a_full_target(disks: Disks, make_job: MakeJob) -> None:
    """The target's disk is full at the start of an attempt: the error names it and the cause; with room the run goes on."""
    disks.tmpfs("disk", 8 << 20)
    job = saved(make_job("disk/run"))
    filler = fill(job.root.parent)
    refused(job, "TargetError", str(job.target_path), "No space left on device")
    filler.unlink()
    still_resumes(job)


def test_a_target_of_a_living_attempt(make_job: MakeJob, tmp_path: Path) -> None:
    """The target belongs to an attempt whose process lives: its pid is named; it goes on undisturbed, and its evacuations
    are intact. With take_over=True the new attempt wins, and the old one ends with Fenced."""
    job = make_job()
    stop = tmp_path / "stop"
    job.start_agent()
    (first,) = job.start(program="small:hung", stop_file=str(stop))
    until((job.out / "steps.jsonl").exists, what="the first steps")
    refused(job, "TargetError", f"pid {first.pid}", "take_over=True", "is still running")
    taken = start_once(job, options={"take_over": True})
    assert taken["error"] is None and taken["step"] > 0

    def fenced() -> bool:
        return any((line["error"] or {}).get("type") == "Fenced" for line in steps(job))

    until(fenced, what="Fenced in the old attempt")
    stop.touch()
    first.wait()


def from_the_future(path: Path) -> None:
    """Make a record one that a newer version has written."""
    envelope = msgspec.json.decode(path.read_bytes())
    path.unlink()
    path.write_bytes(msgspec.json.encode(envelope | {"version": 2}) + b"\n")


@pytest.fixture(scope="module")
def two_steps(zygote: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Target and output of a killed run with steps 6 and 12 committed and no RAM copy left."""
    job = Job(zygote, tmp_path_factory.mktemp("two") / "run")
    job.start_agent()
    (child,) = job.start(wait_committed=[6, 12], die_at=12)
    child.wait()
    job.end_agent()
    job.arena.wipe()
    return job.root


def from_copy(job: Job, root: Path) -> Job:
    """Let a job go on from a copy of another one."""
    import shutil

    shutil.rmtree(job.root)
    shutil.copytree(root, job.root)
    job.start_agent()
    return job


@pytest.mark.parametrize("name", ["rank-00000.json", "COMMIT"])
def test_a_format_1_a_step_from_the_future_is_refused_with_both_versions(
    name: str, make_job: MakeJob, two_steps: Path
) -> None:
    """A-FORMAT-1: the newest step was written by a newer hinan: the log names file and both versions, the older step
    serves, and nobody deletes the newer one."""
    job = from_copy(make_job(), two_steps)
    future = job.target.directory(StepId(1, 12)) / name
    from_the_future(future)
    (child,) = job.start()
    child.ok()
    assert resumes(job.out)[-1][1:] == (6, "target")
    assert f"{future} has format version 2, this hinan reads up to 1: install a newer hinan" in child.output
    assert future.exists() and (future.parent / "rank-00000.safetensors").exists()


def test_a_format_1_only_steps_from_the_future(make_job: MakeJob, two_steps: Path) -> None:
    """A-FORMAT-1: where all there is comes from the future, the start is refused; it does not begin at 0."""
    job = from_copy(make_job(), two_steps)
    for step in (6, 12):
        from_the_future(job.target.directory(StepId(1, step)) / "COMMIT")
    (child,) = job.start()
    assert child.wait() == 1
    assert "NothingToResume" in child.output and "format version 2" in child.output


def test_a_run_record_from_the_future(make_job: MakeJob) -> None:
    """The run itself was made by a newer hinan: both versions are named, and nothing is changed."""
    job = saved(make_job())
    whole = (job.target_path / "run.json").read_bytes()
    from_the_future(job.target_path / "run.json")
    refused(job, "FormatFromFuture", "run.json", "format version 2", "up to 1")
    (job.target_path / "run.json").write_bytes(whole)
    still_resumes(job)


def test_a_torn_run_record(make_job: MakeJob) -> None:
    """run.json is torn: it is named; the run is not taken for a new one."""
    job = saved(make_job())
    whole = (job.target_path / "run.json").read_bytes()
    (job.target_path / "run.json").write_bytes(whole[:40])
    refused(job, "FormatError", "run.json", "not a whole hinan record")
    (job.target_path / "run.json").write_bytes(whole)
    still_resumes(job)


def test_torn_and_foreign_files_below_the_target(make_job: MakeJob, two_steps: Path) -> None:
    """Files and directories of others, and torn facts, stand where hinan's names are: the run goes on, commits, deletes its
    own and leaves theirs alone; the torn facts are named in the log."""
    job = from_copy(make_job(), two_steps)
    job.end_agent()
    target = job.target_path
    foreign = [
        target / "notes.txt", target / "steps" / "0000000099-000001", target / "steps" / "best" / "model.pt",
        target / "attempts" / "old.claim", target / "steps" / "0000000003-000001" / "mine.txt",
        target / "steps" / "0000000006-000001" / "mine.txt", target / "agents" / "x.json",
    ]  # fmt: skip
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_text("not hinan's")
    (target / "failures" / "0000000012-000001-ram.json").write_bytes(b'{"hinan":"fail')
    agent = job.start_agent(heartbeat_s=0.05)
    (child,) = job.start(keep_last=1, steps=30)
    child.ok()
    assert resumes(job.out)[-1][1:] == (12, "target")
    assert "failures/0000000012-000001-ram.json" in child.output
    assert max(job.committed()) == 30
    assert [p for p in foreign if p.read_text() != "not hinan's"] == []
    assert not job.target.image_path(StepId(1, 6), 0).exists()
    assert agent.output.count("bury step=3 ") == 0 and agent.output.count("bury step=6 ") == 1


def test_the_target_is_deleted_while_training(make_job: MakeJob, tmp_path: Path) -> None:
    """The target goes away under a living run: training goes on in RAM, is told so, and close() fails with the cause."""
    job = make_job()
    stop = tmp_path / "stop"
    job.start_agent(heartbeat_s=0.05)
    (child,) = job.start(program="small:hung", stop_file=str(stop), close=True)
    until(lambda: (job.out / "steps.jsonl").exists() and len(steps(job)) > 3, what="some steps")
    arena = job.arena
    job.target_path.rename(job.root / "elsewhere")
    until(lambda: "cannot be reached" in child.output, what="the report")
    before = len(steps(job))
    until(lambda: len(steps(job)) > before + 3, what="more steps")
    stop.touch()
    child.ok(30)
    assert "cannot be reached" in job.result()["closed"]["text"]
    (job.root / "elsewhere").rename(job.target_path)
    assert {f.sealed.step for f in arena.scan() if f.sealed}


def test_a_new_run_where_the_target_of_a_drain_was(make_job: MakeJob, tmp_path: Path) -> None:
    """The target is deleted and made again under the same name, as in a notebook; the agent of the run before is in the
    middle of a drain: the new run holds nothing of it, and starts from nothing."""
    hold = tmp_path / "hold"
    hold.touch()
    job = make_job()
    agent, arena = job.start_agent(hold={"do": "NAME", "file": str(hold)}, heartbeat_s=0.05), job.arena
    (child,) = job.start(die_at=6)
    child.wait()
    until(Path(f"{hold}.reached").exists, what="the drain of the first run")
    shutil.rmtree(job.target_path)
    job.target.open_or_create()
    hold.unlink()
    assert agent.wait() == 0
    assert "is the target of another run now" in agent.output
    assert job.target.step_ids() == []
    arena.wipe()


def test_a_new_run_names_the_ram_copy_that_it_forsakes(make_job: MakeJob, disks: Disks) -> None:
    """The target is deleted while RAM holds a step of its run: the next start begins at 0, as an empty target asks for, but
    says what can no longer be resumed before it is freed."""
    job = make_job(tmpfs=disks.tmpfs("ram", 256 << 20))  # of its own: any agent beside this one would free that copy, too
    agent = job.start_agent()
    (child,) = job.start(die_at=6, every=3)
    child.wait()
    run_id, arena = job.target.run().run_id, job.arena
    until(lambda: any(f.sealed and f.sealed.step == 6 for f in arena.scan()), what="step 6 in RAM")
    job.kill_agent()
    agent.wait()
    shutil.rmtree(job.target_path)
    (child,) = job.start(steps=1)
    child.ok()
    assert f"forsaken: RAM holds step 6 (attempt 1) of run {run_id} in {arena.root}" in child.output
    assert "nothing was saved yet" in child.output
    until(lambda: not arena.exists, what="the arena's end")
