"""Copies a plan's tensors into a slot, in the order that keeps both the device and the trainer safe.

    E0 on the capturing stream -> side stream waits E0
      ungated tensors first; E1 -> capturing stream waits E1      (order on the device, the host does not wait)
      gated tensors in chunks; E2
    held: after E2

References to sources and temporaries are kept until E2 has passed; nothing here calls record_stream.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from hinan.trainer.device import COPY_CHUNK_BYTES, DevicePort
from hinan.trainer.layout import Part, Plan

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
    """Copies that have been enqueued. `keep_alive` holds their sources until `join` has returned."""

    waits: list[tuple[DevicePort, Any]] = field(default_factory=list)
    keep_alive: list[torch.Tensor] = field(default_factory=list)

    def join(self) -> None:
        """Wait on the host until the last copy has left its device; then the sources may change."""
        for port, event in self.waits:
            port.join(event)
        self.keep_alive.clear()


def enqueue(plan: Plan, slot: SlotMap, ports: Ports, gated: Collection[str] = ()) -> Copying:
    """Start copying every part of a plan into a slot.

    Args:
        gated: entries that may be read until the gate; all others are ordered before the trainer's next operation.
    """
    slot.write_header(plan)
    copying = Copying()
    by_device: dict[torch.device, list[Part]] = {}
    for part in plan.parts:
        by_device.setdefault(part.tensor.device, []).append(part)
    for device, parts in by_device.items():
        port = ports(device)
        side, capturing = port.side_stream(), port.current_stream()
        port.wait(side, port.record(capturing))
        _copy(port, side, (p for p in parts if p.entry not in gated), plan, slot, copying)
        port.wait(capturing, port.record(side))
        _copy(port, side, (p for p in parts if p.entry in gated), plan, slot, copying)
        copying.waits.append((port, port.record(side)))
    return copying


def _copy(port: DevicePort, side: Any, parts: Iterable[Part], plan: Plan, slot: SlotMap, copying: Copying) -> None:
    for part in parts:
        entry = plan.header.by_name[part.entry]
        if entry.size_bytes == 0:
            continue
        source = source_bytes(part)
        copying.keep_alive += [part.tensor, source]
        target = slot.bytes_at(entry.offset, entry.size_bytes)
        for start in range(0, entry.size_bytes, _chunk_bytes(source)):
            stop = min(start + _chunk_bytes(source), entry.size_bytes)
            port.copy(side, target[start:stop], source[start:stop])


def _chunk_bytes(source: torch.Tensor) -> int:
    """On a device a large copy delays what training wants next; on the host one long memmove is best."""
    return COPY_CHUNK_BYTES if source.device.type != "cpu" else max(1, source.numel())


def source_bytes(part: Part) -> torch.Tensor:
    """The bytes of a part as a flat uint8 tensor on its device; a temporary where they do not lie in logical order."""
    tensor = part.tensor
    if part.raw_bytes is not None:
        storage = tensor.untyped_storage()
        start = tensor.data_ptr() - storage.data_ptr()
        flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
        return flat.set_(storage, start, (part.raw_bytes,))  # type: ignore[call-overload, no-any-return]
    settled = tensor.resolve_conj().resolve_neg().contiguous()
    return settled.reshape(-1).view(torch.uint8)
