"""Carries out the tasks of the agenda, each in its lane; what failed is told and left for a later look.

Owns:      the order of the facts around each task: what is read before, what is believed after.
Promises:  starting a task never blocks; a lane does one at a time, and a task that is due while its lane is busy is
           started at a later look.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from hinan.agent.drainer import Abandoned, Drainer, Round
from hinan.agent.freshness import Freshness
from hinan.agent.ledger import served_attempt
from hinan.agent.placer import Placer
from hinan.agent.prover import prove
from hinan.core.agenda import Bury, Commit, Drain, Forget, Lose, Prove, Release, Remove, Stop, Task, agenda
from hinan.core.errors import HinanError
from hinan.core.ids import StepId, step_directory
from hinan.formats.records import LostRecord, OwnerRecord
from hinan.tiers.arena import LOST, SlotFiles
from hinan.tiers.publish import AlreadyPublished

if TYPE_CHECKING:
    from hinan.agent.loop import Node

log = logging.getLogger("hinan.agent")

MOST_TRIES = 3
"""So often, a heartbeat apart, the digests of an image are tried before those who wait for its commit are told."""

PAUSE_S = 2.0
"""After a failure to tidy the target, before the next look would start the same again."""


class Tasks:
    """The hands of one node."""

    def __init__(self, node: Node) -> None:
        self._node, self._lanes = node, node.lanes
        self._freshness = Freshness()
        self._unproven: dict[str, tuple[str, int]] = {}
        """Slots whose digests could not be read or published: what was told of it, and how often it was tried."""
        self._told_lost = 0
        """Newest attempt whose users were told that its ranks do not evacuate alike. Once an attempt, whatever it loses."""
        self.placer = Placer()
        self.drainer = Drainer(
            node.arena, node.target, node.run_id, lambda: served_attempt(node.target, node.node), self._lanes.ending.wait
        )

    def start(self, task: Task) -> None:
        """Begin it, unless its lane is busy."""
        node, busy = self._node, self._lanes.busy
        match task:
            case Stop(reason):
                node.stop_reason = reason
            case Release(slot):
                if slot in node.keeper.files:
                    log.info("slot.released slot=%s", slot)
                    phase = next(s.phase for s in node.slots if s.name == slot)
                    node.keeper.release(slot, phase)
                    node.look()
            case Lose():
                self._lose(task)
            case Forget(step_id):
                node.arena.forget_lost(step_id)
            case Prove(slot):
                if "prove" not in busy:
                    # Ordering: read from now on, not from when the task gets its turn: a waiting request for a slot is
                    # answered in between, and the image would be digested while its next one is written.
                    node.keeper.read([slot])
                    self._lanes.begin("prove", self._prove(node.keeper.files[slot]))
            case Drain(step_id, slots):
                if "drain" not in busy:
                    node.round = Round(step_id, {node.keeper.files[name].rank: node.keeper.files[name] for name in slots})
                    self._lanes.begin("drain", self._drain(node.round))
            case Commit() | Bury() | Remove():
                if "target" not in busy:
                    self._lanes.begin("target", self._tidy(task))

    def _lose(self, task: Lose) -> None:
        """Give up a step for all ranks that one has gone past, if a second look says so too (`Lose`)."""
        node, step_id = self._node, task.step_id
        if task not in agenda(node.state()):
            node.look()
            return
        record = LostRecord(step_id.attempt, step_id.step, task.passed.rank, task.reason)
        try:
            with suppress(AlreadyPublished):
                node.arena.publish(step_directory(step_id) + LOST, record)
        except OSError as error:  # no room, say: at a later look
            log.warning("lost.unpublished step=%d error=%s", step_id.step, error)
            return
        log.warning("lost step=%d attempt=%d why=%s", step_id.step, step_id.attempt, task.reason)
        if self._told_lost < step_id.attempt:
            self._told_lost = step_id.attempt
            node.tell(f"{step_id} is lost, and so is every other that not all ranks evacuate: {task.reason}")
        node.look()

    def order_slot(self, owner: OwnerRecord, image_bytes: int) -> None:
        """Have a slot made; the keeper is told when it is there."""
        self._lanes.begin("reserve", self._reserve(owner, image_bytes))

    def try_again(self) -> None:
        """Let slots be proven whose proof failed for want of room: there may be some by now."""
        keeper = self._node.keeper
        self._unproven = {slot: told for slot, told in self._unproven.items() if slot in keeper.files}
        for slot in self._unproven:
            keeper.unprovable.pop(slot, None)

    def why_not_proven(self, step_id: StepId) -> str | None:
        """Why an image of a step cannot be proven, and so the step not be committed; None while there is hope."""
        keeper = self._node.keeper
        for slot in keeper.files.values():
            if slot.sealed is None or slot.sealed.step_id != step_id:
                continue
            why, tries = self._unproven.get(slot.name, (keeper.unprovable.get(slot.name), MOST_TRIES))
            if why is not None and tries >= MOST_TRIES:
                return why
        return None

    # -- in the lanes --------------------------------------------------------------------------------------------

    async def _reserve(self, owner: OwnerRecord, image_bytes: int) -> None:
        node, began, failure = self._node, time.monotonic(), None
        trainer = node.trainers.owner(owner)
        around = partial(self.placer.around, owner.rank, None if trainer is None else trainer.device)
        try:
            slot, huge_bytes = await self._lanes.call(
                "reserve", node.arena.new_slot, owner, image_bytes, self._lanes.ending.is_set, around
            )
            took_s = time.monotonic() - began
            log.info("slot.reserved slot=%s bytes=%d huge_bytes=%d s=%.3f", slot, image_bytes, huge_bytes, took_s)
        except OSError as error:
            failure = error
        finally:
            node.keeper.made(owner, image_bytes, failure)

    async def _prove(self, files: SlotFiles) -> None:
        node, slot, sealed = self._node, files.name, files.sealed
        began = time.monotonic()
        try:
            assert sealed is not None
            proven = await self._lanes.call("prove", prove, node.arena, slot, sealed, late=node.keeper.is_late(files))
            if (frozen := self._freshness.look(proven)) is not None:
                node.tell(frozen)
            log.info("proven step=%d rank=%d s=%.3f", sealed.step, files.rank, time.monotonic() - began)
            self._unproven.pop(slot, None)
        except Exception as error:
            # A bug, too, rules the copy out: a restart waits until each is proven or is known to be unprovable.
            if not isinstance(error, OSError | HinanError):
                log.exception("bug in a proof")
            text = f"the RAM copy of step {sealed.step if sealed else '?'}, rank {files.rank} cannot be used: {error}"
            node.keeper.unprovable[slot] = str(error)
            told, tries = self._unproven.get(slot, ("", 0))
            if not isinstance(error, OSError) or told != text:
                node.tell(text)
            if isinstance(error, OSError):
                self._unproven[slot] = text, tries + 1
        finally:
            node.keeper.unread([slot])

    async def _drain(self, what: Round) -> None:
        node, step_id = self._node, what.step_id
        log.info("drain.opened step=%d attempt=%d bytes=%d", step_id.step, step_id.attempt, what.image_bytes)
        try:
            node.drain_s = await self._lanes.call("drain", self.drainer.drain, what)
            node.failed_in_a_row = 0
            log.info(
                "committed step=%d attempt=%d bytes=%d s=%.3f direct=%s",
                step_id.step, step_id.attempt, what.image_bytes, node.drain_s, self.drainer.direct,
            )  # fmt: skip
        except Abandoned as error:
            held = {s.holds for s in node.slots}
            node.failed = {s: why for s, why in node.failed.items() if s in held} | {step_id: str(error)}
            node.failed_in_a_row += 1
            node.tell(str(error))
        finally:
            try:
                await node.refresh()
            finally:
                node.round = None

    async def _tidy(self, task: Commit | Bury | Remove) -> None:
        try:
            await self._lanes.call("target", self._tidy_unless_fenced, task)
            why = f" why={task.reason!r}" if isinstance(task, Bury) else ""
            log.info("%s step=%d%s", type(task).__name__.lower(), task.step_id.step, why)
        except Exception as error:
            if not isinstance(error, OSError | HinanError):
                log.exception("bug in tidying")
            self._node.tell(f"could not {type(task).__name__.lower()} {task.step_id}: {error}")
            await asyncio.sleep(PAUSE_S)
        finally:
            await self._node.refresh()

    def _tidy_unless_fenced(self, task: Commit | Bury | Remove) -> None:
        target, snapshot = self._node.target, self._node.snapshot
        # Claims are read again before anything is published or deleted (rule A5).
        if target.history().newest_claim != snapshot.history.newest_claim:
            return
        with target.held(self._node.run_id) as held:
            match task:
                case Commit(step_id):
                    held.publish_commit(step_id, snapshot.stored[step_id].world_size)
                case Bury(step_id, reason):
                    held.bury(step_id, reason)
                case Remove(step_id):
                    held.remove(step_id)
