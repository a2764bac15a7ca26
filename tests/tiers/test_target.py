"""What stands on a target: one run, committed steps that are whole, deletions that wait for readers."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hinan.core.errors import FormatError, TargetError
from hinan.core.ids import StepId, image_file, manifest_file
from hinan.formats import records as r
from hinan.tiers.publish import publish
from hinan.tiers.target import Target
from tests.harness.disks import names
from tests.harness.racing import together

STEP = StepId(1, 10)


def store(target: Target, step_id: StepId = STEP, ranks: int = 1, commit: bool = True) -> Path:
    """A step as a drain leaves it, with images of a few bytes."""
    directory = target.make_directory(step_id)
    for rank in range(ranks):
        sealed = r.SealedRecord(*step_id, rank, ranks, "node", 4, "ab", msgspec.Raw(b"{}"), 0, "now", 0.1)
        proven = r.ProvenRecord(*step_id, rank, "ab", 8 << 20, [], late=False)
        (directory / image_file(rank)).write_bytes(b"data")
        publish(directory / manifest_file(rank), r.encode(r.ManifestRecord(sealed, proven)), power_safe=False)
    if commit:
        target.publish_commit(step_id, ranks)
    return directory


def test_one_target_made_by_many_at_once_is_one_run(tmp_path: Path) -> None:
    """Eight processes make the same target: all get the same run."""
    found = together(8, lambda i: Target(tmp_path / "target").open_or_create().run_id)
    assert len(set(found)) == 1 and isinstance(found[0], str)


def test_a_committed_step_is_complete_and_its_record_is_a_function_of_the_manifests(target: Target) -> None:
    """Any agent that sees all manifests may commit; the record is the same, and one that lacks a manifest is refused."""
    directory = store(target, ranks=2)
    first = (directory / "COMMIT").read_bytes()
    target.publish_commit(STEP, 2)
    assert (directory / "COMMIT").read_bytes() == first
    assert target.stored()[STEP].is_complete and target.stored()[STEP].committed
    with pytest.raises(FormatError, match="no manifest of rank 2"):
        target.publish_commit(STEP, 3)


def test_a_step_is_deleted_after_its_readers(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader holds the payload back; a reader that comes after the tombstone is turned away; one that said nothing for
    the grace is not waited for."""
    store(target)
    with target.reading(STEP, "node"):
        target.bury(STEP, "test")
        assert target.stored()[STEP].readers and target.stored()[STEP].buried
        with pytest.raises(FormatError, match="is being deleted"), target.reading(STEP, "other"):
            pass
        monkeypatch.setattr("hinan.tiers.target.READER_GRACE_S", -1.0)
        assert not target.stored()[STEP].readers
    monkeypatch.undo()
    assert not target.stored()[STEP].readers
    target.remove(STEP)
    assert target.step_ids() == []


def test_a_keep_7_deleting_twice_is_deleting_once(target: Target) -> None:
    """A-KEEP-7: two nodes bury and remove one step, and a third party has removed it before: nobody fails."""
    store(target)
    together(4, lambda i: (target.bury(STEP, f"by {i}"), target.remove(STEP)))
    assert target.step_ids() == []
    target.bury(STEP, "again")
    target.remove(STEP)


def test_a_keep_4_foreign_names_stay_and_are_no_litter(target: Target) -> None:
    """A-KEEP-4: removing a step leaves what is not ours in its directory, which then counts as nothing at all."""
    directory = store(target)
    (directory / "notes.txt").write_text("mine")
    target.bury(STEP, "test")
    target.remove(STEP)
    assert names(directory) == ["notes.txt"]
    assert STEP not in target.stored()


def test_an_interrupted_removal_never_leaves_a_committed_step_without_images(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A removal killed after any of its unlinks leaves a step that is buried or not committed."""
    for stop_after in range(6):
        step_id = StepId(1, 100 + stop_after)
        store(target, step_id)
        target.bury(step_id, "test")
        left, unlink = [stop_after], Path.unlink

        def counted(self: Path, missing_ok: bool = False, left: list[int] = left, unlink: Any = unlink) -> None:
            if left[0] == 0:
                raise KeyboardInterrupt
            left[0] -= 1
            unlink(self, missing_ok=missing_ok)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", counted)
            try:
                target.remove(step_id)
            except KeyboardInterrupt:
                found = target.stored()[step_id]
                assert found.is_complete or not found.committed
                assert found.buried or not found.ranks
                patch.undo()
                target.remove(step_id)
        assert step_id not in target.step_ids()


def test_a_keep_2_steps_are_ordered_as_numbers(target: Target) -> None:
    """A-KEEP-2: 1000 is newer than 99 and 9, whatever the order and the times of their directories."""
    for step in (1000, 8, 100, 99, 11, 9, 10):
        os.utime(store(target, StepId(1, step)), (0, 10_000 - step))
    assert [s.step for s in target.step_ids()] == [8, 9, 10, 11, 99, 100, 1000]


def test_the_memory_of_manifests_does_not_grow(target: Target) -> None:
    """A-MEM-2: what is remembered of manifests goes when their steps go."""
    for step in range(1, 40):
        store(target, StepId(1, step), commit=False)
        target.stored()
        target.bury(StepId(1, step), "test")
        target.remove(StepId(1, step))
    assert target.stored() == {} and target._manifests == {} and target.problems == {}


def test_a_target_that_is_replaced_while_it_is_held_stays_that_of_its_run(target: Target) -> None:
    """Deleted, and made again by another run: nothing lands in the new one. Renamed: what was begun is finished there."""
    with target.held(target.run().run_id) as held:
        shutil.rmtree(target.root)
        target.open_or_create()
        with pytest.raises(FileNotFoundError):
            store(held)
        assert target.step_ids() == []
    away = Target(target.root.with_name("away"))
    with target.held(target.run().run_id) as held:
        target.root.rename(away.root)
        target.open_or_create()
        store(held, ranks=2)
        assert held.stored()[STEP].committed
    assert target.step_ids() == []
    assert away.stored()[STEP].committed


def test_another_runs_target_is_not_held(target: Target) -> None:
    with pytest.raises(TargetError, match="another run"), target.held("0123456789abcdef"):
        raise AssertionError("held")


def test_what_does_not_parse_is_named_by_its_path_also_where_it_is_held(target: Target) -> None:
    directory = store(target)
    (directory / "COMMIT").write_bytes(b"{")
    with target.held(target.run().run_id) as held:
        assert not held.stored()[STEP].committed
        assert str(directory / "COMMIT") in (held.problem(STEP, "COMMIT") or "")


def resumed(target: Target, number: int, parent: StepId | None) -> Path:
    """An attempt that was claimed and went on from a step; its resume record."""
    target.publish_attempt(r.ClaimRecord(number, "run", "node", 1, 1, 1, "then"))
    target.publish_attempt(r.ResumeRecord(number, *((None, 0) if parent is None else parent), "then"))
    return target.root / "attempts" / f"{number:06d}.resume"


@pytest.mark.parametrize("torn", [b"", b'{"hinan":"res', None], ids=["empty", "half", "flipped"])
def test_a_damaged_first_resume_is_a_fresh_start_and_is_reported(target: Target, torn: bytes | None) -> None:
    """It can have said nothing else; it is among the problems all the same, and a later one is not guessed."""
    paths = resumed(target, 1, None), resumed(target, 2, StepId(1, 6))
    whole = target.history()
    for path in paths:
        data = path.read_bytes()
        path.write_bytes(data[:-9] + b"~" + data[-8:] if torn is None else torn)
    found = target.history()
    assert found.resumes == {1: whole.resumes[1]} and found.claims == whole.claims
    assert found.unreadable == {2: "put attempts/000002.resume back from a copy"}
    assert set(target.unreadable_attempts()) == {"attempts/000001.resume", "attempts/000002.resume"}


@pytest.mark.parametrize("instead", ["nothing", "a directory", "a newer record"])
def test_a_first_resume_that_is_not_damaged_is_not_guessed(target: Target, instead: str) -> None:
    """Absent, or a directory of somebody else: it may never have been written. A newer hinan's may say something else."""
    path = resumed(target, 1, None)
    data = path.read_bytes()
    path.unlink()
    if instead == "a directory":
        path.mkdir()
    elif instead == "a newer record":
        path.write_bytes(data.replace(b'"version":1', b'"version":2'))
    found = target.history()
    assert found.resumes == {}
    newer = {1: "read attempts/000001.resume with a newer hinan"}
    assert found.unreadable == (newer if instead == "a newer record" else {})
