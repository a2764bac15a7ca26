"""`Evacuator`: the one object a training loop talks to."""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import time
from collections import deque
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import torch

from hinan.core.cadence import WARM_UP_STEPS, Cadence, Measured, parse_every, wanted_cadence
from hinan.core.errors import AgentError, ConfigError, Fenced, HinanError, SavingError
from hinan.core.ids import StepId, step_directory
from hinan.core.interval import auto_commit_s, auto_interval_s
from hinan.core.retention import Keep
from hinan.core.units import format_bytes, format_seconds, parse_bytes
from hinan.formats import messages as m
from hinan.formats.records import ClosedRecord, LostRecord, SealedRecord
from hinan.host.process import this_process
from hinan.tiers.arena import LOST, SEALED, Arena, arena_path
from hinan.tiers.mapping import map_file
from hinan.tiers.publish import AlreadyPublished
from hinan.tiers.target import now_text
from hinan.trainer.cadence import CadenceKeeper
from hinan.trainer.capture import Capture
from hinan.trainer.copying import SlotMap, enqueue
from hinan.trainer.device import DevicePort, port_for
from hinan.trainer.handle import Handle
from hinan.trainer.layout import Plan, Planner
from hinan.trainer.liaison import AGENT_START_S, Liaison, Place, refusal
from hinan.trainer.ranks import Ranks, node_name
from hinan.trainer.restore import Restore, Resumed
from hinan.trainer.start import agree_on_run, mint_attempt

log = logging.getLogger("hinan")

DEFAULT_TMPFS = Path("/dev/shm")  # noqa: S108 - the arena below it is for this user alone (0700)
STEP_TIMES = 64

CLOSE_LOOK_S = 30.0
"""While close() waits for a commit it looks this often whether the agent still answers."""

HELLO_S = 5.0
MOST_DEATHS = 3


class Evacuator:
    """Evacuates the state of a training loop to host RAM, drains it to a target, and restores it.

    Args:
        target: directory of this run, on storage that all ranks see. Its parent must exist.
        state: what to keep, by name: nn.Module, Optimizer, anything with state_dict and load_state_dict, tensors,
            torch.Generator, nested dicts and lists, plain values. `restore()` puts values back into the same containers.
        every: how often to evacuate to RAM: steps (50), a duration ("30s") or "auto".
        commit_every: how often to drain to the target and commit: the same three forms; a multiple of `every`.
        ram: "auto" (as much as there is room for), a budget per node ("200GiB"), or a directory on a tmpfs.
        keep: how many committed steps stay on the target.
        fresh: start over although the target holds steps; they become orphans.
        timeout_s: what the saving side may cost training once, when the agent does not answer [s].
        tolerate: failed commits in a row that are only reported; one more raises SavingError at the next call.
        take_over: start although the previous attempt's process seems to live.

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
        tolerate: int = 3,
        take_over: bool = False,
    ) -> None:
        _check_platform()
        if not isinstance(state, MutableMapping) or not all(isinstance(k, str) for k in state) or not state:
            raise ConfigError("state must be a dict with text keys, such as {'model': model, 'optim': optimizer}")
        _check_limits(keep, timeout_s, tolerate)
        asked = parse_every(every, "every"), parse_every(commit_every, "commit_every")
        self._state, self._keep, self._fresh = state, keep or Keep(), fresh
        self._timeout_s, self._tolerate = timeout_s, tolerate
        self._ram_bytes, tmpfs = _parse_ram(ram)
        self._ranks = Ranks()
        self._target, self._run_id = agree_on_run(Path(target).absolute(), self._ranks)
        self._attempt = mint_attempt(self._target, self._run_id, self._ranks, take_over=take_over)
        node = node_name()
        self._place = Place(self._target.root, arena_path(tmpfs, self._run_id, node), node)
        self._arena = Arena(self._place.arena)
        self._arena.create()
        self._liaison = Liaison(self._place, self._hello, timeout_s)
        self._cadence = self._first_cadence(asked)
        self._capture, self._planner = Capture(state), Planner()
        self._slots: dict[str, SlotMap] = {}
        self._ports: dict[torch.device, DevicePort] = {}
        self._step = 0
        self._last: Handle | None = None
        self._stalls: deque[float] = deque(maxlen=STEP_TIMES)
        self._boundaries: deque[float] = deque(maxlen=STEP_TIMES)
        self._prepared = False
        self._closed = False
        self.resumed: Resumed | None = None
        """What `restore()` did: step, attempt, source, reason; None before it was called."""
        atexit.register(self._at_exit)

    # -- the five lines ------------------------------------------------------------------------------------------

    def restore(self) -> int:
        """Bring this rank to the newest proven step; finished steps, 0 on an empty target. Collective.

        Live state is written only after every rank's bytes were verified. The random generators are put back last.

        Raises:
            NothingToResume: the target holds steps and none is usable; the message lists what each lacks.
            StructureError: the live state does not fit the saved one; nothing was written.
            PeerError: another rank failed or did not answer; it is named.
        """
        began = time.monotonic()
        restore = Restore(self._place, self._target, self._ranks, self._attempt)
        self.resumed = restore.run(self._state, fresh=self._fresh)
        self._step = self.resumed.step
        log.info(
            "restored step=%d attempt=%s source=%s rank=%d s=%.3f why=%s",
            self._step, self.resumed.attempt, self.resumed.source or "-", self._ranks.rank,
            time.monotonic() - began, self.resumed.reason,
        )  # fmt: skip
        return self._step

    def step(self) -> int:
        """The last statement of an iteration: counts it, evacuates when due, and returns the finished steps.

        A step with nothing due does no I/O and asks nobody.

        Raises:
            SavingError: more commits failed in a row than `tolerate` allows; training state is untouched.
            BudgetError: the evacuated state does not fit into RAM; the message has the sum and the ways out.
            Fenced: a newer attempt of this run has taken over; this process must end.
            CaptureError: something in the state cannot be kept; its path is named.
        """
        if self.resumed is None:
            raise ConfigError("call evac.restore() once before the first evac.step(); it returns 0 on an empty target")
        self._step += 1
        self._boundaries.append(time.monotonic())
        if self._cadence.next_look and self._step >= self._cadence.next_look:
            self._quietly(lambda: self._cadence.at_step(self._step))
        if self._liaison.attention:
            self._attend()
        if self._cadence.now.due(self._step):
            self._evacuate(self._cadence.now.commit_at(self._step))
        elif not self._prepared:
            self._prepare()
        return self._step

    def evacuate(self, wait: str = "held", timeout_s: float | None = None) -> Handle:
        """Evacuate the present state now. Call it on all ranks alike, at the same step.

        Args:
            wait: "held" (this rank's copy is whole) or "committed" (all ranks' images are safe on the target).
            timeout_s: how long to wait for "committed"; None waits until it happens or has failed.
        Raises:
            as `step()`, and SavingError when it was lost or could not be committed.
        """
        if self.resumed is None:
            raise ConfigError("call evac.restore() before evac.evacuate()")
        already = self._last is not None and self._last.step == self._step and self._last.lost is None
        commit_at = self._step if wait == "committed" else self._cadence.now.commit_at(self._step)
        handle = self._last if already and self._last is not None else self._evacuate(commit_at)
        if wait != "held":
            handle.wait(wait, timeout_s)
        elif handle.lost is not None:
            raise SavingError(f"step {handle.step} was not evacuated: {handle.lost}")
        return handle

    def close(self, *, keep_ram: bool = False) -> None:
        """End the run on purpose: wait until the newest evacuated step is committed, then free the RAM.

        Args:
            keep_ram: leave the RAM copies to the next attempt.
        Raises:
            SavingError: the newest evacuated step could not be committed; it stays in RAM.
        """
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self._at_exit)
        try:
            self._say_closed(keep_ram)
        finally:
            self._liaison.close()
            self._slots.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            # The loop failed: the RAM copies are for the next attempt, and the agent drains the newest by itself.
            self._closed = True
            atexit.unregister(self._at_exit)
            self._liaison.close()

    # -- evacuating ----------------------------------------------------------------------------------------------

    @property
    def attempt(self) -> int:
        """Number of this incarnation of the run, minted by hinan."""
        return self._attempt

    @property
    def cadence(self) -> Cadence:
        """The cadence in force, the same on every rank."""
        return self._cadence.now

    @property
    def last(self) -> Handle | None:
        """The newest evacuation of this process."""
        return self._last

    def _evacuate(self, commit_at: int) -> Handle:
        began = time.monotonic()
        handle = Handle(StepId(self._attempt, self._step), self._watch)
        self._last = handle
        try:
            captured = self._capture.take()
            plan = self._planner.plan(captured.tensors)
            slot = self._slot(plan)
        except Fenced:
            raise
        except OSError as error:
            self._lose(handle, f"the slot cannot be mapped: {error}")
            return handle
        except HinanError as error:
            self._lose(handle, str(error))
            raise
        if slot is None:
            self._lose(handle, "no slot was free in time (the agent is slow or every slot is needed)")
            return handle
        enqueue(plan, slot, self._port).join()
        handle.image_bytes = plan.image_bytes
        handle.stall_s = time.monotonic() - began
        self._seal(handle, plan, slot, msgspec.json.encode(captured.small), commit_at)
        self._stalls.append(time.monotonic() - began)
        self._quietly(lambda: self._cadence.at_evacuation(self._step, self._measured()))
        return handle

    def _slot(self, plan: Plan) -> SlotMap | None:
        name = self._liaison.take(plan.image_bytes)
        if name is None:
            return None
        if name not in self._slots or not self._arena.path(name).exists():
            self._forget_unlinked()
            self._slots[name] = SlotMap(name, map_file(self._arena.path(name), writable=True))
        return self._slots[name]

    def _forget_unlinked(self) -> None:
        """Unmap slots that the agent has removed, so that their pages are freed."""
        self._slots = {name: slot for name, slot in self._slots.items() if self._arena.path(name).exists()}

    def _seal(self, handle: Handle, plan: Plan, slot: SlotMap, small: bytes, commit_at: int) -> None:
        record = SealedRecord(
            attempt=handle.attempt,
            step=handle.step,
            rank=self._ranks.rank,
            world_size=self._ranks.world_size,
            node=self._place.node,
            image_bytes=plan.image_bytes,
            header_sum=plan.header_sum,
            small=msgspec.Raw(small),
            commit_at=commit_at,
            held_at=now_text(),
            stall_s=handle.stall_s,
        )
        try:
            self._arena.publish(slot.name + SEALED, record)
        except (OSError, AlreadyPublished) as error:
            self._lose(handle, f"the seal could not be published: {error}")
            return
        handle.mark_held()
        self._liaison.want(plan.image_bytes)
        log.info(
            "held step=%d attempt=%d rank=%d bytes=%d stall_s=%.4f slot=%s",
            handle.step, handle.attempt, self._ranks.rank, plan.image_bytes, handle.stall_s, slot.name,
        )  # fmt: skip

    def _lose(self, handle: Handle, reason: str) -> None:
        """Give a step up for all ranks (rule C2): nobody else needs to keep it."""
        handle.lost = reason
        record = LostRecord(handle.attempt, handle.step, self._ranks.rank, reason)
        with suppress(OSError, AlreadyPublished):
            self._arena.publish(step_directory(StepId(handle.attempt, handle.step)) + LOST, record)
        log.error("report lost step=%d rank=%d why=%s", handle.step, self._ranks.rank, reason)

    def _prepare(self) -> None:
        """After the first step the structure is known: have a slot reserved before the first evacuation is due."""
        self._prepared = True
        self._liaison.want(self._planner.plan(self._capture.take().tensors).image_bytes)

    def _port(self, device: torch.device) -> DevicePort:
        if device not in self._ports:
            self._ports[device] = port_for(device)
        return self._ports[device]

    # -- the agent -----------------------------------------------------------------------------------------------

    def _hello(self, holding: list[str]) -> m.Hello:
        me = this_process()
        return m.Hello(
            run_id=self._run_id,
            attempt=self._attempt,
            rank=self._ranks.rank,
            local_ranks=self._ranks.local_ranks,
            world_size=self._ranks.world_size,
            pid=me.pid,
            start_ticks=me.start_ticks,
            holding=holding,
            keep_last=self._keep.last,
            keep_every=self._keep.every,
            ram_bytes=self._ram_bytes,
        )

    def _attend(self) -> None:
        """Failures in the background reach the user here: reported, counted, and raised when there are too many."""
        news = self._liaison.take_news()
        for text in news:
            log.error("report %s", text)
        self._liaison.check()
        if self._liaison.failed_in_a_row > self._tolerate:
            raise SavingError(
                f"{self._liaison.failed_in_a_row} commits in a row have failed; the last: "
                f"{news[-1] if news else 'see the log'}. Training state is untouched; "
                "mend the target, or allow more with tolerate=.",
                failed_in_a_row=self._liaison.failed_in_a_row,
            )

    def _watch(self, step_id: StepId, moment: str, timeout_s: float) -> None:
        """Wait for a moment on a connection of its own; a restarted agent is asked again."""
        deadline = time.monotonic() + timeout_s
        while True:
            left = min(deadline - time.monotonic(), 3600.0)
            try:
                client = self._place.connect(min(left, AGENT_START_S))
                try:
                    answer = client.ask(m.Watch(step_id.attempt, step_id.step, moment), max(0.01, left))
                finally:
                    client.close()
            except AgentError:
                if time.monotonic() >= deadline:
                    why = self._missing(step_id)
                    raise AgentError(f"step {step_id.step} was not {moment} within {timeout_s:g} s{why}") from None
                continue
            if isinstance(answer, m.Refused):
                raise refusal(answer)
            return

    def _ask_to_close(self, keep_ram: bool) -> m.Answer:
        """Wait as long as the agent works on the newest step, however long that takes; an agent that died is started again.

        Raises:
            AgentError: it does not answer a greeting in time (it is frozen), or dies again and again.
        """
        deaths = 0
        while True:
            client = self._place.connect()
            began = time.monotonic()
            try:
                answer = client.ask(self._hello([]), max(self._timeout_s, HELLO_S))
                if isinstance(answer, m.Refused):
                    return answer
                return client.ask(m.Close(self._step, keep_ram), CLOSE_LOOK_S)
            except AgentError as error:
                if error.evidence.get("request") == "hello":
                    raise
                deaths += time.monotonic() - began < CLOSE_LOOK_S
                if deaths > MOST_DEATHS:
                    raise
            finally:
                client.close()

    def _missing(self, step_id: StepId) -> str:
        """Which ranks have not evacuated a step yet, for the message of a wait that was in vain."""
        sealed = {f.rank for f in self._arena.scan() if f.sealed is not None and f.sealed.step_id == step_id}
        missing = sorted(set(range(self._ranks.world_size)) - sealed) if sealed else []
        return f": rank {', '.join(map(str, missing))} did not evacuate it (call it on all ranks alike)" if missing else ""

    def _say_closed(self, keep_ram: bool) -> None:
        answer = self._ask_to_close(keep_ram)
        if isinstance(answer, m.Refused):
            error = refusal(answer)
            raise error if isinstance(error, Fenced) else SavingError(f"the run was closed, but {answer.reason}")
        if self._ranks.rank == 0:
            with suppress(AlreadyPublished):
                self._target.publish_attempt(ClosedRecord(self._attempt, self._step, now_text()))

    def _at_exit(self) -> None:
        """The interpreter ends without close(): wait a moment for the newest step, and say what becomes of it."""
        if self._closed or self._last is None or self._last.lost is not None:
            return
        try:
            self._last.wait("committed", self._timeout_s)
        except HinanError as error:
            log.warning("ended without close(): %s; the agent drains it from RAM in the background", error)

    # -- small things --------------------------------------------------------------------------------------------

    def _first_cadence(self, asked: tuple[Any, Any]) -> CadenceKeeper:
        every, commit = asked
        steps = wanted_cadence(
            every, commit, Measured(), auto_interval_s=auto_interval_s(None), auto_commit_s=auto_commit_s(None)
        )
        told = self._ranks.from_first(list(steps), "telling the cadence")
        assert isinstance(told, list)
        first = Cadence(0, int(told[0]), int(told[1]))
        return CadenceKeeper(self._arena, self._ranks.rank, self._ranks.world_size, self._attempt, asked, first)

    def _measured(self) -> Measured:
        """Medians of what this rank has seen; evacuations themselves are not counted into the step time."""
        times = list(self._boundaries)
        steps = sorted(b - a for a, b in itertools.pairwise(times))
        stalls = sorted(self._stalls)
        return Measured(
            step_s=steps[len(steps) // 2] if len(steps) >= min(WARM_UP_STEPS, STEP_TIMES) - 1 else None,
            stall_s=stalls[len(stalls) // 2] if stalls else None,
            drain_s=self._liaison.drain_s,
        )

    def _quietly(self, work: Any) -> None:
        """The cadence is a convenience: a file system that fails here is reported, and training goes on."""
        try:
            work()
        except OSError as error:
            log.error("report cadence: %s", error)

    def __repr__(self) -> str:
        last = "" if self._last is None else f", last {self._last.step} ({format_seconds(self._last.stall_s)} stall)"
        size = "" if self._last is None else f", {format_bytes(self._last.image_bytes)}"
        return f"<Evacuator {self._target.root} attempt {self._attempt} step {self._step}{last}{size}>"


def _parse_ram(ram: str | os.PathLike[str]) -> tuple[int | None, Path]:
    """(budget in bytes or None, tmpfs directory) of the argument `ram`.

    Raises:
        ConfigError: neither "auto", a size, nor an existing directory.
    """
    if not isinstance(ram, str | os.PathLike):
        raise ConfigError(f'ram={ram!r}: use "auto", a budget per node ("200GiB") or a directory on a tmpfs')
    text = os.fspath(ram)
    if text == "auto":
        return None, DEFAULT_TMPFS
    if os.sep in text:
        if not Path(text).is_dir():
            raise ConfigError(f"ram={text!r} is not a directory; mount a tmpfs there, or name one that exists")
        return None, Path(text).absolute()
    return parse_bytes(text), DEFAULT_TMPFS


def _check_limits(keep: object, timeout_s: object, tolerate: object) -> None:
    """
    Raises:
        ConfigError: one of them is of the wrong kind or out of range; it is named.
    """
    if keep is not None and not isinstance(keep, Keep):
        raise ConfigError(f"keep={keep!r}: use hinan.Keep(last=3), Keep(last=None) for all, or Keep(last=3, every=1000)")
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not 0 < timeout_s < float("inf"):
        raise ConfigError(f"timeout_s={timeout_s!r}: use a number of seconds above 0")
    if isinstance(tolerate, bool) or not isinstance(tolerate, int) or tolerate < 0:
        raise ConfigError(f"tolerate={tolerate!r}: use a whole number of failed commits, 0 or more")


def _check_platform() -> None:
    if not hasattr(os, "pidfd_open") or not Path("/proc/self/stat").exists():
        raise ConfigError("hinan needs Linux 5.3 or newer with /proc (pidfd, tmpfs); this system has not got them")
