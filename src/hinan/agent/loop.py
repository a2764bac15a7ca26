"""The agent's life: look at what is known, do what the agenda says, look again.

Owns:      the threads that block (one to reserve slots, one to prove, one to drain, one that reads and tidies the
           target) and the moments at which the world is looked at again: a message, a process's end, a finished task, the
           heartbeat.
Promises:  the loop itself never waits for a file system, a trainer or a peer.
Relies on: `core.agenda` for every decision.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from hinan.agent.drainer import Abandoned, Drainer, Round
from hinan.agent.freshness import Freshness
from hinan.agent.keeper import Keeper
from hinan.agent.ledger import Snapshot, served_attempt, take_snapshot
from hinan.agent.placer import Placer
from hinan.agent.prover import prove
from hinan.agent.trainers import Trainer, Trainers
from hinan.core.agenda import Bury, Commit, Drain, Forget, NodeState, Prove, Release, Remove, Stop, Task, agenda
from hinan.core.budget import Limit
from hinan.core.errors import HinanError
from hinan.core.ids import StepId
from hinan.core.retention import Keep
from hinan.core.rounds import Wish
from hinan.core.slot import Slot
from hinan.formats.records import OwnerRecord
from hinan.host.limits import room
from hinan.host.mounts import visibility_s
from hinan.tiers.arena import Arena, SlotFiles
from hinan.tiers.target import Target, file_system

log = logging.getLogger("hinan.agent")

HEARTBEAT_S = 2.0
UNREACHABLE_AFTER_S = 15.0
NEWS = 100
VISIBILITY_S = 60.0
"""On a shared store a name may stay unseen for this long; until then an incomplete step may be a whole one (rule F1)."""

GRACE_S = 25.0
"""An agent that is asked to end (SIGTERM among others) gives a running drain this long to finish."""


class Node:
    """Everything one agent knows and does for one run on one node."""

    def __init__(self, arena: Arena, target: Target, run_id: str, node: str) -> None:
        self.arena, self.target, self.run_id, self.node = arena, target, run_id, node
        self.keep = Keep(last=None)
        """Nothing is deleted before a trainer has said how much to keep."""
        self.trainers = Trainers(self._trainer_ended)
        self.ram_cap_bytes: int | None = None
        self.keeper = Keeper(arena, self.trainers, self._room, self._order_slot)
        self.placer = Placer()
        self._device = file_system(target.root)
        self.snapshot = Snapshot(taken_at=time.monotonic())  # not read yet, which is not lost yet
        self.slots: tuple[Slot, ...] = ()
        self.round: Round | None = None
        self.failed: dict[StepId, str] = {}
        self.failed_in_a_row = 0
        self.drain_s: float | None = None
        self._unproven: dict[str, str] = {}
        """Slots whose digests could not be read or published, with what was told of it; tried again at each heartbeat."""
        self.wanted: Counter[StepId] = Counter()
        """How many callers wait for a step to be committed."""
        self.closing = False
        self.ram_is_spare = False
        """The run closed and everything is committed: the arena may go."""
        self._freshness = Freshness()
        self._newest_met = 0
        self.news: deque[str] = deque(maxlen=NEWS)
        self.told = 0
        """Failures told so far; `news` holds the last of them."""
        self._said_lost = False
        self._sees_all_from = time.monotonic() + visibility_s(target.root, VISIBILITY_S)
        self.stop_reason: str | None = None
        self.grace_s = GRACE_S
        self.on_change: list[Callable[[], None]] = []
        """Called after each look, when anything may have changed: waiting requests look at the node here."""
        self._changed = asyncio.Event()
        self._ending = threading.Event()
        self._busy: set[str] = set()
        self._threads = {lane: ThreadPoolExecutor(1, f"hinan-{lane}") for lane in ("reserve", "prove", "drain", "target")}
        self.drainer = Drainer(arena, target, lambda: served_attempt(target, node), self._ending.wait)
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining: asyncio.Task[None] | None = None

    def _room(self) -> dict[str, Limit]:
        """The room under each limit, the user's budget among them: what the slots hold already is taken from it."""
        held_bytes = sum(files.image_bytes for files in self.keeper.files.values())
        cap = self.ram_cap_bytes
        return room(self.arena.root, None if cap is None else cap - held_bytes)

    # -- what is known -------------------------------------------------------------------------------------------

    @property
    def orphaned(self) -> bool:
        """The trainers have all ended without closing: their newest step must be saved without being asked."""
        return not self.trainers.alive and not self.snapshot.closed

    def state(self) -> NodeState:
        """All that decisions depend on, as one value, read now: a decision on yesterday's slots could free today's."""
        self.slots = self.keeper.slots()
        return NodeState(
            slots=self.slots,
            history=self.snapshot.history,
            served=self.snapshot.served,
            stored=self.snapshot.stored,
            lost=self.arena.lost(),
            round=self.round.step_id if self.round else None,
            failed=frozenset(self.failed),
            wish=Wish(wanted=frozenset(self.wanted), newest_at_any_rate=self.closing or self.orphaned),
            keep=self.keep,
            settled=self.snapshot.settled,
            reachable=self.snapshot.reachable and not self.target_lost,
            absence_is_final=time.monotonic() >= self._sees_all_from,
        )

    @property
    def target_lost(self) -> bool:
        """The target is gone, or could not be read for a while: what waits for a commit must stop waiting."""
        return self.snapshot.gone or time.monotonic() - self.snapshot.taken_at > UNREACHABLE_AFTER_S

    def _report_target(self) -> None:
        """Say once, to the trainers, that the target is lost, and once to the log that it is back."""
        if self.target_lost == self._said_lost:
            return
        self._said_lost = not self._said_lost
        if self._said_lost:
            why = self.snapshot.error or "reading it does not end"
            self.tell(f"the target {self.target.root} cannot be reached ({why}): nothing is committed until it can")
        else:
            log.info("target.back path=%s", self.target.root)

    @property
    def is_idle(self) -> bool:
        """Nothing is being done and nothing is left to do."""
        left = [t for t in agenda(self.state()) if not (isinstance(t, Prove) and t.slot in self.keeper.unprovable)]
        # The heartbeat's reading of the target is no work: it would make an idle agent look busy now and then.
        return not self._busy - {"refresh"} and not self.trainers.alive and not left

    def met(self, attempt: int) -> None:
        """A trainer of this attempt has said hello. What an older attempt said at its close is over."""
        if attempt > self._newest_met:
            self._newest_met, self.closing, self.ram_is_spare = attempt, False, False

    def tell(self, text: str) -> None:
        """A failure that users must hear of at their next call."""
        self.news.append(text)
        self.told += 1
        log.error("report %s", text)

    # -- living --------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Something may have changed; look soon."""
        self._changed.set()

    async def run(self) -> None:
        """Live until there is a reason to stop (`stop_reason`)."""
        self.keeper.adopt()
        await self.refresh()
        beat = asyncio.create_task(self._heartbeat())
        try:
            while self.stop_reason is None:
                self._changed.clear()
                for task in agenda(self.state()):
                    self._start(task)
                for notify in list(self.on_change):
                    notify()
                await asyncio.sleep(0)  # waiting for an event that is set already would not let anyone else run
                await self._changed.wait()
        finally:
            beat.cancel()
            self.trainers.close()

    async def refresh(self) -> None:
        """Read the target again, now."""
        loop = asyncio.get_running_loop()
        taken = await loop.run_in_executor(self._threads["target"], self._look_at_target)
        if taken.reachable:
            self.snapshot = taken
        else:
            # What was known of the lineage stays true: evacuations go on by it while there is nothing to commit to.
            if taken.error != self.snapshot.error:
                log.warning("target.unreadable error=%r", taken.error)
            self.snapshot = replace(self.snapshot, reachable=False, gone=taken.gone, error=taken.error)
        self._report_target()
        self.look()

    def _look_at_target(self) -> Snapshot:
        return take_snapshot(self.target, self.run_id, self.node, self._device)

    async def refresh_within(self, patience_s: float) -> None:
        """Read the target again and wait for it, but no longer than this: its file system may hang."""
        task = asyncio.create_task(self.refresh())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.wait({task}, timeout=patience_s)

    async def finish(self) -> None:
        """Wait for a running drain up to the grace; then stop the threads."""
        if self._draining is not None:
            await asyncio.wait({self._draining}, timeout=self.grace_s)
        self._ending.set()
        for pool in self._threads.values():
            pool.shutdown(wait=False, cancel_futures=True)

    def refresh_soon(self) -> None:
        """Read the target again in the background; one such reading at a time."""
        if "refresh" not in self._busy:
            self._background("refresh", self.refresh())

    async def _heartbeat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            self._unproven = {slot: told for slot, told in self._unproven.items() if slot in self.keeper.files}
            for slot in self._unproven:
                self.keeper.unprovable.pop(slot, None)  # a tmpfs that was full may have room for the digests again
            self.keeper.try_again()
            self.refresh_soon()
            self._report_target()
            self.look()  # also when reading the target hangs: time has passed, and some wait for that

    def _trainer_ended(self, trainer: Trainer) -> None:
        log.info("trainer.ended rank=%d attempt=%d pid=%d", trainer.rank, trainer.attempt, trainer.process.pid)
        self.look()

    # -- doing ---------------------------------------------------------------------------------------------------

    def _start(self, task: Task) -> None:
        match task:
            case Stop(reason):
                self.stop_reason = reason
            case Release(slot):
                if slot in self.keeper.files:
                    log.info("slot.released slot=%s", slot)
                    phase = next(s.phase for s in self.slots if s.name == slot)
                    self.keeper.release(slot, phase)
                    self.look()
            case Forget(step_id):
                self.arena.forget_lost(step_id)
            case Prove(slot):
                if "prove" not in self._busy and slot not in self.keeper.unprovable:
                    # Ordering: read from now on, not from when the task gets its turn: a waiting request for a slot is
                    # answered in between, and the image would be digested while its next one is written.
                    self.keeper.read([slot])
                    self._background("prove", self._prove(self.keeper.files[slot]))
            case Drain(step_id, slots):
                if "drain" not in self._busy:
                    files = {self.keeper.files[name].rank: self.keeper.files[name] for name in slots}
                    self.round = Round(step_id, files)
                    self._draining = self._background("drain", self._drain(self.round))
            case Commit() | Bury() | Remove():
                if "target" not in self._busy:
                    self._background("target", self._tidy(task))

    def _background(self, lane: str, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        self._busy.add(lane)
        task = asyncio.create_task(work)
        self._tasks.add(task)

        def done(finished: asyncio.Task[None]) -> None:
            self._tasks.discard(finished)
            self._busy.discard(lane)
            if not finished.cancelled() and (error := finished.exception()) is not None:
                self.tell(f"the agent failed in {lane!r}: {error!r}")
                log.error("bug lane=%s", lane, exc_info=error)
            self.look()

        task.add_done_callback(done)
        return task

    def _order_slot(self, owner: OwnerRecord, image_bytes: int) -> None:
        self._background("reserve", self._reserve(owner, image_bytes))

    async def _reserve(self, owner: OwnerRecord, image_bytes: int) -> None:
        began, failure = time.monotonic(), None
        trainer = self.trainers.owner(owner)
        around = partial(self.placer.around, owner.rank, None if trainer is None else trainer.device)
        try:
            slot, huge_bytes = await asyncio.get_running_loop().run_in_executor(
                self._threads["reserve"], self.arena.new_slot, owner, image_bytes, self._ending.is_set, around
            )
            took_s = time.monotonic() - began
            log.info("slot.reserved slot=%s bytes=%d huge_bytes=%d s=%.3f", slot, image_bytes, huge_bytes, took_s)
        except OSError as error:
            failure = error
        finally:
            self.keeper.made(owner, image_bytes, failure)

    async def _prove(self, files: SlotFiles) -> None:
        slot, sealed = files.name, files.sealed
        began = time.monotonic()
        try:
            assert sealed is not None
            proven = await asyncio.get_running_loop().run_in_executor(
                self._threads["prove"], lambda: prove(self.arena, slot, sealed, late=self.keeper.is_late(files))
            )
            if (frozen := self._freshness.look(proven)) is not None:
                self.tell(frozen)
            log.info("proven step=%d rank=%d s=%.3f", sealed.step, files.rank, time.monotonic() - began)
            self._unproven.pop(slot, None)
        except (OSError, HinanError) as error:
            text = f"the RAM copy of step {sealed.step if sealed else '?'}, rank {files.rank} cannot be used: {error}"
            self.keeper.unprovable[slot] = str(error)
            if isinstance(error, HinanError) or self._unproven.get(slot) != text:
                self.tell(text)
            if isinstance(error, OSError):
                self._unproven[slot] = text
        finally:
            self.keeper.unread([slot])

    async def _drain(self, what: Round) -> None:
        step_id = what.step_id
        log.info("drain.opened step=%d attempt=%d bytes=%d", step_id.step, step_id.attempt, what.image_bytes)
        try:
            loop = asyncio.get_running_loop()
            self.drain_s = await loop.run_in_executor(self._threads["drain"], self.drainer.drain, what)
            self.failed_in_a_row = 0
            log.info(
                "committed step=%d attempt=%d bytes=%d s=%.3f direct=%s",
                step_id.step, step_id.attempt, what.image_bytes, self.drain_s, self.drainer.direct,
            )  # fmt: skip
        except Abandoned as error:
            held = {s.holds for s in self.slots}
            self.failed = {s: why for s, why in self.failed.items() if s in held} | {step_id: str(error)}
            self.failed_in_a_row += 1
            self.tell(str(error))
        finally:
            try:
                await self.refresh()
            finally:
                self.round = None

    async def _tidy(self, task: Commit | Bury | Remove) -> None:
        def work() -> None:
            match task:
                case Commit(step_id):
                    self.target.publish_commit(step_id, self.snapshot.stored[step_id].world_size)
                case Bury(step_id, reason):
                    self.target.bury(step_id, reason)
                case Remove(step_id):
                    self.target.remove(step_id)

        def fenced() -> bool:
            # Claims are read again before anything is published or deleted (rule A5).
            return self.target.history().newest_claim != self.snapshot.history.newest_claim

        def guarded() -> None:
            if not fenced():
                work()

        try:
            await asyncio.get_running_loop().run_in_executor(self._threads["target"], guarded)
            why = f" why={task.reason!r}" if isinstance(task, Bury) else ""
            log.info("%s step=%d%s", type(task).__name__.lower(), task.step_id.step, why)
        except (OSError, HinanError) as error:
            self.tell(f"could not {type(task).__name__.lower()} {task.step_id}: {error}")
            await asyncio.sleep(HEARTBEAT_S)  # not again at once: the next look would start the same task
        finally:
            await self.refresh()
