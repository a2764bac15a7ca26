"""Edges of the agent's life: late callers, failed copies, a run's end beside the next one's start, what must not grow."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hinan.agent import abandoned
from hinan.agent.__main__ import _came_too_late, _part, _watch_idle
from hinan.agent.ledger import take_snapshot
from hinan.agent.loop import NEWS, Node
from hinan.agent.server import Server, _Session
from hinan.core.agenda import Prove
from hinan.core.budget import MARGIN_BYTES
from hinan.core.ids import StepId, image_file, manifest_file, step_directory
from hinan.formats import messages as m
from hinan.formats import records as r
from hinan.formats.image import Entry, lay_out
from hinan.host.process import this_process
from hinan.tiers.arena import AGENT, LOCK, LOST, SEALED, Arena
from hinan.tiers.publish import part_name
from hinan.tiers.target import Target, file_system

RAW, HEADER = lay_out([Entry("x", "F32", (1024,))], {})
DEAD = (1, 0)


class Place:
    """A target and an arena of one run, with images in them."""

    def __init__(self, root: Path) -> None:
        self.target = Target(root / "target")
        self.run_id = self.target.open_or_create().run_id
        self.arena = Arena(root / "tmpfs" / "hinan-0" / self.run_id / "here")
        self.arena.create()
        me = this_process()
        self.me = (me.pid, me.start_ticks)
        self.arena.publish(AGENT, r.AgentRecord("here", self.run_id, *DEAD, str(self.target.root), str(self.arena.root)))

    def node(self) -> Node:
        return Node(self.arena, self.target, self.run_id, "here")

    def attempt(self, n: int, parent: StepId | None = None, owner: tuple[int, int] | None = None) -> None:
        self.target.publish_attempt(r.ClaimRecord(n, self.run_id, "here", *(owner or self.me), 1, ""))
        self.target.publish_attempt(r.ResumeRecord(n, parent.attempt if parent else None, parent.step if parent else 0, ""))

    def sealed(self, step_id: StepId, rank: int = 0, owner: tuple[int, int] = DEAD, world_size: int = 1) -> str:
        slot, _ = self.arena.new_slot(r.OwnerRecord(*owner, step_id.attempt, rank), HEADER.image_bytes)
        self.fill(slot, step_id, rank, world_size)
        return slot

    def fill(self, slot: str, step_id: StepId, rank: int = 0, world_size: int = 1, header_sum: str = "") -> None:
        with self.arena.path(slot).open("r+b") as image:
            image.write(RAW)
        self.arena.publish(slot + SEALED, self.seal(step_id, rank, world_size, header_sum))

    def seal(self, step_id: StepId, rank: int = 0, world_size: int = 1, header_sum: str = "") -> r.SealedRecord:
        sum_ = header_sum or r.fact_sum(RAW)
        small = msgspec.Raw(b"{}")
        return r.SealedRecord(*step_id, rank, world_size, "here", HEADER.image_bytes, sum_, small, 0, "", 0.0)

    def commit(self, step_id: StepId) -> None:
        directory = self.target.make_directory(step_id)
        (directory / image_file(0)).write_bytes(RAW)
        proven = r.ProvenRecord(*step_id, 0, "", 1, [], late=False)
        (directory / manifest_file(0)).write_bytes(r.encode(r.ManifestRecord(self.seal(step_id), proven)))
        assert self.target.manifest(step_id, 0) is not None
        self.target.publish_commit(step_id, 1)

    def hello(self, attempt: int = 1, **more: object) -> m.Hello:
        return m.Hello(self.run_id, attempt, 0, 1, 1, *self.me, **more)  # type: ignore[arg-type]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def live(place: Place, scenario: Callable[[Node, Server], Awaitable[None]]) -> None:
    """Play a scenario against a living node."""

    async def main() -> None:
        node = place.node()
        server = Server(node)
        life = asyncio.create_task(node.run())
        try:
            async with asyncio.timeout(20):
                await scenario(node, server)
        finally:
            node.stop_reason = "the test is over"
            node.look()
            await life
            await node.finish()

    asyncio.run(main())


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


def test_an_unreadable_target_is_not_gone(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """An I/O error of the mount is no word about the run; the agent looks again later."""

    def broken(self: Path) -> bool:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "is_dir", broken)
    snapshot = take_snapshot(place.target, place.run_id, "here", file_system(place.target.root))
    assert not snapshot.gone
    assert not snapshot.reachable


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


def test_a_new_agent_leaves_a_seal_in_the_making_alone(place: Place) -> None:
    """What a living trainer is about to publish is not swept away; what a dead one left is."""
    mine = place.arena.root / part_name("00000-000001.sealed")
    theirs = place.arena.root / mine.name.replace(f".{os.getpid()}-", ".999999999-")
    mine.touch()
    theirs.touch()
    place.arena.sweep()
    assert mine.exists()
    assert not theirs.exists()


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
