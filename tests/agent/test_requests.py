"""What trainers and visitors ask of an agent: slots, readings, waits."""

from __future__ import annotations

import asyncio
import shutil
import threading
from typing import Any

import pytest

from hinan.agent.loop import Node
from hinan.agent.server import Server, _Session
from hinan.core.agenda import Prove
from hinan.core.budget import MARGIN_BYTES
from hinan.core.ids import StepId
from hinan.core.slot import Slot
from hinan.formats import messages as m
from hinan.tiers.target import Target
from tests.harness.place import HEADER, Place, live


def test_a_reader_is_not_turned_away_by_an_agent_that_has_just_started(place: Place) -> None:
    """It has not looked yet, but the slot is there: a refusal would rule the newest step out for good."""
    slot = place.sealed(StepId(1, 5))

    async def main() -> None:
        node = place.node()
        session = _Session(node, Server(node))
        assert session._settled() is None  # the image waits to be proven
        assert await session.answer(m.Read([slot])) == m.Done()

    asyncio.run(main())


def test_a_failed_copy_gives_its_slot_back(place: Place) -> None:
    """The asker says what it still holds; every other lease it had is over."""
    place.attempt(1)

    async def scenario(node: Node, server: Server) -> None:
        session = _Session(node, server)
        await session.answer(place.hello())
        names = {(await session.answer(m.Lease(HEADER.image_bytes, []))).slot for _ in range(5)}  # type: ignore[union-attr]
        assert len(names) == 1

    live(place, scenario)


def test_the_ram_budget_counts_once(place: Place) -> None:
    """With room for two images there is no third one after two were made."""
    place.attempt(1)
    budget = MARGIN_BYTES + 2 * HEADER.image_bytes + 10

    async def scenario(node: Node, server: Server) -> None:
        session = _Session(node, server)
        await session.answer(place.hello(ram_bytes=budget))
        held: list[str] = []
        for _ in range(2):
            answer = await session.answer(m.Lease(HEADER.image_bytes, list(held)))
            assert isinstance(answer, m.Granted)
            held.append(answer.slot)
        third = asyncio.create_task(session.answer(m.Lease(HEADER.image_bytes, list(held))))
        done, _ = await asyncio.wait([third], timeout=0.3)
        assert not done
        third.cancel()

    live(place, scenario)


def test_waiting_for_a_step_that_was_replaced_fails(place: Place) -> None:
    """A later evacuation took its slot before it was drained: the caller hears so, instead of waiting for ever."""
    place.attempt(1)
    place.sealed(StepId(1, 9), owner=place.me)

    async def scenario(node: Node, server: Server) -> None:
        answer = await _Session(node, server).answer(m.Watch(1, 5, "committed"))
        assert isinstance(answer, m.Refused)
        assert "replaced" in answer.reason
        assert not node.wanted

    live(place, scenario)


def test_waiting_in_a_fenced_attempt_ends(place: Place) -> None:
    """A newer attempt runs; the old one's waiting caller is told to end."""
    place.attempt(1)
    place.attempt(2)
    place.sealed(StepId(1, 5), owner=place.me)

    async def scenario(node: Node, server: Server) -> None:
        answer = await _Session(node, server).answer(m.Watch(1, 5, "committed"))
        assert isinstance(answer, m.Refused)
        assert answer.kind == "fenced"

    live(place, scenario)


def test_a_caller_that_stops_waiting_leaves_no_wish(place: Place) -> None:
    """Its connection closed: the step is not kept for its sake."""
    place.attempt(1)
    place.sealed(StepId(1, 5), owner=place.me, world_size=2)

    async def scenario(node: Node, server: Server) -> None:
        waiting = asyncio.create_task(_Session(node, server).answer(m.Watch(1, 5, "committed")))
        while not node.wanted:
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert not node.wanted

    live(place, scenario)


def test_a_request_that_fails_does_not_end_the_agent(place: Place) -> None:
    async def scenario(node: Node, server: Server) -> None:
        def bad() -> m.Answer | None:
            if not node.slots and not calls:
                calls.append(1)
                return None
            raise RuntimeError("a bug")

        calls: list[int] = []
        with pytest.raises(RuntimeError):
            await server.until(bad)
        assert isinstance(await _Session(node, server).answer(m.Status()), m.Done)

    live(place, scenario)


def test_an_image_about_to_be_proven_is_not_given_away(place: Place) -> None:
    """Between the decision to prove it and the first byte read, a waiting request for a slot is answered."""
    place.attempt(1)
    old, new = (place.sealed(StepId(1, step), owner=place.me) for step in (5, 6))

    async def main() -> None:
        node = place.node()
        server = Server(node)
        session = _Session(node, server)
        await session.answer(place.hello())
        node.state()
        node.tasks.start(Prove(old))
        asked = asyncio.create_task(session.answer(m.Lease(HEADER.image_bytes, [])))
        await asyncio.sleep(0)  # its first look
        await node.lanes.all_done()
        server._look()
        answer = await asked
        assert isinstance(answer, m.Granted)
        assert answer.slot not in (old, new)
        node.trainers.close()
        await node.finish()

    asyncio.run(main())


def test_a_slot_that_found_no_room_is_not_tried_at_once_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request waits with two slots in use and no room for a third: it is tried once a heartbeat, not once a look, and
    the loop answers others meanwhile. The first slot of a process is refused instead, with the reason."""
    place.attempt(1)
    tries = 0

    def full(*_: object) -> None:
        nonlocal tries
        tries += 1
        raise OSError(28, "No space left on device")

    async def scenario(node: Node, server: Server) -> None:
        session = _Session(node, server)
        await session.answer(place.hello())
        monkeypatch.setattr(place.arena, "new_slot", full)
        refused = await session.answer(m.Lease(HEADER.image_bytes, []))
        assert isinstance(refused, m.Refused) and "No space left" in refused.reason
        monkeypatch.undo()
        node.keeper.try_again()
        slots = [await session.answer(m.Lease(HEADER.image_bytes, None)) for _ in range(2)]
        assert all(isinstance(slot, m.Granted) for slot in slots)
        monkeypatch.setattr(place.arena, "new_slot", full)
        asked = asyncio.create_task(session.answer(m.Lease(HEADER.image_bytes, None)))
        for _ in range(200):
            node.look()
            await asyncio.sleep(0)
            await node.lanes.all_done()
        assert tries == 2 and not asked.done()
        monkeypatch.undo()
        node.keeper.try_again()
        node.look()
        assert isinstance(await asked, m.Granted)

    live(place, scenario)


def test_slots_are_made_one_at_a_time_and_nobody_waits_meanwhile(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeroing a slot takes seconds. Others are answered, and what is left of the RAM is looked at when it is over."""
    place.attempt(1)
    inside, go_on = threading.Event(), threading.Event()
    new_slot = place.arena.new_slot

    def slow(*arguments: Any) -> tuple[str, int]:
        inside.set()
        assert go_on.wait(20)
        return new_slot(*arguments)

    async def scenario(node: Node, server: Server) -> None:
        monkeypatch.setattr(place.arena, "new_slot", slow)
        order, orders = node.keeper._order, []
        monkeypatch.setattr(node.keeper, "_order", lambda *what: orders.append(order(*what)))
        sessions = [_Session(node, server) for _ in range(2)]
        for session in sessions:
            await session.answer(place.hello())
        asked = [asyncio.create_task(s.answer(m.Lease(HEADER.image_bytes, None))) for s in sessions]
        assert await asyncio.to_thread(inside.wait, 20)
        told = await sessions[0].answer(m.Status())
        assert isinstance(told, m.Done)
        assert told.detail["reserving"] == {"rank": 0, "image_bytes": HEADER.image_bytes}
        assert len(orders) == 1 and not any(task.done() for task in asked)
        go_on.set()
        granted = await asyncio.gather(*asked)
        assert len({answer.slot for answer in granted if isinstance(answer, m.Granted)}) == 2

    live(place, scenario)


def test_ranks_out_of_phase_do_not_fill_the_slots_for_ever(place: Place) -> None:
    """C2: what another rank has gone past is given up, its slot is leased again, and who waits for it hears why."""
    place.attempt(1)
    budget = MARGIN_BYTES + 2 * HEADER.image_bytes + 10
    slots = [place.sealed(StepId(1, step), owner=place.me, world_size=2) for step in (16, 20)]
    place.sealed(StepId(1, 18), rank=1, owner=place.me, world_size=2)

    async def scenario(node: Node, server: Server) -> None:
        session = _Session(node, server)
        await session.answer(place.hello(ram_bytes=budget))
        refused = await session.answer(m.Watch(1, 16, "committed"))
        assert isinstance(refused, m.Refused)
        assert "rank 1 has gone past it" in refused.reason
        assert "rank 0 holds 16, 20; rank 1 holds 18" in refused.reason
        assert await session.answer(m.Lease(HEADER.image_bytes, [])) == m.Granted(slots[0], HEADER.image_bytes)
        place.sealed(StepId(1, 21), rank=1, owner=place.me, world_size=2)
        node.look()
        while StepId(1, 20) not in place.arena.lost():
            await asyncio.sleep(0.01)
        assert StepId(1, 18) in place.arena.lost()
        assert len([text for text in node.news if "is lost" in text]) == 1, "it is told once an attempt"

    live(place, scenario)


def test_a_step_is_given_up_only_on_a_second_look(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that began before rank 1 sealed 16 and ended after it sealed 18 has seen only 18: nothing is lost by it."""
    place.attempt(1)
    place.sealed(StepId(1, 16), owner=place.me, world_size=2)
    late = place.sealed(StepId(1, 16), rank=1, owner=place.me, world_size=2)
    place.sealed(StepId(1, 18), rank=1, owner=place.me, world_size=2)

    async def scenario(node: Node, server: Server) -> None:
        whole = node.keeper.slots
        looks = 0

        def first_too_early() -> tuple[Slot, ...]:
            nonlocal looks
            looks += 1
            seen = whole()
            return tuple(s for s in seen if s.name != late) if looks == 1 else seen

        monkeypatch.setattr(node.keeper, "slots", first_too_early)
        node.look()
        while looks < 3:
            await asyncio.sleep(0.01)
        assert place.arena.lost() == frozenset()

    live(place, scenario)


def test_a_target_that_is_another_runs_is_not_called_out_of_reach(place: Place) -> None:
    """It can be reached, and no waiting helps: close() and whoever waits for a commit are told whose it is now."""
    place.attempt(1)
    place.sealed(StepId(1, 5), owner=place.me)

    async def scenario(node: Node, server: Server) -> None:
        session = _Session(node, server)
        await session.answer(place.hello())
        shutil.rmtree(place.target.root)
        other = Target(place.target.root).open_or_create().run_id
        await node.refresh()
        told = f"the target {place.target.root} belongs to another run now ({other})"
        assert f"{told}: nothing is committed" in node.news
        for request in (m.Close(5, keep_ram=False), m.Watch(1, 5, "committed")):
            refused = await session.answer(request)
            assert isinstance(refused, m.Refused)
            assert refused.reason.startswith(told)
            assert refused.reason.endswith("stays in RAM until the trainers have ended")

    live(place, scenario)
