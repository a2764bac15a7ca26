"""What the agent reads of the target, and what it does not conclude from it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hinan.agent.ledger import take_snapshot
from hinan.core.agenda import agenda
from hinan.core.ids import StepId
from hinan.formats import records as r
from hinan.host.mounts import file_system
from hinan.tiers.target import Target
from tests.harness.place import Place


def test_an_unreadable_target_is_not_gone(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """An I/O error of the mount is no word about the run; the agent looks again later."""

    def broken(self: Path) -> bool:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "is_dir", broken)
    snapshot = take_snapshot(place.target, place.run_id, "here", file_system(place.target.root))
    assert not snapshot.gone
    assert not snapshot.reachable


def test_foreign_files_in_a_removed_step_are_left_in_peace(place: Place) -> None:
    """The directory stays for their sake, and is not buried and removed again and again."""
    place.commit(StepId(1, 5))
    note = place.target.directory(StepId(1, 5)) / "notes.txt"
    note.write_text("mine")
    place.target.bury(StepId(1, 5), "superseded")
    place.target.remove(StepId(1, 5))
    assert place.target.stored() == {}
    assert note.read_text() == "mine"


def test_memory_of_manifests_is_bounded_by_what_stands(place: Place) -> None:
    """Over thousands of commits the agent keeps nothing of steps that were deleted."""
    for step in range(1, 30):
        place.commit(StepId(1, step))
        place.target.remove(StepId(1, step))
    assert not place.target._manifests


def between_two_readings(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> list[str]:
    """Something happens between the readings of claims and of the history, whichever comes first; they are listed."""
    readings: list[str] = []

    def between(read: Callable[[Target], Any]) -> Callable[[Target], Any]:
        def reading(target: Target) -> Any:
            readings.append(read.__name__)
            if len(readings) == 2:
                happens()
            return read(target)

        return reading

    monkeypatch.setattr(Target, "claims", between(Target.claims))
    monkeypatch.setattr(Target, "history", between(Target.history))
    return readings


def test_a_claim_made_while_the_target_is_read_fences_nobody(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first attempt starts between two readings of one look: it is this agent's own, which must not stop for it."""
    claim = r.ClaimRecord(1, place.run_id, "here", *place.me, 1, "")
    readings = between_two_readings(monkeypatch, lambda: place.target.publish_attempt(claim))

    async def main() -> None:
        node = place.node()
        await node.refresh()
        assert set(readings) == {"claims", "history"}
        assert agenda(node.state()) == ()
        await node.refresh()
        assert agenda(node.state()) == ()
        await node.finish()

    asyncio.run(main())


def test_a_target_that_is_renamed_while_it_is_read_fences_nobody(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a look saw the attempt, the other half nothing: it is gone, and no other attempt was started."""
    place.attempt(1)
    between_two_readings(monkeypatch, lambda: place.target.root.rename(place.target.root.with_name("away")) and None)

    async def main() -> None:
        node = place.node()
        await node.refresh()
        assert not node.snapshot.reachable
        assert agenda(node.state()) == ()
        await node.finish()

    asyncio.run(main())
