"""The agent's life: look at what is known, have done what the agenda says, look again.

Owns:      what is known, and the moments at which the world is looked at again: a message, a process's end, a finished
           task, the heartbeat.
Promises:  the loop itself never waits for a file system, a trainer or a peer.
Relies on: `core.agenda` for every decision, `agent.tasks` for carrying it out.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace

from hinan.agent.drainer import Round
from hinan.agent.keeper import Keeper
from hinan.agent.lanes import Lanes
from hinan.agent.ledger import Snapshot, take_snapshot
from hinan.agent.tasks import Tasks
from hinan.agent.trainers import Trainer, Trainers
from hinan.core.agenda import NodeState, agenda
from hinan.core.budget import Limit
from hinan.core.ids import StepId
from hinan.core.retention import Keep
from hinan.core.rounds import Wish
from hinan.core.slot import Slot
from hinan.host.limits import room
from hinan.host.mounts import VISIBILITY_S, file_system, visibility_s
from hinan.tiers.arena import Arena
from hinan.tiers.target import Target

log = logging.getLogger("hinan.agent")

HEARTBEAT_S = 2.0
UNREACHABLE_AFTER_S = 15.0
NEWS = 100

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
        self.lanes = Lanes(self._task_ended)
        self.tasks = Tasks(self)
        self.keeper = Keeper(arena, self.trainers, self._room, self.tasks.order_slot)
        self._device = file_system(target.root)
        self.snapshot = Snapshot(taken_at=time.monotonic())  # not read yet, which is not lost yet
        self.slots: tuple[Slot, ...] = ()
        self.round: Round | None = None
        self.failed: dict[StepId, str] = {}
        self.failed_in_a_row = 0
        self.drain_s: float | None = None
        self.wanted: Counter[StepId] = Counter()
        """How many callers wait for a step to be committed."""
        self.closing = False
        self.ram_is_spare = False
        """The run closed and everything is committed: the arena may go."""
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
            unprovable=frozenset(self.keeper.unprovable),
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

    @property
    def why_target_lost(self) -> str:
        """What has become of a lost target, for those who wait for a commit."""
        if self.snapshot.another:
            return f"the target {self.target.root} belongs to another run now ({self.snapshot.another})"
        return f"the target {self.target.root} cannot be reached ({self.snapshot.error or 'reading it does not end'})"

    def where_it_stays(self, what: str) -> str:
        """What becomes of a step that cannot be committed because the target is lost."""
        # Then nothing needs the arena any more, unless the target is put back (rule B8).
        until = " until the trainers have ended" if self.snapshot.gone else ""
        return f"{self.why_target_lost}; {what} stays in RAM{until}"

    def _report_target(self) -> None:
        """Say once, to the trainers, that the target is lost, and once to the log that it is back."""
        if self.target_lost == self._said_lost:
            return
        self._said_lost = not self._said_lost
        if self._said_lost:
            until = "" if self.snapshot.another else " until it can"
            self.tell(f"{self.why_target_lost}: nothing is committed{until}")
        else:
            log.info("target.back path=%s", self.target.root)

    @property
    def is_idle(self) -> bool:
        """Nothing is being done and nothing is left to do."""
        # The heartbeat's reading of the target is no work: it would make an idle agent look busy now and then.
        return not self.lanes.busy - {"refresh", "look"} and not self.trainers.alive and not agenda(self.state())

    def why_not_committed(self, step_id: StepId) -> str | None:
        """Why a step that stands in RAM will not be committed for now; None while there is hope."""
        return self.failed.get(step_id) or self.tasks.why_not_proven(step_id)

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
                    self.tasks.start(task)
                for notify in list(self.on_change):
                    notify()
                await asyncio.sleep(0)  # waiting for an event that is set already would not let anyone else run
                await self._changed.wait()
        finally:
            beat.cancel()
            self.trainers.close()

    async def refresh(self) -> None:
        """Read the target again, now."""
        taken = await self.lanes.call("target", self._look_at_target)
        if taken.reachable:
            self.snapshot = taken
        else:
            # What was known of the lineage stays true: evacuations go on by it while there is nothing to commit to.
            if taken.error != self.snapshot.error:
                log.warning("target.unreadable error=%r", taken.error)
            self.snapshot = replace(
                self.snapshot, reachable=False, gone=taken.gone, another=taken.another, error=taken.error
            )
        self._report_target()
        self.look()

    def _look_at_target(self) -> Snapshot:
        return take_snapshot(self.target, self.run_id, self.node, self._device)

    async def refresh_within(self, patience_s: float) -> None:
        """Read the target again and wait for it, but no longer than this: its file system may hang."""
        await asyncio.wait({self.lanes.begin("look", self.refresh())}, timeout=patience_s)

    async def finish(self) -> None:
        """Wait for a running drain up to the grace; then stop the threads."""
        await self.lanes.finish("drain", self.grace_s)

    def refresh_soon(self) -> None:
        """Read the target again in the background; one such reading at a time."""
        if "refresh" not in self.lanes.busy:
            self.lanes.begin("refresh", self.refresh())

    async def _heartbeat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            self.tasks.try_again()
            self.keeper.try_again()
            self.refresh_soon()
            self._report_target()
            self.look()  # also when reading the target hangs: time has passed, and some wait for that

    def _task_ended(self, lane: str, error: BaseException | None) -> None:
        if error is not None:
            self.tell(f"the agent failed in {lane!r}: {error!r}")
            log.error("bug lane=%s", lane, exc_info=error)
        self.look()

    def _trainer_ended(self, trainer: Trainer) -> None:
        log.info("trainer.ended rank=%d attempt=%d pid=%d", trainer.rank, trainer.attempt, trainer.process.pid)
        self.look()
