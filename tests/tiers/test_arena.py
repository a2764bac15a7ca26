"""Arenas keep their order: slots go facts first, kills leave no litter, and an arena goes only when nobody needs it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec
import pytest

from hinan.agent.abandoned import lock, reclaim
from hinan.core.slot import Effect
from hinan.formats import records as r
from hinan.host.process import this_process
from hinan.tiers.arena import AGENT, LOCK, PROVEN, SEALED, Arena
from hinan.tiers.publish import PART_SUFFIX, part_name
from hinan.tiers.target import Target
from tests.harness.disks import Disks, fill, names


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
    arena.do(slot, (Effect.WITHDRAW_SEALED, Effect.WITHDRAW_PROVEN))
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
