"""Copies a plan's tensors into a slot, in the order that keeps both the device and the trainer safe.

    E0 on the capturing stream -> side stream waits E0
      ungated tensors first; E1 -> capturing stream waits E1      (order on the device, the host does not wait)
      gated tensors in chunks; E2
    gate: the stream that trains waits E2; held: after E2

References to sources and temporaries are kept until E2 has passed; nothing here calls record_stream.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from hinan.trainer.ports.device import DevicePort
from hinan.trainer.ports.pieces import Piece, piece
from hinan.trainer.state.layout import Part, Plan

Ports = Callable[[torch.device], DevicePort]


class SlotMap:
    """A slot mapped for writing by its one owner, with its header written once.

    Ownership: `view` keeps the mapping alive as long as this object; tensors over it must not outlive it.
    """

    def __init__(self, name: str, view: memoryview, inode: int = 0) -> None:
        self.name = name
        self.view = view
        self.inode = inode
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(view))
        self._header_sum = ""

    def write_header(self, plan: Plan) -> None:
        """Put the header in place, once for each layout."""
        if self._header_sum != plan.header_sum:
            self.view[: len(plan.raw_header)] = plan.raw_header
            # The padding behind the last tensor belongs to the image too; zero by creation, and nobody writes it.
            self._header_sum = plan.header_sum

    def bytes_at(self, offset: int, size_bytes: int) -> torch.Tensor:
        """A uint8 tensor over a range of the slot."""
        return torch.frombuffer(self.view, dtype=torch.uint8, count=size_bytes, offset=offset)


@dataclass
class Copying:
    """Copies that have been enqueued into a slot.

    Attributes:
        slot: None when the copies have passed.
        gated: the pieces that may still be read; their sources must not change before the gate.
        ungated_bytes: what was copied before training goes on.
    """

    slot: SlotMap | None
    waits: list[tuple[DevicePort, Any]] = field(default_factory=list)
    gated: list[Piece] = field(default_factory=list)
    ungated_bytes: int = 0
    _keep_alive: list[object] = field(default_factory=list)
    _sources: Mapping[str, torch.Tensor] = field(default_factory=dict)

    def hold_back(self) -> None:
        """The gate: whatever the trainer enqueues from now on comes after the last copy. Only host memory is waited for."""
        for port, event in self.waits:
            port.wait(port.current_stream(), event)

    def join(self) -> None:
        """Wait on the host until the last copy has left its device; raises what went wrong on the way."""
        for port, event in self.waits:
            port.join(event)

    def wait(self) -> None:
        """The same, but says nothing of what went wrong: that is for the one who joins."""
        for port, event in self.waits:
            port.reach(event)

    def moved_away(self) -> str | None:
        """Name of an entry whose memory was taken from under it while it was read (shared, resized).

        A parameter that merely got another storage is none: the old one was kept for us.
        """
        return next((p.entry for p in self.gated if p.tensor.data_ptr() != p.address), None)

    def let_go(self) -> None:
        """The copies have passed: sources, temporaries and the slot are no longer referenced."""
        self.gated, self._keep_alive = [], []
        self.slot = None


@dataclass(frozen=True)
class Lane:
    """What one device sends, in image order. Made once for a plan, used for each evacuation.

    Attributes:
        fixed: flat host memory that is copied at once: nothing but its address is needed.
        now: the other parts that are copied before training goes on.
        later: parts that may be read until the gate.
    """

    fixed: tuple[Piece, ...]
    now: tuple[Part, ...]
    later: tuple[Part, ...]


Lanes = Mapping[torch.device, Lane]


def lanes(plan: Plan, ports: Ports, gated: Collection[str] = ()) -> Lanes:
    """Sort the parts of a plan by device, and by when they must have been copied.

    Args:
        gated: entries that may be read until the gate; all others are ordered before the trainer's next operation.
    """
    made = {}
    for device in dict.fromkeys(part.device for part in plan.parts):
        here = [part for part in plan.parts if part.device == device]
        now = [part for part in here if part.entry not in gated]
        by_address = ports(device).by_address
        bare = [part for part in now if by_address and part.is_flat]
        made[device] = Lane(
            tuple(Piece(p.entry, p.offset, p.size_bytes, _NOTHING, p.address, True) for p in bare),
            tuple(part for part in now if not (by_address and part.is_flat)),
            tuple(part for part in here if part.entry in gated),
        )
    return made


_NOTHING = torch.empty(0)


def enqueue(copying: Copying, plan: Plan, sorted_parts: Lanes, tensors: Mapping[str, torch.Tensor], ports: Ports) -> None:
    """Start copying every part of a plan into a slot.

    Args:
        copying: of this slot, with nothing begun. It is the caller's: if this is interrupted, it has what must be kept
            until the streams have passed what was enqueued by then.
        tensors: the live tensors the plan was made for.
    """
    slot = copying.slot
    assert slot is not None
    slot.write_header(plan)
    # What is read by its address alone may have been made for this evacuation: who unwinds the caller would free it.
    copying._sources = tensors
    for device, lane in sorted_parts.items():
        now = [*lane.fixed, *(piece(part, tensors[part.members[0]], outlives=False) for part in lane.now)]
        later = [piece(part, tensors[part.members[0]], outlives=True) for part in lane.later]
        port = ports(device)
        side, capturing = port.side_stream(), port.current_stream()
        port.wait(side, port.record(capturing))
        copying._keep_alive.append(now)
        copying._keep_alive.append(port.copy(side, slot, now))
        port.wait(capturing, port.record(side))
        copying.gated += later
        copying._keep_alive.append(port.copy(side, slot, later))
        copying.waits.append((port, port.record(side)))
        copying.ungated_bytes += sum(p.size_bytes for p in now)
    copying._sources = {}
