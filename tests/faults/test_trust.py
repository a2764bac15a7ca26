"""Wrong bytes are found before they are used, named, and the next candidate is taken; nothing is believed by its name."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hinan.core.ids import StepId
from hinan.formats.image import Header
from hinan.tiers.mapping import map_file, read_header
from tests.harness.job import Job, MakeJob, assert_same_run, until
from tests.programs.loop import resumes

Reference = Callable[[int], Job]


def killed_with_two_commits(zygote: Any, root: Path, ranks: int) -> Path:
    """The root of a killed run with steps 6 and 12 committed and no RAM copy left."""
    job = Job(zygote, root, ranks=ranks)
    job.start_agent()
    for child in job.start(wait_committed=[6, 12], die_at=12):
        child.wait()
    job.end_agent()
    job.arena.wipe()
    return root


@pytest.fixture(scope="module")
def one_rank(zygote: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return killed_with_two_commits(zygote, tmp_path_factory.mktemp("one") / "run", 1)


@pytest.fixture(scope="module")
def two_ranks(zygote: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return killed_with_two_commits(zygote, tmp_path_factory.mktemp("two") / "run", 2)


def from_copy(job: Job, root: Path) -> Path:
    """Let a job go on from a copy of another one; the directory of its newest step."""
    shutil.rmtree(job.root)
    shutil.copytree(root, job.root)
    job.start_agent()
    return job.target.directory(StepId(1, 12))


def flip(path: Path, offset: int, bit: int = 0) -> None:
    """Change one bit of a file."""
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ (1 << bit)]))


def header_of(path: Path) -> Header:
    return read_header(map_file(path), str(path))[1]


def offset(path: Path, where: str) -> int:
    """A byte of an image: the first and the last 64 of its tensors, the middle, or in its header."""
    header = header_of(path)
    last = header.entries[-1]
    end = last.offset + last.size_bytes
    first = header.data_start
    return {"start": first, "middle": (first + end) // 2, "last 64": end - 32, "header": 40}[where]


def log_of(job: Job) -> str:
    return job.children[-job.ranks].output


def resumed_at_6(job: Job, reference: Job) -> None:
    """The older step was taken by all ranks, and the run ended as if nothing had been."""
    job.run()
    assert resumes(job.out)[-1][1:] == (6, "target")
    assert_same_run(job, reference)


@pytest.mark.parametrize("where", ["start", "middle", "last 64", "header"])
def test_a_trust_2_a_flipped_bit_is_refused_with_file_and_tensor(
    where: str, make_job: MakeJob, reference: Reference, one_rank: Path
) -> None:
    """A-TRUST-2: one bit of the newest step's image is wrong: refused with file and tensor named, the older step taken; the
    next restart does not try it again."""
    job = make_job()
    image = from_copy(job, one_rank) / "rank-00000.safetensors"
    at = offset(image, where)
    inside = [e.name for e in header_of(image).entries if e.offset <= at < e.offset + e.size_bytes]
    flip(image, at)
    resumed_at_6(job, reference(1))
    (said,) = [line for line in log_of(job).splitlines() if "restore.refused" in line]
    assert "rank-00000.safetensors" in said
    assert (f"tensor {inside[0]!r}" if inside else "header") in said
    failures = job.target.failures()
    assert failures == {(StepId(1, 12), "target")}


def test_a_trust_2_the_padding_of_an_image_means_nothing(make_job: MakeJob, reference: Reference, one_rank: Path) -> None:
    """A-TRUST-2: a flipped bit behind the last tensor changes no value: the step serves, bit-exactly."""
    job = make_job()
    image = from_copy(job, one_rank) / "rank-00000.safetensors"
    flip(image, image.stat().st_size - 1)
    job.run()
    assert resumes(job.out)[-1][1:] == (12, "target")
    assert_same_run(job, reference(1))


def test_a_trust_2_a_flipped_bit_in_a_manifest(make_job: MakeJob, reference: Reference, one_rank: Path) -> None:
    """A-TRUST-2: one bit of the manifest is wrong: it is named, the older step taken, and nothing of the newer deleted."""
    job = make_job()
    manifest = from_copy(job, one_rank) / "rank-00000.json"
    flip(manifest, manifest.read_bytes().index(b'"digests"') + 14)
    resumed_at_6(job, reference(1))
    assert f"{manifest} has changed since it was written" in log_of(job)
    assert (manifest.parent / "rank-00000.safetensors").exists()


def test_a_trust_2_a_flipped_bit_in_the_commit_record(make_job: MakeJob, reference: Reference, one_rank: Path) -> None:
    """A-TRUST-2: one bit of the commit record is wrong: it is named and the older step taken; the agent neither replaces
    the record nor complains about it for ever."""
    job = make_job()
    commit = from_copy(job, one_rank) / "COMMIT"
    flip(commit, commit.read_bytes().index(b'"manifest_sums"') + 20)
    damaged = commit.read_bytes()
    resumed_at_6(job, reference(1))
    assert f"{commit} has changed since it was written" in log_of(job)
    assert commit.read_bytes() == damaged
    assert job.agents[-1].output.count("could not commit") == 0


@pytest.mark.parametrize("with_manifests", [False, True])
def test_a_trust_2_swapped_shards(with_manifests: bool, make_job: MakeJob, reference: Reference, two_ranks: Path) -> None:
    """A-TRUST-2: the files of two ranks, equal in size, are swapped (images alone, or with their manifests): refused."""
    job = make_job(ranks=2)
    directory = from_copy(job, two_ranks)
    for suffix in ("safetensors", *(["json"] if with_manifests else [])):
        a, b, aside = directory / f"rank-00000.{suffix}", directory / f"rank-00001.{suffix}", directory / "aside"
        a.rename(aside), b.rename(a), aside.rename(b)
    resumed_at_6(job, reference(2))
    assert ("the manifest is that of step 12 (attempt 1), rank 1" if with_manifests else "tensor ") in log_of(job)


def test_a_trust_1_a_damaged_ram_copy_is_not_used_and_not_tried_again(make_job: MakeJob, reference: Reference) -> None:
    """A-TRUST-1: a byte of the RAM copy changes after it was proven: it is found before use, all ranks take the committed
    step, the restart after that does not try the RAM copy again, and it is not drained either."""
    job = make_job(ranks=2, every=3, commit_every=6)
    job.start_agent()
    for child in job.start(wait_committed=[6], die_at=9, commit_every=1000):
        child.wait()
    until(lambda: 9 in job.committed(), what="the agent's own commit of step 9")
    job.end_agent()
    damaged = [f for f in job.arena.scan() if f.sealed and f.sealed.step == 9 and f.rank == 1]
    assert damaged
    for files in damaged:
        flip(job.arena.path(files.name), offset(job.arena.path(files.name), "middle"))
    shutil.rmtree(job.target.directory(StepId(1, 9)))
    job.start_agent()
    for child in job.start(die_at=7, commit_every=1000):
        child.wait()
    assert resumes(job.out)[-1] == (2, 6, "target")
    assert "tensor " in log_of(job) and damaged[0].name in log_of(job)
    assert (StepId(1, 9), "ram") in job.target.failures()
    job.run()
    assert resumes(job.out)[-1][1:] == (6, "target")
    assert 9 not in {s.step for s in job.target.step_ids() if s.attempt == 1}
    assert_same_run(job, reference(2))


@pytest.mark.parametrize("change", ["bfloat16", "float16", "float64", "int64", "shape", "missing"])
def test_a_trust_3_nothing_is_cast_or_reshaped_silently(change: str, make_job: MakeJob, saved_vector: Path) -> None:
    """A-TRUST-3, A-TRUST-4: the live state has another dtype, shape or key than the saved one: refused with the path and
    both sides, and not one live tensor has changed; the saved state serves the right one afterwards."""
    job = make_job()
    from_copy_of_small(job, saved_vector)
    for wanted in (change, ""):
        (child,) = job.start(program="small:mismatch", change=wanted)
        child.ok()
        found = job.result()
        if wanted:
            assert found["same"]
            assert found["error"]["type"] == "StructureError"
            assert ("new" if change == "missing" else "w was saved as torch.float32 (4,)") in found["error"]["text"]
        else:
            assert (found["error"], found["resumed"], found["w"]) == (None, 2, [9.0] * 4)


@pytest.fixture(scope="module")
def saved_vector(zygote: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a closed run of `small:mismatch` with steps 1 and 2 committed."""
    job = Job(zygote, tmp_path_factory.mktemp("vector") / "run")
    job.start_agent()
    (child,) = job.start(program="small:mismatch")
    child.ok()
    until(lambda: job.agent is None, what="the agent's end")
    return job.root


def from_copy_of_small(job: Job, root: Path) -> None:
    shutil.rmtree(job.root)
    shutil.copytree(root, job.root)
    job.start_agent()


def test_a_trust_4_a_load_that_fails_leaves_live_state_unchanged(make_job: MakeJob, saved_vector: Path) -> None:
    """A-TRUST-4: both committed steps are damaged, the newer in its last tensor: the load fails with every reason, and the
    first tensor, whose bytes were right, was not written either."""
    job = make_job()
    from_copy_of_small(job, saved_vector)
    for step in (1, 2):
        image = job.target.image_path(StepId(1, step), 0)
        flip(image, offset(image, "last 64"), bit=7)
    (child,) = job.start(program="small:mismatch")
    child.ok()
    found = job.result()
    assert found["same"] and found["error"]["type"] == "NothingToResume"
    (child,) = job.start(program="small:mismatch")
    child.ok()
    found = job.result()
    assert found["error"]["text"].count("an earlier restart from it failed") == 2


def test_a_trust_5_an_incomplete_step_is_neither_offered_nor_deleted(
    make_job: MakeJob, reference: Reference, two_ranks: Path
) -> None:
    """A-TRUST-5: a committed step has lost one of its shards: everything else of it is there, but it is not offered; the
    reason is in the log; retention neither deletes it nor counts it."""
    job = make_job(ranks=2)
    directory = from_copy(job, two_ranks)
    (directory / "rank-00001.safetensors").unlink()
    resumed_at_6(job, reference(2))
    assert "steps/0000000012-000001/rank-00001.safetensors is missing" in log_of(job)
    assert (directory / "COMMIT").exists() and (directory / "rank-00000.safetensors").exists()


def test_a_trust_6_a_restore_reports_what_it_did(make_job: MakeJob, one_rank: Path, two_ranks: Path) -> None:
    """A-TRUST-6: on a good target the report has step, source and bytes; on an empty one it says 0 and why; where there is
    something that cannot be used (another number of ranks) the run stops instead of starting at 0."""
    job = make_job("good")
    from_copy(job, one_rank)
    job.run()
    assert "restored step=12 attempt=1 source=target" in log_of(job)
    job = make_job("empty")
    job.start_agent()
    job.run(steps=1)
    assert "restored step=0 attempt=None source=-" in log_of(job) and "nothing was saved yet" in log_of(job)
    job = make_job("other")
    from_copy(job, two_ranks)
    (child,) = job.start()
    assert child.wait() == 1
    assert "NothingToResume" in child.output and "saved by 2 ranks, asked for by 1: start 2 ranks" in child.output
    job.run(options={"fresh": True}, steps=3)


@pytest.mark.parametrize("how", ["a pipe", "empty"])
def test_ram_serves_without_one_byte_from_the_target(how: str, make_job: MakeJob) -> None:
    """A restore from RAM works with the target's payload unreadable: no image below the target is opened, no byte read."""
    job = make_job()
    job.start_agent()
    (child,) = job.start(program="small:audited")
    child.ok()
    assert job.committed()[-1] == 2
    for image in job.target_path.glob("steps/*/*.safetensors"):
        image.unlink()
        os.mkfifo(image) if how == "a pipe" else image.write_bytes(b"")
    (child,) = job.start(program="small:audited")
    child.ok()
    found = job.result()
    assert (found["step"], found["source"], found["w"]) == (2, "ram", 2.0)
    assert list(found["bytes_from"]) == ["ram"]
    assert [name for name in found["opened"] if name.endswith(".safetensors")] == []
