"""One evacuation: capture, plan, take the leased slot, copy, seal. Or give it up, for all ranks.

Promises:  after `run` the handle is lost or on its way; it is held or lost when its flight has landed. Whatever goes wrong
           on the saving side costs this step, not the training; what is wrong with the state itself is raised.
"""

from __future__ import annotations

import logging
import time
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

import msgspec
import torch

from hinan.core.errors import ArenaFull, Fenced, HinanError
from hinan.core.ids import StepId, step_directory
from hinan.formats.records import LostRecord, SealedRecord, now_text
from hinan.host.signals import ours, suppress_ours
from hinan.tiers.arena import LOST, SEALED, Arena
from hinan.tiers.publish import AlreadyPublished
from hinan.trainer.attempt.identity import Identity
from hinan.trainer.attempt.liaison import Liaison
from hinan.trainer.evacuating.copying import Copying, SlotMap, enqueue
from hinan.trainer.evacuating.flight import Flight, UnseenWrites
from hinan.trainer.evacuating.gate import Gate
from hinan.trainer.evacuating.handle import Handle
from hinan.trainer.evacuating.overlap import Overlap
from hinan.trainer.evacuating.slotmaps import SlotMaps
from hinan.trainer.evacuating.watching import Watched
from hinan.trainer.ports.device import DevicePort, pci_address, port_for
from hinan.trainer.ports.worker import Worker, log_aside
from hinan.trainer.state.capture import Capture, Captured
from hinan.trainer.state.inventory import Inventory
from hinan.trainer.state.layout import Plan, Planner


@dataclass
class Start:
    """An evacuation that has begun and is not on its way yet. One that was interrupted stays here until it is asked for
    again or given up: other ranks may hold its step and wait for this one.

    Attributes:
        copying: copies that were enqueued and have no flight yet: they may be writing into the slot.
    """

    handle: Handle
    copying: Copying | None = None


class DevicePorts:
    """The port of each device, made when it is first asked for. An object of its own: what else asks must not keep the
    evacuation alive, and with it the state, until Python collects garbage."""

    def __init__(self) -> None:
        self._made: dict[torch.device, DevicePort] = {}

    def of(self, device: torch.device) -> DevicePort:
        if device not in self._made:
            self._made[device] = port_for(device)
        return self._made[device]

    def all(self) -> list[DevicePort]:
        return list(self._made.values())


class Evacuation:
    """Evacuates one state, again and again. Used by the training thread; copies land in a thread of its own."""

    def __init__(
        self,
        identity: Identity,
        arena: Arena,
        maps: SlotMaps,
        liaison: Liaison,
        state: MutableMapping[str, Any],
        gate: Gate,
        *,
        check_bits: bool = False,
    ) -> None:
        self._identity, self._arena, self._maps, self._liaison = identity, arena, maps, liaison
        self._gate, self._check_bits = gate, check_bits
        self._capture, self._planner, self._inventory = Capture(state), Planner(), Inventory(state)
        self._ports = DevicePorts()
        self._overlap = Overlap(gate, self._ports.of)
        self._landing = Worker("hinan-land")
        self._newest: Handle | None = None
        self._start: Start | None = None
        self._settled_stall_s: float | None = None
        """What the evacuation before the newest has cost in all. Its own seal was published before it passed its gate."""

    def prepare(self) -> None:
        """Have a slot of the state's present size reserved, touched and pinned before it is needed.

        Raises:
            CaptureError: something in the state cannot be kept; better now than at the first evacuation.
        """
        plan = self._planner.plan(self._look().tensors)
        devices = {part.device for part in plan.parts}
        self._maps.pin_with([self._ports.of(device) for device in devices])
        self._liaison.device = pci_address(devices)
        self._liaison.want(plan.image_bytes)

    def run(self, handle: Handle, commit_at: int) -> None:
        """Start to evacuate the state as it is now.

        An exception that is not ours (Ctrl-C, a signal's handler of the user) passes through. Either the handle has its
        flight then, or nothing of it will be sealed, and the same step may be asked for again; copies that were begun are
        waited for before their slot is used, given away or unmapped (`settle`).

        Args:
            commit_at: newest step at or below this one that is to be committed.
        Raises:
            CaptureError, BudgetError, Fenced: this rank gives the step up for all ranks, and the user must know.
        """
        before = self._start
        if before is not None and before.handle.step != handle.step:
            self._give_up(before.handle)
        self._start = start = Start(handle, None if before is None else before.copying)
        try:
            self._run(start, commit_at)
        except BaseException:
            if handle.flight is not None:
                self._under_way(handle.flight)
            elif start.copying is None and self._gate.flight is None:
                self._liaison.give_back_all()  # while the flight before this one is on its way, its slot is its own
            if handle.flight is not None or (handle.lost is not None and start.copying is None):
                self._start = None
            raise
        self._start = None

    def settle(self) -> None:
        """Wait until the evacuation on its way, if there is one, is held or lost, and no copy writes any more."""
        flight = self._gate.flight
        if flight is not None:
            flight.finish()
            flight.wait()
            self._gate.flight = None
        if self._start is not None:
            self._settle(self._start)

    def conclude(self) -> None:
        """The same, and a step that was interrupted before it was on its way is given up for all ranks."""
        self.settle()
        if self._start is not None:
            self._give_up(self._start.handle)
            self._start = None

    def end(self) -> None:
        """Nothing will be evacuated any more: the threads end."""
        self._landing.end()
        for port in self._ports.all():
            port.end()

    def _settle(self, start: Start) -> None:
        """Copies without a flight: wait until none writes any more. Only then is their slot given back, or unmapped."""
        if start.copying is not None:
            for port in self._ports.all():
                port.reach(port.record(port.side_stream()))
            self._liaison.give_back_all()
            start.copying = None

    def _give_up(self, handle: Handle) -> None:
        if handle.lost is None:
            self._lose(handle, "it was interrupted before it began")

    def _run(self, start: Start, commit_at: int) -> None:
        handle, began = start.handle, time.monotonic()
        self.settle()
        before, self._newest = self._newest, handle
        self._settled_stall_s = before.stall_s if before is not None and before.held else None
        try:
            captured = self._look()
            plan = self._planner.plan(captured.tensors)
            name = self._liaison.take(plan.image_bytes)
            slot = None if name is None else self._maps.get(name)
        except ours(HinanError, OSError) as error:
            if isinstance(error, Fenced):
                raise
            if isinstance(error, OSError):  # the arena was taken away under us
                self._lose(handle, f"its slot could not be mapped: {error}")
                self._liaison.give_back_all()
                return
            self._lose(handle, str(error))
            if isinstance(error, ArenaFull):  # asked for again at the next evacuation
                return
            raise
        if slot is None:
            self._lose(handle, self._liaison.why_none)
            return
        try:
            self._launch(start, plan, slot, captured, commit_at, began)
        except ours(Exception) as error:
            # No device memory for a bucket, say: that costs this step, not the training.
            self._lose(handle, f"the copy could not be started: {error!r}")
            self._settle(start)
            self._liaison.give_back(slot.name)
            self._liaison.want(plan.image_bytes)

    def _look(self) -> Captured:
        captured = self._capture.take()
        self._gate.learn(captured)
        return captured

    def _launch(self, start: Start, plan: Plan, slot: SlotMap, captured: Captured, commit_at: int, began: float) -> None:
        handle = start.handle
        lanes, gates = self._overlap.split(plan, captured)
        gated = {name for lane in lanes.values() for part in lane.later for name in part.members}
        watched = Watched((name, captured.tensors[name]) for name in gated)
        ungated = ((name, tensor) for name, tensor in captured.tensors.items() if name not in gated)
        at_once = Watched(ungated, exactly=self._check_bits)
        start.copying = copying = Copying(slot)
        enqueue(copying, plan, lanes, captured.tensors, self._ports.of)
        meanwhile = at_once.moved()
        # The values are of this moment: they are made text before the trainer goes on, as the ungated copies are.
        small = self._inventory.small(captured, plan.header_sum)
        text = msgspec.Raw(msgspec.json.encode(small))

        def end(flight: Flight) -> None:
            if not gates:
                handle.blocked_s = time.monotonic() - began
            try:
                if not self._was_spoilt(handle, flight, meanwhile):
                    self._seal(handle, plan, slot, text, commit_at)
            finally:
                self._liaison.give_back(slot.name)
            self._liaison.want(plan.image_bytes)

        flight = Flight(copying, gates, watched, end, check_bits=self._check_bits, hand_over=self._landing.put)
        handle.image_bytes, handle.ungated_bytes, handle.flight = plan.image_bytes, copying.ungated_bytes, flight
        handle.blocked_s = time.monotonic() - began
        self._under_way(flight)
        start.copying = None
        if not gates:
            self.settle()  # nothing may be read after this call: it is held now

    def _under_way(self, flight: Flight) -> None:
        self._gate.flight = flight
        flight.hand_over()

    def _seal(self, handle: Handle, plan: Plan, slot: SlotMap, small: msgspec.Raw, commit_at: int) -> None:
        record = SealedRecord(
            attempt=handle.attempt,
            step=handle.step,
            rank=self._identity.rank,
            world_size=self._identity.world_size,
            node=self._identity.place.node,
            image_bytes=plan.image_bytes,
            header_sum=plan.header_sum,
            small=small,
            commit_at=commit_at,
            held_at=now_text(),
            stall_s=handle.stall_s,
            settled_stall_s=self._settled_stall_s,
        )
        try:
            self._arena.publish(slot.name + SEALED, record)
        except ours(OSError, AlreadyPublished) as error:
            self._lose(handle, f"the seal could not be published: {error}")
            return
        handle.mark_held()
        log_aside(
            logging.INFO,
            "held step=%d attempt=%d rank=%d bytes=%d stall_s=%.4f slot=%s",
            handle.step, handle.attempt, self._identity.rank, plan.image_bytes, handle.stall_s, slot.name,
        )  # fmt: skip

    def _was_spoilt(self, handle: Handle, flight: Flight, meanwhile: str | None) -> bool:
        """Whether the copy is not the state of the boundary; the step is given up then.

        Args:
            meanwhile: name of a tensor that moved while the trainer stood in `evac.step()` and it was copied.
        """
        again = "from now on these copies are waited for"
        if isinstance(flight.failure, UnseenWrites):
            self._gate.distrust(flight.gates, str(flight.failure))
            self._lose(handle, f"{flight.failure}; {again}")
        elif flight.failure is not None:
            self._lose(handle, f"the copy failed ({flight.failure})")
        elif meanwhile is not None:
            self._lose(handle, f"{meanwhile} was changed by another thread while evac.step() copied it; let that one wait")
        elif flight.torn is not None:
            why = f"{flight.torn} was changed after evac.step() and before its gate, while it was read"
            self._gate.distrust(flight.gates, why)
            self._lose(handle, f"{why}; {again}. Call evac.gate() right before such a change")
        return handle.lost is not None

    def _lose(self, handle: Handle, reason: str) -> None:
        """Give a step up for all ranks (rule C2): nobody else needs to keep it."""
        handle.lost = reason
        record = LostRecord(handle.attempt, handle.step, self._identity.rank, reason)
        with suppress_ours(OSError, AlreadyPublished):
            self._arena.publish(step_directory(StepId(handle.attempt, handle.step)) + LOST, record)
        log_aside(logging.ERROR, "report lost step=%d rank=%d why=%s", handle.step, self._identity.rank, reason)
