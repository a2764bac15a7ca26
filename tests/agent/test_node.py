"""The life of one node: proofs, failures that are told, what is forgotten, what a new attempt calls off."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from hinan.agent.loop import NEWS, Node
from hinan.agent.server import Server, _Session
from hinan.core.ids import StepId, step_directory
from hinan.formats import messages as m
from hinan.formats import records as r
from hinan.tiers.arena import LOST, Arena
from hinan.tiers.publish import part_name
from hinan.tiers.target import Target
from tests.harness.place import DEAD, HEADER, Place, live


def test_a_new_attempt_calls_off_the_end_of_the_last(place: Place) -> None:
    """The run was closed and is started again while its agent still lives: the RAM is not spare any more."""
    place.attempt(1)

    async def scenario(node: Node, server: Server) -> None:
        session = _Session(node, server)
        await session.answer(place.hello())
        assert isinstance(await session.answer(m.Close(0, keep_ram=False)), m.Done)
        assert node.ram_is_spare
        place.attempt(2)
        await _Session(node, server).answer(place.hello(2))
        assert not node.ram_is_spare
        assert not node.closing

    live(place, scenario)


def test_a_damaged_image_does_not_keep_the_agent_for_ever(place: Place) -> None:
    """An image that cannot be proven is no work left to do."""
    place.attempt(1, owner=DEAD)
    slot, _ = place.arena.new_slot(r.OwnerRecord(*DEAD, 1, 0), HEADER.image_bytes)
    place.fill(slot, StepId(1, 5), header_sum="0" * 32)

    async def scenario(node: Node, server: Server) -> None:
        while not node.is_idle:
            await asyncio.sleep(0.01)
        assert slot in node.keeper.unprovable

    live(place, scenario)


def test_a_bug_in_a_proof_is_told_once_and_holds_up_nobody(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A-HANG-1: proving falls over a bug: the copy is ruled out, which ends the waits for it, and it is not tried again."""
    place.attempt(1, owner=DEAD)
    slot = place.sealed(StepId(1, 5))
    calls: list[str] = []

    def falls(_: Arena, slot: str, *rest: Any, **more: Any) -> None:
        calls.append(slot)
        raise LookupError("a bug")

    monkeypatch.setattr("hinan.agent.tasks.prove", falls)

    async def scenario(node: Node, server: Server) -> None:
        assert isinstance(await _Session(node, server).answer(m.Settle()), m.Done)
        while not node.is_idle:
            await asyncio.sleep(0.01)
        assert calls == [slot]
        assert [text for text in node.news if "rank 0 cannot be used: a bug" in text] == list(node.news)[:1]

    live(place, scenario)


def test_a_bug_in_tidying_is_not_met_again_at_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A-HANG-1: burying a leftover falls over a bug: it is told, and the loop does not try it again and again."""
    place.attempt(1, owner=DEAD)
    place.target.make_directory(StepId(1, 5))
    calls: list[StepId] = []

    def falls(_: Target, step_id: StepId, reason: str) -> None:
        calls.append(step_id)
        raise LookupError("a bug")

    monkeypatch.setattr(Target, "bury", falls)

    async def scenario(node: Node, server: Server) -> None:
        while not node.news:
            await asyncio.sleep(0.01)
        for _ in range(20):
            node.look()
            await asyncio.sleep(0.002)
        assert calls == [StepId(1, 5)]
        assert list(node.news) == ["could not bury step 5 (attempt 1): a bug"]

    live(place, scenario)


def test_failures_told_do_not_grow_without_end(place: Place) -> None:
    """A target that is away for days: the last failures are kept, and every listener hears those it has not heard."""

    async def main() -> None:
        node = place.node()
        session = _Session(node, Server(node))
        node.tell("one")
        assert session.news() == ["one"]
        for i in range(3 * NEWS):
            node.tell(str(i))
        assert session.news() == [str(i) for i in range(2 * NEWS, 3 * NEWS)]
        assert session.news() == []

    asyncio.run(main())


def test_lost_steps_are_forgotten_once_passed(place: Place) -> None:
    """Their facts do not pile up in RAM over a long run."""
    place.attempt(1)
    for step in (3, 4, 9):
        place.arena.publish(step_directory(StepId(1, step)) + LOST, r.LostRecord(1, step, 0, "no slot"))
    place.sealed(StepId(1, 5), owner=place.me)

    async def scenario(node: Node, server: Server) -> None:
        while len(place.arena.lost()) > 1:
            await asyncio.sleep(0.01)
        assert place.arena.lost() == {StepId(1, 9)}

    live(place, scenario)


def test_a_new_agent_leaves_a_seal_in_the_making_alone(place: Place) -> None:
    """What a living trainer is about to publish is not swept away; what a dead one left is."""
    mine = place.arena.root / part_name("00000-000001.sealed")
    theirs = place.arena.root / mine.name.replace(f".{os.getpid()}-", ".999999999-")
    mine.touch()
    theirs.touch()
    place.arena.sweep()
    assert mine.exists()
    assert not theirs.exists()
