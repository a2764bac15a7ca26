"""One evacuation: capture, plan, take the leased slot, copy, seal. Or give it up, for all ranks.

Promises:  after `run` the handle is held or lost. Whatever goes wrong on the saving side costs this step, not the training;
           what is wrong with the state itself is raised.
"""

from __future__ import annotations

import logging
import time
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any

import msgspec
import torch

from hinan.core.errors import ArenaFull, Fenced, HinanError
from hinan.core.ids import StepId, step_directory
from hinan.formats.records import LostRecord, SealedRecord
from hinan.tiers.arena import LOST, SEALED, Arena
from hinan.tiers.publish import AlreadyPublished
from hinan.tiers.target import now_text
from hinan.trainer.capture import Capture, Captured
from hinan.trainer.copying import SlotMap, enqueue
from hinan.trainer.device import DevicePort, port_for
from hinan.trainer.handle import Handle
from hinan.trainer.identity import Identity
from hinan.trainer.layout import Plan, Planner
from hinan.trainer.liaison import Liaison
from hinan.trainer.slotmaps import SlotMaps

log = logging.getLogger("hinan")


class Evacuation:
    """Evacuates one state, again and again. Used by the training thread alone."""

    def __init__(
        self, identity: Identity, arena: Arena, maps: SlotMaps, liaison: Liaison, state: MutableMapping[str, Any]
    ) -> None:
        self._identity, self._arena, self._maps, self._liaison = identity, arena, maps, liaison
        self._capture, self._planner = Capture(state), Planner()
        self._ports: dict[torch.device, DevicePort] = {}

    def prepare(self) -> None:
        """Have a slot of the state's present size reserved and touched before it is needed.

        Raises:
            CaptureError: something in the state cannot be kept; better now than at the first evacuation.
        """
        self._liaison.want(self._planner.plan(self._capture.take().tensors).image_bytes)

    def run(self, handle: Handle, commit_at: int) -> None:
        """Evacuate the state as it is now.

        Args:
            commit_at: newest step at or below this one that is to be committed.
        Raises:
            CaptureError, BudgetError, Fenced: this rank gives the step up for all ranks, and the user must know.
        """
        began = time.monotonic()
        try:
            captured = self._capture.take()
            plan = self._planner.plan(captured.tensors)
            name = self._liaison.take(plan.image_bytes)
            slot = None if name is None else self._maps.get(name)
        except Fenced:
            raise
        except ArenaFull as error:  # asked for again at the next evacuation
            self._lose(handle, str(error))
            return
        except HinanError as error:
            self._lose(handle, str(error))
            raise
        except OSError as error:  # the arena was taken away under us
            self._lose(handle, f"its slot could not be mapped: {error}")
            return
        if slot is None:
            self._lose(handle, "no slot was free in time (the agent is slow or every slot is needed)")
            return
        try:
            enqueue(plan, slot, self._port).join()
            handle.image_bytes, handle.stall_s = plan.image_bytes, time.monotonic() - began
            self._seal(handle, plan, slot, captured, commit_at)
        finally:
            self._liaison.give_back(slot.name)
        self._liaison.want(plan.image_bytes)

    def _seal(self, handle: Handle, plan: Plan, slot: SlotMap, captured: Captured, commit_at: int) -> None:
        record = SealedRecord(
            attempt=handle.attempt,
            step=handle.step,
            rank=self._identity.rank,
            world_size=self._identity.world_size,
            node=self._identity.place.node,
            image_bytes=plan.image_bytes,
            header_sum=plan.header_sum,
            small=msgspec.Raw(msgspec.json.encode(captured.small)),
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
        log.info(
            "held step=%d attempt=%d rank=%d bytes=%d stall_s=%.4f slot=%s",
            handle.step, handle.attempt, self._identity.rank, plan.image_bytes, handle.stall_s, slot.name,
        )  # fmt: skip

    def _lose(self, handle: Handle, reason: str) -> None:
        """Give a step up for all ranks (rule C2): nobody else needs to keep it."""
        handle.lost = reason
        record = LostRecord(handle.attempt, handle.step, self._identity.rank, reason)
        with suppress(OSError, AlreadyPublished):
            self._arena.publish(step_directory(StepId(handle.attempt, handle.step)) + LOST, record)
        log.error("report lost step=%d rank=%d why=%s", handle.step, self._identity.rank, reason)

    def _port(self, device: torch.device) -> DevicePort:
        if device not in self._ports:
            self._ports[device] = port_for(device)
        return self._ports[device]
