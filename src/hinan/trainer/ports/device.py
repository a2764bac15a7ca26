"""The device port: streams, events and copies into host memory, for the CPU and for any torch.accelerator.

Two ways to make host memory reachable for DMA: *register* (the slot itself is pinned, in chunks) and *bounce* (copies go
through two pinned chunks of torch's own, and a host copy; nothing goes on in the background then). Which one was taken,
and why, can be asked (`mode`, `why`).
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import torch

from hinan.trainer.ports.hostport import CpuPort
from hinan.trainer.ports.pieces import CHUNK_BYTES, Piece, transfers

PIN_CHUNK_BYTES = 1 << 30
RING_CHUNKS = 2
"""Pinned chunks that copies go through where a slot cannot be pinned: one is filled while the other is emptied."""


class Destination(Protocol):
    """A mapped slot."""

    address: int

    def bytes_at(self, offset: int, size_bytes: int) -> torch.Tensor:
        """A uint8 tensor over a range of it."""


class DevicePort(Protocol):
    """What an evacuation needs of a device. Streams and events are opaque to the caller."""

    mode: str
    why: str
    by_address: bool
    """Whether flat memory can be copied by its address alone."""

    @property
    def overlaps(self) -> bool:
        """Whether copies go on while the host does other things."""

    def current_stream(self) -> Any:
        """The stream that training enqueues on."""

    def side_stream(self) -> Any:
        """The one stream of ours on this device."""

    def record(self, stream: Any) -> Any:
        """An event after everything enqueued on `stream` so far."""

    def wait(self, stream: Any, event: Any) -> None:
        """Make `stream` wait for `event`; on a device the host does not wait."""

    def copy(self, stream: Any, slot: Destination, pieces: Sequence[Piece]) -> list[torch.Tensor]:
        """Enqueue copies into a slot, in order; temporaries that must live until they have passed."""

    def reach(self, event: Any) -> None:
        """Wait on the host for an event."""

    def join(self, event: Any) -> None:
        """The same, and raise what went wrong before it."""

    def pin(self, address: int, size_bytes: int) -> None:
        """Make a mapped slot reachable for DMA, all of it or none."""

    def unpin(self, address: int) -> None:
        """Undo `pin`."""

    def end(self) -> None:
        """No copy will follow: threads and pinned chunks go."""


class AcceleratorPort:
    """CUDA, ROCm and others, through torch.Stream and torch.Event."""

    by_address = False

    def __init__(self, device: torch.device, cudart: Any | None) -> None:
        """
        Args:
            cudart: what can pin foreign memory; None where the device has no such call.
        """
        self._device, self._cudart = device, cudart
        self._side = self._new_stream()
        self._pinned: dict[int, list[int]] = {}
        self._ring: list[torch.Tensor] = []
        self.mode = "register" if cudart is not None else "bounce"
        self.why = (
            "slots are pinned by cudaHostRegister" if cudart is not None else f"{device.type} cannot pin foreign memory"
        )

    # What a fake replaces, to write down the order of calls on a machine without a device.

    def _new_stream(self) -> Any:
        return torch.Stream(self._device)

    def _new_event(self) -> Any:
        return torch.Event(self._device, blocking=True)

    def _new_chunk(self) -> torch.Tensor:
        return torch.empty(CHUNK_BYTES, dtype=torch.uint8, pin_memory=True)

    def _send(self, target: torch.Tensor, source: torch.Tensor) -> None:
        target.copy_(source, non_blocking=True)

    def _set_device(self) -> None:
        torch.accelerator.set_device_index(self._device.index or 0)

    @property
    def overlaps(self) -> bool:
        return self.mode == "register"

    def current_stream(self) -> Any:
        return torch.accelerator.current_stream(self._device)

    def side_stream(self) -> Any:
        return self._side

    def record(self, stream: Any) -> Any:
        event = self._new_event()
        event.record(stream)
        return event

    def wait(self, stream: Any, event: Any) -> None:
        stream.wait_event(event)

    def reach(self, event: Any) -> None:
        event.synchronize()

    def join(self, event: Any) -> None:
        event.synchronize()

    def copy(self, stream: Any, slot: Destination, pieces: Sequence[Piece]) -> list[torch.Tensor]:
        with stream:
            if self.mode == "bounce":
                self._bounce(stream, slot, pieces)
                return []
            sources = []
            for offset, source in transfers(pieces):
                self._send(slot.bytes_at(offset, len(source)), source)
                sources.append(source)
            return sources

    def _bounce(self, stream: Any, slot: Destination, pieces: Sequence[Piece]) -> None:
        """While the device fills one pinned chunk, the host copies the other one on. Done when it returns."""
        self._ring = self._ring or [self._new_chunk() for _ in range(RING_CHUNKS)]
        flying: deque[tuple[Any, torch.Tensor, torch.Tensor]] = deque()

        def land() -> None:
            event, chunk, target = flying.popleft()
            event.synchronize()
            ctypes.memmove(target.data_ptr(), chunk.data_ptr(), len(target))

        for number, (offset, source) in enumerate(transfers(pieces)):
            if len(flying) == len(self._ring):
                land()
            chunk = self._ring[number % len(self._ring)][: len(source)]
            self._send(chunk, source)
            flying.append((self.record(stream), chunk, slot.bytes_at(offset, len(source))))
        while flying:
            land()

    def pin(self, address: int, size_bytes: int) -> None:
        if self._cudart is None or address in self._pinned:
            return
        self._set_device()  # a helper thread starts with device 0
        done: list[int] = []
        for start in range(address, address + size_bytes, PIN_CHUNK_BYTES):
            length = min(PIN_CHUNK_BYTES, address + size_bytes - start)
            code = int(self._cudart.cudaHostRegister(start, length, 0))
            if code != 0:
                # All or nothing: a half-pinned slot would be copied at two speeds. The sticky error is cleared too.
                self._unregister(done)
                self._clear_error()
                self.mode, self.why = "bounce", f"cudaHostRegister of {length} bytes failed with code {code}"
                return
            done.append(start)
        self._pinned[address] = done

    def unpin(self, address: int) -> None:
        self._unregister(self._pinned.pop(address, []))

    def end(self) -> None:
        self._ring = []

    def _unregister(self, starts: Sequence[int]) -> None:
        for start in starts:
            self._cudart.cudaHostUnregister(start)  # type: ignore[union-attr]

    def _clear_error(self) -> None:
        """The next kernel launch of the trainer must not meet the error of a refused registration."""
        if hasattr(self._cudart, "cudaGetLastError"):
            self._cudart.cudaGetLastError()  # type: ignore[union-attr]


def _cudart(device: torch.device) -> Any | None:
    return torch.cuda.cudart() if device.type == "cuda" else None  # type: ignore[no-untyped-call]


def pci_address(devices: Iterable[torch.device]) -> str | None:
    """PCI address (`0000:19:00.0`) of the one CUDA device among these; None for none, several, or no known place."""
    accelerators = [device for device in devices if device.type == "cuda"]
    if len(accelerators) != 1:
        return None
    return _address(torch.cuda.get_device_properties(accelerators[0]))


def _address(properties: Any) -> str | None:
    """From attributes that torch has (torch.numa.binding reads them too) and does not declare."""
    try:
        return f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"
    except AttributeError:
        return None


def port_for(device: torch.device) -> DevicePort:
    """The port of a device. One per device and evacuator: it owns a stream."""
    return CpuPort() if device.type == "cpu" else AcceleratorPort(device, _cudart(device))
