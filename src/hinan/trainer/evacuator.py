"""`Evacuator`: the one object a training loop talks to."""

from __future__ import annotations

import atexit
import logging
import os
import time
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from weakref import ref

from hinan.core.cadence import Cadence
from hinan.core.errors import ConfigError, HinanError
from hinan.core.ids import StepId
from hinan.core.retention import Keep
from hinan.core.units import format_bytes, format_seconds
from hinan.formats.records import ClosedRecord, now_text
from hinan.host.node import node_name
from hinan.host.signals import ours
from hinan.tiers.arena import Arena, arena_path
from hinan.tiers.publish import AlreadyPublished
from hinan.trainer.attempt.arguments import checked
from hinan.trainer.attempt.cadence import CadenceKeeper, first_cadence
from hinan.trainer.attempt.contract import agree_on_budget
from hinan.trainer.attempt.identity import Identity
from hinan.trainer.attempt.liaison import Liaison, Place
from hinan.trainer.attempt.pace import Pace
from hinan.trainer.attempt.past import Past, past_of, warn_of_forsaken
from hinan.trainer.attempt.ranks import RESTORE_TIMEOUT_S, Ranks
from hinan.trainer.attempt.refusals import mid_iteration, refuse_after_end, refuse_nested, refuse_wait_in_handler
from hinan.trainer.attempt.reports import attend
from hinan.trainer.attempt.start import agree_on_arguments, agree_on_run, mint_attempt, warn_of_shared_store
from hinan.trainer.attempt.waiting import wait_for
from hinan.trainer.ending import close_run, end_without_close, warn_of_unsaved_steps
from hinan.trainer.evacuating.deferral import Deferral
from hinan.trainer.evacuating.evacuation import Evacuation
from hinan.trainer.evacuating.gate import Gate
from hinan.trainer.evacuating.handle import Handle
from hinan.trainer.evacuating.lateness import LateMovers
from hinan.trainer.evacuating.slotmaps import SlotMaps
from hinan.trainer.ports.worker import end_log_thread
from hinan.trainer.restoring.restore import Restore, Resumed

log = logging.getLogger("hinan")


class Evacuator:
    """Evacuates the state of a training loop to host RAM, drains it to a target, and restores it.

    Args:
        target: directory of this run, on storage that all ranks see. Its parent must exist.
        state: what to keep, by name: nn.Module, Optimizer, anything with state_dict and load_state_dict, tensors,
            torch.Generator, nested dicts and lists, plain values. `restore()` puts values back into the same containers.
        every: how often to evacuate to RAM: steps (50), a duration ("30s") or "auto" (decided while it runs, from what it
            measures and how often the run has failed; `hinan agent status` says why).
        commit_every: how often to drain to the target and commit: the same three forms; a multiple of `every`.
        ram: "auto" (as much as there is room for), a budget per node ("200GiB"), or a directory on a tmpfs.
        keep: how many committed steps stay on the target.
        fresh: start over although the target holds steps; they become orphans.
        timeout_s: what the saving side may cost training once, when the agent does not answer [s].
        restore_timeout_s: how long ranks wait for each other at start and in `restore()`, before they give up and name the
            one that is missing [s]. Longer than the slowest rank takes to read its image.
        tolerate: failed commits in a row that are only reported; one more raises SavingError at the next call.
        take_over: start although the previous attempt's process seems to live.
        check: "bits" digests the state at each evacuation, and at the gate compares it and its copy with that; a step that
            differs is given up. It finds writes that nothing else can see, and costs more than a copy that is waited for.

    Raises:
        ConfigError: an argument cannot work, the ranks disagree, or there is no process group yet.
        TargetError: the target cannot be used, or belongs to a living attempt.

    All ranks construct it together, after `init_process_group`. It is used by one thread. Nothing of it touches the
    process groups of the training loop.
    """

    def __init__(
        self,
        target: str | os.PathLike[str],
        state: MutableMapping[str, Any],
        *,
        every: int | str = "auto",
        commit_every: int | str = "auto",
        ram: str | os.PathLike[str] = "auto",
        keep: Keep | None = None,
        fresh: bool = False,
        timeout_s: float = 10.0,
        restore_timeout_s: float = RESTORE_TIMEOUT_S,
        tolerate: int = 3,
        take_over: bool = False,
        check: str = "off",
    ) -> None:
        asked = checked(
            state=state, every=every, commit_every=commit_every, ram=ram, keep=keep, timeout_s=timeout_s,
            restore_timeout_s=restore_timeout_s, tolerate=tolerate, check=check,
        )  # fmt: skip
        self._state, self._fresh = state, fresh
        self._timeout_s, self._tolerate = asked.timeout_s, asked.tolerate
        warn_of_shared_store()
        self._ranks = Ranks(asked.restore_timeout_s)
        agree_on_arguments({**asked.for_all, "fresh": str(fresh)}, self._ranks)
        self._target, run_id = agree_on_run(Path(target).absolute(), self._ranks)
        node = node_name()
        self._arena = Arena(arena_path(asked.tmpfs, run_id, node))
        if self._ranks.rank == 0:
            warn_of_forsaken(self._target.root, self._arena)
        attempt = mint_attempt(self._target, run_id, self._ranks, self._arena, take_over=take_over)
        self._place = Place(self._target.root, self._arena.root, node, attempt)
        self._identity = Identity(
            run_id=run_id,
            attempt=attempt,
            rank=self._ranks.rank,
            world_size=self._ranks.world_size,
            local_ranks=self._ranks.local_ranks,
            place=self._place,
            keep=asked.keep,
            ram_bytes=asked.ram_bytes,
        )
        self._arena.create()
        self._maps = SlotMaps(self._arena)
        self._liaison = Liaison(self._place, self._identity.hello, self._maps.prepare, asked.timeout_s)
        self._gate, self._late, self._deferral = Gate(state), LateMovers(state), Deferral()
        self._gate.on_pass = self._late.at_gate
        self._evacuation = Evacuation(
            self._identity, self._arena, self._maps, self._liaison, state, self._gate, check_bits=asked.check_bits
        )
        # Ordering: before training, because RAM soon holds other steps; and never later, because a target may hang.
        past = past_of(self._target, self._arena) if self._ranks.rank == 0 else Past()
        self._pace = Pace(past, nodes=self._ranks.world_size // self._ranks.local_ranks)
        first = first_cadence(asked.every, asked.commit_every, is_said=self._ranks.rank == 0)
        self._cadence = CadenceKeeper(
            self._arena, self._identity.rank, self._identity.world_size, attempt, (asked.every, asked.commit_every), first
        )
        self._step, self._ended_iteration = 0, 0
        self._last: Handle | None = None
        self._prepared = False
        self._ended = self._closed = False  # the loop has ended; the run was closed, too
        self._pid = os.getpid()
        self.resumed: Resumed | None = None
        """What `restore()` did: step, attempt, source, reason; None before it was called."""
        atexit.register(self._at_exit)

    # -- the five lines ------------------------------------------------------------------------------------------

    def restore(self) -> int:
        """Bring this rank to the newest proven step; finished steps, 0 on an empty target. Collective.

        Live state is written only after every rank's bytes were verified. The random generators are put back last.

        Raises:
            NothingToResume: the target holds steps and none is usable; the message lists what each lacks.
            StructureError: the live state does not fit the saved one, and nothing was written; or an object did not load
                what it had said of itself, and the state is written in part. The message says so.
            BudgetError: what will be evacuated does not fit into RAM; the message has the sum and the ways out.
            PeerError: another rank failed or did not answer; it is named.
        """
        if self.resumed is not None or self._ended:
            raise ConfigError("evac.restore() works once, before the first evac.step(): make a new Evacuator to go back")
        began = time.monotonic()
        resumed = Restore(self._place, self._target, self._ranks, self._identity.attempt).run(
            self._state, fresh=self._fresh
        )
        log.info(
            "restored step=%d attempt=%s source=%s rank=%d s=%.3f why=%s",
            resumed.step, resumed.attempt, resumed.source or "-", self._ranks.rank,
            time.monotonic() - began, resumed.reason,
        )  # fmt: skip
        agree_on_budget(self._state, self._ranks, self._arena, self._identity)
        self._pace.resumed(resumed.parent, resumed.source)
        # Last, and in one statement: a restore that was refused or interrupted before is none, and can be called again.
        self.resumed, self._step = resumed, resumed.step
        return resumed.step

    def step(self) -> int:
        """The last statement of an iteration: counts it, evacuates when due, and returns the finished steps.

        A step with nothing due does no I/O and asks nobody. Gradients are not kept: what falls due in an accumulation is
        evacuated at its end.

        Raises:
            SavingError: more commits failed in a row than `tolerate` allows; training state is untouched.
            BudgetError: the evacuated state does not fit into RAM; the message has the sum and the ways out.
            Fenced: a newer attempt of this run has taken over; this process must end.
            CaptureError: something in the state cannot be kept; its path is named.
        """
        if self.resumed is None:
            raise ConfigError("call evac.restore() once before the first evac.step(); it returns 0 on an empty target")
        self._refuse_after_end()
        # In one statement: after an interrupt the number of steps and the iteration that ended with them still fit.
        self._step, self._ended_iteration = self._step + 1, self._gate.iteration
        self._pace.boundary(time.monotonic())
        self._gate.at_boundary()
        if self._cadence.next_look and self._step >= self._cadence.next_look:
            self._quietly(lambda: self._cadence.at_step(self._step))
        if self._liaison.attention:
            attend(self._liaison, self._tolerate)
        if self._is_due():
            refuse_nested("evac.step()", self, _CALLS)
            self._evacuate(self._cadence.now.commit_at(self._step))
        elif not self._prepared:
            # After the first step the structure is known: a slot is reserved before the first evacuation is due.
            self._evacuation.prepare()
        self._prepared = True
        if self._deferral.since or self._cadence.now.due(self._step + 1):
            self._gate.probe()
        return self._step

    def gate(self) -> None:
        """Say that state is about to change which no optimizer of torch changes; until the next `step()` it may.

        Call it right before a hand-written update, a duck-typed optimizer's step, the replay of a captured graph, or a
        collective that writes into weights (`dist.broadcast`, `all_reduce`, `recv`; torch does not count those). It
        waits until an evacuation on its way no longer reads the state: on a device by order of streams, for host memory
        really. Called in every iteration, it earns that copies go on while the next forward and backward run.
        """
        self._gate.passed_by_hand()

    def evacuate(self, wait: str = "held", timeout_s: float | None = None) -> Handle:
        """Evacuate the present state now. Call it on all ranks alike, at the same step.

        Its place is right behind `step()`: what is kept is the state after so many finished steps. Gradients are not
        kept; in an accumulation it says so, and a run that resumes there is another one.

        Args:
            wait: "held" (this rank's copy is whole) or "committed" (all ranks' images are safe on the target).
            timeout_s: how long to wait for "committed"; None waits until it happens or has failed.
        Raises:
            as `step()`, SavingError when it was lost or could not be committed, and ConfigError in the middle of an
            iteration, and in a signal's handler that has interrupted another call: set a flag there, and call it behind
            `step()`.
        """
        if self.resumed is None:
            raise ConfigError("call evac.restore() before evac.evacuate()")
        self._refuse_after_end()
        refuse_nested("evac.evacuate()", self, _CALLS)
        already = self._last is not None and self._last.step == self._step  # also if it was lost: it is, for all ranks
        commit_at = self._step if wait == "committed" else self._cadence.now.commit_at(self._step)
        if already and self._last is not None:
            handle = self._last
        elif self._gate.was_passed_after(self._ended_iteration):
            raise mid_iteration(self._step)
        else:
            self._deferral.say_not_kept(self._step, self._gate.pending_gradients())
            handle = self._evacuate(commit_at)
        if wait == "held":
            handle.settle()
        else:
            handle.wait(wait, timeout_s)
        return handle

    def close(self, *, keep_ram: bool = False) -> None:
        """End the run on purpose: wait until the newest evacuated step is committed, then free the RAM.

        Whoever drops this object and the state then has their memory back; one that is not closed lives as long as the
        interpreter, which waits for the newest step as it ends. It evacuates nothing: what has come since the last
        evacuation is kept by `evacuate()` before it.

        Args:
            keep_ram: leave the RAM copies to the next attempt.
        Raises:
            SavingError: the newest evacuated step could not be committed; it stays in RAM. Another call tries again.
        """
        if self._closed or os.getpid() != self._pid:  # in a forked child there is nothing of ours to end
            return
        refuse_nested("evac.close()", self, _CALLS)
        self._ended = True
        try:
            self._evacuation.conclude()
            self._say_closed(keep_ram)
            self._evacuation.end()
            self._closed = True
            atexit.unregister(self._at_exit)
        except HinanError:
            atexit.unregister(self._at_exit)  # it is said, and whoever catches it may try again; an interrupt says nothing
            raise
        finally:
            self._let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            # The loop failed: the RAM copies are for the next attempt, and the agent drains the newest by itself.
            self._ended = self._closed = True
            atexit.unregister(self._at_exit)
            self._evacuation.conclude()
            self._evacuation.end()
            self._let_go()

    def _let_go(self) -> None:
        """Hooks, connection, RAM: whoever drops this object and the state then gives their memory back at once."""
        self._gate.close()
        self._liaison.close()
        self._maps.clear()
        end_log_thread()

    # -- evacuating ----------------------------------------------------------------------------------------------

    @property
    def attempt(self) -> int:
        """Number of this incarnation of the run, minted by hinan."""
        return self._identity.attempt

    @property
    def finished_steps(self) -> int:
        """Steps that were counted: what `step()` returned last, or would have if no exception of a handler had ended it."""
        return self._step

    @property
    def cadence(self) -> Cadence:
        """The cadence in force, the same on every rank."""
        return self._cadence.now

    @property
    def last(self) -> Handle | None:
        """The newest evacuation of this process."""
        return self._last

    def _refuse_after_end(self) -> None:
        refuse_after_end(ended=self._ended, pid=self._pid)

    def _is_due(self) -> bool:
        due = self._cadence.now.due(self._step)
        return self._deferral.decide(self._step, due=due, pending=self._gate.pending_gradients)

    def _evacuate(self, commit_at: int) -> Handle:
        previous, handle = self._last, self._new_handle()
        self._late.at_evacuation()
        try:
            self._evacuation.run(handle, commit_at)
        finally:
            if handle.flight is not None or handle.lost is not None:
                self._last = handle
        if previous is not None and previous.held:
            self._pace.stall(previous.stall_s)  # only now is known what its gate cost, and whether it was sealed at all
        if handle.lost is None:
            self._pace.drained(self._liaison.drain_s)
            self._quietly(lambda: self._cadence.at_evacuation(self._step, self._pace.job))
        return handle

    # -- the agent -----------------------------------------------------------------------------------------------

    def _new_handle(self) -> Handle:
        # Weakly: this object keeps its newest handle, and with a handle that kept it the state would stay until Python
        # collects garbage. Where the object is gone, no call of it stands anywhere.
        me, step_id = ref(self), StepId(self._identity.attempt, self._step)
        wait = partial(wait_for, self._identity, self._arena)
        return Handle(step_id, wait, lambda: refuse_wait_in_handler(me(), _CALLS))

    def _say_closed(self, keep_ram: bool) -> None:
        warn_of_unsaved_steps(self._last, self._step, self._deferral.since)
        close_run(self._identity, self._last, self._step, keep_ram=keep_ram, timeout_s=self._timeout_s)
        if self._identity.rank == 0:
            with suppress(AlreadyPublished):
                self._target.publish_attempt(ClosedRecord(self._identity.attempt, self._step, now_text()))

    def _at_exit(self) -> None:
        if not self._closed and os.getpid() == self._pid:  # a forked child ends, and its parent goes on
            self._evacuation.settle()
            end_without_close(self._last, self._timeout_s)

    def _quietly(self, work: Callable[[], object]) -> None:
        """The cadence is a convenience: a file system that fails here is reported, and training goes on."""
        try:
            work()
        except ours(OSError) as error:
            log.error("report cadence: %s", error)

    def __repr__(self) -> str:
        last = "" if self._last is None else f", last {self._last.step} ({format_seconds(self._last.stall_s)} stall)"
        size = "" if self._last is None else f", {format_bytes(self._last.image_bytes)}"
        return f"<Evacuator {self._target.root} attempt {self._identity.attempt} step {self._step}{last}{size}>"


_CALLS = frozenset(f.__code__ for f in (Evacuator.restore, Evacuator.step, Evacuator.evacuate, Evacuator.close))
"""What a handler may not call again while the training thread stands in one of them: each owns the slots meanwhile."""
