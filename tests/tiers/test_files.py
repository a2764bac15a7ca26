"""Facts appear once and whole, images survive or leave nothing, deletions wait for readers, arenas keep their order."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hinan.agent.abandoned import lock, reclaim
from hinan.core.errors import FormatError
from hinan.core.ids import StepId, image_file, manifest_file
from hinan.core.slot import Effect
from hinan.formats import records as r
from hinan.formats.image import ALIGNMENT_BYTES
from hinan.host.process import this_process
from hinan.tiers import durable
from hinan.tiers.arena import AGENT, LOCK, PROVEN, SEALED, Arena
from hinan.tiers.durable import ImageWriter
from hinan.tiers.mapping import map_file
from hinan.tiers.publish import PART_SUFFIX, AlreadyPublished, part_name, publish, read_fact
from hinan.tiers.reading import read_file
from hinan.tiers.target import Target
from tests.harness.disks import Disks, fill

STEP = StepId(1, 10)


def names(directory: Path) -> list[str]:
    return sorted(p.name for p in directory.iterdir())


# -- publish -------------------------------------------------------------------------------------------------------------


def together(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Run threads that start at the same moment; what each returned or raised."""
    barrier, found = threading.Barrier(count), [None] * count

    def run(i: int) -> None:
        barrier.wait()
        try:
            found[i] = work(i)
        except Exception as error:
            found[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_a_agree_3_of_racing_publishers_one_wins_and_all_see_it(tmp_path: Path) -> None:
    """A-AGREE-3: eight writers publish different facts under one name, fifty times: one wins, the others are told what
    stands, everybody reads the same, and no temporary file is left."""
    for round_ in range(50):
        path = tmp_path / f"fact-{round_}"
        found = together(8, lambda i, path=path: publish(path, f"mine {i}".encode(), power_safe=False))
        standing = read_fact(path)
        winners = [i for i, outcome in enumerate(found) if outcome is None]
        assert len(winners) == 1 and standing == f"mine {winners[0]}".encode()
        assert all(isinstance(o, AlreadyPublished) and o.standing == standing for o in found if o is not None)
    assert [n for n in names(tmp_path) if n.endswith(PART_SUFFIX)] == []


def test_racing_publishers_of_equal_facts_all_succeed(tmp_path: Path) -> None:
    """Equal bytes under the name mean that the fact stands, whoever put them there."""
    assert together(8, lambda i: publish(tmp_path / "fact", b"equal", power_safe=True)) == [None] * 8


@pytest.mark.parametrize("call", ["open", "write", "fsync", "link"])
def test_a_publish_that_fails_leaves_nothing(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever call fails, the error comes through, no name stands and no temporary file is left."""

    def fail(*arguments: Any, **more: Any) -> None:
        raise OSError(errno.EIO, "planted")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(OSError, match="planted"):
            publish(tmp_path / "fact", b"data", power_safe=True)
    assert names(tmp_path) == []


def test_a_publish_whose_link_succeeded_with_an_error_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that did the work and reports an error all the same (a retried NFS call): reading back decides."""
    link = os.link

    def both(*arguments: Any, **more: Any) -> None:
        link(*arguments, **more)
        raise OSError(errno.EEXIST, "planted")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", both)
        publish(tmp_path / "fact", b"data", power_safe=True)
    assert names(tmp_path) == ["fact"]


def test_a_format_6_a_stale_handle_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A-FORMAT-6: the first read of a fact meets ESTALE: it is read again; one that stays stale is an error."""
    (tmp_path / "fact").write_bytes(b"data")
    read, errors = Path.read_bytes, [OSError(errno.ESTALE, "stale")]

    def stale(self: Path) -> bytes:
        if errors:
            raise errors.pop()
        return read(self)

    monkeypatch.setattr(Path, "read_bytes", stale)
    assert read_fact(tmp_path / "fact") == b"data"
    errors += [OSError(errno.ESTALE, "stale")] * 3
    with pytest.raises(OSError, match="stale"):
        read_fact(tmp_path / "fact")


# -- durable writer ------------------------------------------------------------------------------------------------------


def source(tmp_path: Path, size_bytes: int) -> memoryview:
    """A mapped file of random bytes, as a slot is."""
    path = tmp_path / "slot"
    path.write_bytes(os.urandom(size_bytes))
    return map_file(path)


def write(directory: Path, image: memoryview) -> ImageWriter:
    writer = ImageWriter(directory, "image", len(image))
    try:
        writer.write_aside(image)
        writer.sync()
        writer.name()
        writer.sync_directory()
    finally:
        writer.discard()
    return writer


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "place").mkdir()
    return tmp_path / "place"


@pytest.mark.parametrize("size_bytes", [0, 1, 4095, 4096, 3 * 4096, 40960 + 7])
@pytest.mark.parametrize("most", [1, 511, 4096, 5000])
def test_short_writes_lose_nothing(
    size_bytes: int, most: int, tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that takes only some bytes at a time gets them all, direct or not; nothing else is left there."""
    image, pwrite = source(tmp_path, size_bytes), os.pwrite
    monkeypatch.setattr(durable, "PIECE_BYTES", 16384)
    if size_bytes < 10_000 or most > 1:
        monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, bytes(data[:most]), at))
    write(place, image)
    assert (place / "image").read_bytes() == bytes(image)
    assert names(place) == ["image"]


def refusing(number: int, only_direct: bool = True) -> Callable[..., int]:
    """An `os.open` that refuses O_DIRECT with this errno, after it made the file as some file systems do."""
    real = os.open

    def opened(path: Any, flags: int, *arguments: Any) -> int:
        if flags & os.O_DIRECT:
            os.close(real(path, flags & ~os.O_DIRECT, *arguments))
            raise OSError(number, "no direct writes here")
        return real(path, flags, *arguments)

    return opened


def test_a_file_system_without_direct_writes(tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """O_DIRECT is refused at open, with the file made or not: the image is written through the page cache."""
    image = source(tmp_path, 3 * ALIGNMENT_BYTES)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refusing(errno.EINVAL))
        writer = write(place, image)
    assert not writer.direct
    assert (place / "image").read_bytes() == bytes(image)
    assert names(place) == ["image"]


def test_a_file_system_that_refuses_direct_writes_late(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O_DIRECT is taken at open and refused at the first write (some FUSE): the rest goes through the page cache."""
    image, pwrite, refused = source(tmp_path, 3 * ALIGNMENT_BYTES), os.pwrite, [True]

    def once(fd: int, data: memoryview, at: int) -> int:
        if refused:
            refused.clear()
            raise OSError(errno.EINVAL, "planted")
        return pwrite(fd, data, at)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", once)
        assert not write(place, image).direct
    assert (place / "image").read_bytes() == bytes(image)


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL])
def test_a_file_system_that_cannot_reserve_room(
    number: int, tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """posix_fallocate is not supported (NFS 3, FUSE, and with O_DIRECT as EINVAL): the image is written all the same."""

    def unsupported(fd: int, offset: int, length: int) -> None:
        raise OSError(number, "planted")

    image = source(tmp_path, 3 * ALIGNMENT_BYTES)
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", unsupported)
        write(place, image)
    assert (place / "image").read_bytes() == bytes(image)


def test_a_commit_3_a_full_disk_leaves_nothing(tmp_path: Path, disks: Disks) -> None:
    """A-COMMIT-3: an image that does not fit is refused with ENOSPC before its first byte, leaves no file, and an image of
    the same name that stood there stands; with room again it is written."""
    disk = disks.tmpfs("disk", 2 << 20)
    old, big = source(tmp_path, 8192), source(tmp_path, 1 << 20)
    write(disk, old)
    filler = fill(disk, leave_bytes=256 << 10)
    began: list[int] = []
    writer = ImageWriter(disk, "image", len(big))
    with pytest.raises(OSError) as caught:
        writer.write_aside(big, lambda offset, piece: began.append(offset))
    writer.discard()
    assert caught.value.errno == errno.ENOSPC and began == []
    assert names(disk) == ["filler", "image"]
    assert (disk / "image").read_bytes() == bytes(old)
    filler.unlink()
    write(disk, big)
    assert (disk / "image").read_bytes() == bytes(big)


@pytest.mark.parametrize("call", ["pwrite", "fsync", "fdatasync", "rename"])
def test_a_write_that_fails_leaves_nothing(call: str, tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever call fails, nothing stands under the final name and nothing is left beside it."""

    def fail(*arguments: Any) -> None:
        raise OSError(errno.EIO, "planted")

    image = source(tmp_path, 5 * ALIGNMENT_BYTES + 1)
    monkeypatch.setattr(durable, "PIECE_BYTES", 4096)
    monkeypatch.setattr(durable, "DIRTY_BYTES", 8192)
    with monkeypatch.context() as patch:
        patch.setattr(Path if call == "rename" else os, call, fail)
        with pytest.raises(OSError, match="planted"):
            write(place, image)
    assert names(place) == []


def test_a_file_that_became_shorter_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image that loses bytes while it is read is an error with the place, not a short buffer."""
    path = tmp_path / "image"
    path.write_bytes(b"x" * 100)
    preadv = os.preadv

    def shorter(fd: int, buffers: Any, at: int) -> int:
        os.truncate(path, 40)
        return preadv(fd, buffers, at)

    monkeypatch.setattr(os, "preadv", shorter)
    with pytest.raises(FormatError, match="ended at byte 40 of 100"):
        read_file(path)


# -- target --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def target(tmp_path: Path) -> Target:
    found = Target(tmp_path / "target")
    found.open_or_create()
    return found


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


# -- arena ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    found = Arena(tmp_path / "hinan-0" / "run" / "node")
    found.create()
    return found


def owner() -> r.OwnerRecord:
    me = this_process()
    return r.OwnerRecord(me.pid, me.start_ticks, 1, 0)


def seal(arena: Arena, slot: str, step: int = 10) -> None:
    arena.publish(slot + SEALED, r.SealedRecord(1, step, 0, 1, "n", 4096, "ab", msgspec.Raw(b"{}"), 0, "now", 0.1))
    arena.publish(slot + PROVEN, r.ProvenRecord(1, step, 0, "ab", 8 << 20, [], late=False))


def test_a_slot_goes_facts_first(arena: Arena) -> None:
    """Facts are withdrawn before the bytes they describe, and a slot that was removed leaves nothing."""
    slot, _ = arena.new_slot(owner(), 4096)
    seal(arena, slot)
    (files,) = arena.scan()
    assert files.sealed is not None and files.proven is not None and files.image_bytes == 4096
    arena.do(slot, (Effect.WITHDRAW_PROVEN, Effect.WITHDRAW_SEALED))
    (files,) = arena.scan()
    assert files.sealed is None and files.proven is None
    arena.remove(slot)
    assert names(arena.root) == []


def test_a_mem_1_a_slot_without_room_leaves_nothing(disks: Disks) -> None:
    """A-MEM-1: the tmpfs has no room for a slot: ENOSPC at once, nothing left behind; with room it is made, all of it."""
    ram = disks.tmpfs("ram", 1 << 20)
    arena = Arena(ram / "hinan-0" / "run" / "node")
    arena.create()
    filler = fill(ram, leave_bytes=64 << 10)
    with pytest.raises(OSError) as caught:
        arena.new_slot(owner(), 256 << 10)
    assert caught.value.errno == errno.ENOSPC
    assert names(arena.root) == []
    filler.unlink()
    slot, _ = arena.new_slot(owner(), 256 << 10)
    assert os.stat(arena.path(slot)).st_blocks * 512 >= 256 << 10


def test_torn_facts_are_absent_and_reported(arena: Arena) -> None:
    """A seal that does not parse counts as absent; a slot whose owner is unreadable is nobody's; both are reported."""
    slot, _ = arena.new_slot(owner(), 4096)
    (arena.root / (slot + SEALED)).write_bytes(b'{"hinan":"sea')
    (files,) = arena.scan()
    assert files.sealed is None and slot + SEALED in arena.problems
    (arena.root / (slot + ".owner")).write_bytes(b"")
    assert arena.scan() == []
    assert "owner" in " ".join(arena.problems.values())


def test_a_sweep_removes_what_a_kill_left_unfinished(arena: Arena) -> None:
    """Temporary files and facts without an image go; whole slots stay."""
    slot, _ = arena.new_slot(owner(), 4096)
    seal(arena, slot)
    (arena.root / f".x{PART_SUFFIX}").write_bytes(b"")
    (arena.root / part_name("00000-000007.img")).write_bytes(b"")  # by a dead agent whose number is ours by now
    (arena.root / f"00000-000009{SEALED}").write_bytes(b"")
    before = [p for p in names(arena.root) if p.startswith(slot)]
    arena.sweep()
    assert names(arena.root) == before


def test_a_fresh_arena_of_another_run_is_left_alone(arena: Arena, tmp_path: Path) -> None:
    """Two runs start at once: the agent of the one does not take the empty directory of the other for abandoned; one that
    has stood empty for long goes."""
    mine = Arena(arena.root.parents[1] / "mine" / "node")
    mine.create()
    assert "only starting" in reclaim(mine.root)[0]
    assert arena.exists and not (arena.root / LOCK).exists()
    os.utime(arena.root, (0, 0))
    reclaim(mine.root)
    assert not arena.exists and mine.exists


def test_a_lock_that_was_unlinked_under_its_holder_is_taken_anew(arena: Arena) -> None:
    """Whoever wipes an arena holds its lock and unlinks it: the next agent locks the file that stands, not the unlinked
    one, so that two never hold one arena."""
    with lock(arena.root) as first:
        assert first
        with lock(arena.root) as second:
            assert not second
        (arena.root / LOCK).unlink()
        with lock(arena.root) as third:
            assert third
            with lock(arena.root) as fourth:
                assert not fourth


@pytest.mark.parametrize("how", ["deleted", "not mounted", "another run's"])
def test_a_mem_4_an_arena_is_removed_only_when_nobody_needs_it(
    how: str, arena: Arena, target: Target, tmp_path: Path
) -> None:
    """A-MEM-4: an arena whose agent is gone goes if its target was deleted or is another run's, not if the file system of
    its target is not mounted."""
    run_id = target.run().run_id
    device = os.stat(target.root).st_dev + (1 if how == "not mounted" else 0)
    arena.publish(AGENT, r.AgentRecord("node", run_id, 1, 0, str(target.root), str(arena.root), device))
    slot, _ = arena.new_slot(r.OwnerRecord(2**22 + 1, 0, 1, 0), 4096)
    seal(arena, slot)
    target.publish_attempt(r.ResumeRecord(1, None, 0, "now"))
    mine = Arena(arena.root.parents[1] / "mine" / "node")
    mine.create()
    (kept,) = reclaim(mine.root)
    assert "step 10" in kept or "not mounted" in kept
    if how == "another run's":
        (target.root / "run.json").unlink()
        target.open_or_create()
    else:
        target.root.rename(tmp_path / "elsewhere")
    kept_now = reclaim(mine.root)
    assert arena.exists == (how == "not mounted")
    assert len(kept_now) == (how == "not mounted")
