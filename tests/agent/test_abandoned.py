"""Arenas that nobody works in any more: which may go, which must stay, who may take them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from hinan.agent import abandoned
from hinan.agent.__main__ import _came_too_late, _part, _watch_idle
from hinan.agent.loop import Node
from hinan.agent.server import Server
from hinan.core.ids import StepId
from hinan.formats import records as r
from hinan.tiers.arena import AGENT, LOCK, Arena
from hinan.tiers.target import Target
from tests.harness.place import DEAD, Place, live


def test_the_ram_stays_when_the_mount_is_away(place: Place, tmp_path: Path) -> None:
    """The target's whole directory vanished, as after an unmount: what RAM holds may be the only copy."""
    place.attempt(1, owner=DEAD)
    place.sealed(StepId(1, 5))
    record = r.AgentRecord("here", place.run_id, *DEAD, str(tmp_path / "away" / "target"), str(place.arena.root))
    place.arena.root.joinpath(AGENT).unlink()
    place.arena.publish(AGENT, record)

    async def main() -> None:
        node = Node(place.arena, Target(tmp_path / "away" / "target"), place.run_id, "here")
        await node.refresh()
        assert node.snapshot.gone
        node.stop_reason = "the target is gone"
        _part(node, place.arena)
        await node.finish()

    asyncio.run(main())
    assert place.arena.exists


def test_an_orphan_on_the_target_replaces_no_ram_copy(place: Place) -> None:
    """A committed step that is not on the lineage is newer by its number only."""
    place.attempt(1, owner=DEAD)
    place.attempt(2, owner=DEAD)  # started afresh, committed step 7, and was left behind
    place.commit(StepId(2, 7))
    place.attempt(3, parent=StepId(1, 5), owner=DEAD)
    place.sealed(StepId(1, 5))
    assert "not on its target" in (abandoned.why_needed(place.arena) or "")


def test_a_lock_without_its_name_keeps_nobody_out(place: Place) -> None:
    """An agent that frees its arena removes the lock last; who waits at the old file must not count it as taken."""
    with abandoned.lock(place.arena.root) as first:
        assert first
        place.arena.root.joinpath(LOCK).unlink()
        with abandoned.lock(place.arena.root) as second, abandoned.lock(place.arena.root) as third:
            assert (second, third) == (True, False)


def test_wiping_removes_the_lock_last(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[str] = []
    unlink = Path.unlink

    def recorded(self: Path, missing_ok: bool = False) -> None:
        removed.append(self.name)
        unlink(self, missing_ok=missing_ok)

    with abandoned.lock(place.arena.root):
        place.sealed(StepId(1, 5))
        monkeypatch.setattr(Path, "unlink", recorded)
        place.arena.wipe()
    assert removed[-1] == LOCK
    assert not os.path.exists(place.arena.root)


def test_a_hanging_target_of_another_run_holds_no_lock(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether another run's arena is needed is asked before its lock is taken."""
    own = place.arena.root.parent.parent / "other" / "here"
    own.mkdir(parents=True)
    seen: list[bool] = []

    def slow(arena: Arena) -> str | None:
        with abandoned.lock(arena.root) as free:
            seen.append(free)
        return "its target hangs"

    monkeypatch.setattr(abandoned, "why_needed", slow)
    abandoned.reclaim(own)
    assert seen == [True]


def test_an_agent_that_comes_too_late_ends(place: Place) -> None:
    """A trainer started it while the run closed; it finds nothing and does not stay for the idle time."""
    place.attempt(1)
    place.target.publish_attempt(r.ClosedRecord(1, 5, ""))

    async def scenario(node: Node, server: Server) -> None:
        assert not _came_too_late(node, 0)  # started for a job to come
        watcher = asyncio.create_task(_watch_idle(node, server, 4.0, 1))
        while node.stop_reason is None:
            await asyncio.sleep(0.01)
        assert node.stop_reason == "the run is closed"
        watcher.cancel()

    live(place, scenario)
