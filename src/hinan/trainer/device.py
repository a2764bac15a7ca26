"""The device port: streams, events and copies into host memory, for the CPU and for any torch.accelerator.

Two ways to make host memory reachable for DMA: *register* (the slot itself is pinned, in chunks) and *bounce* (copies go
through pinned chunks of torch's own, and a host copy). Which one was taken, and why, can be asked (`mode`, `why`).
"""

from __future__ import annotations

import ctypes
from typing import Any, Protocol

import torch

PIN_CHUNK_BYTES = 1 << 30
COPY_CHUNK_BYTES = 32 << 20


class DevicePort(Protocol):
    """What an evacuation needs of a device. Streams and events are opaque to the caller."""

    mode: str
    why: str

    def current_stream(self) -> Any:
        """The stream that training enqueues on."""

    def side_stream(self) -> Any:
        """The one stream of ours on this device."""

    def record(self, stream: Any) -> Any:
        """An event after everything enqueued on `stream` so far."""

    def wait(self, stream: Any, event: Any) -> None:
        """Make `stream` wait for `event` on the device; the host does not wait."""

    def copy(self, stream: Any, destination: torch.Tensor, source: torch.Tensor) -> None:
        """Enqueue a copy of a flat or shaped source into host memory of the same shape and dtype."""

    def join(self, event: Any) -> None:
        """Wait on the host for an event."""

    def pin(self, address: int, size_bytes: int) -> None:
        """Make a mapped slot reachable for DMA, all of it or none."""

    def unpin(self, address: int, size_bytes: int) -> None:
        """Undo `pin`."""


class CpuPort:
    """Host memory to host memory: memmove in one thread, done when it returns."""

    mode, why = "memmove", "the state is in host memory"

    def current_stream(self) -> Any:
        return None

    def side_stream(self) -> Any:
        return None

    def record(self, stream: Any) -> Any:
        return None

    def wait(self, stream: Any, event: Any) -> None:
        return None

    def copy(self, stream: Any, destination: torch.Tensor, source: torch.Tensor) -> None:
        copy_bits(destination, source)

    def join(self, event: Any) -> None:
        return None

    def pin(self, address: int, size_bytes: int) -> None:
        return None

    def unpin(self, address: int, size_bytes: int) -> None:
        return None


def copy_bits(destination: torch.Tensor, source: torch.Tensor) -> None:
    """Copy between host tensors of equal shape and dtype, bit for bit; one memmove where both are contiguous."""
    lazy = any(t.is_conj() or t.is_neg() for t in (destination, source))
    if destination.is_contiguous() and source.is_contiguous() and not lazy:
        # Why: memmove releases the GIL and is about twice as fast as a single-threaded torch copy.
        ctypes.memmove(destination.data_ptr(), source.data_ptr(), source.numel() * source.element_size())
    else:
        destination.copy_(source)


class AcceleratorPort:
    """CUDA, ROCm and others, through torch.Stream and torch.Event."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._side = torch.Stream(device)
        self._cudart = _cudart(device)
        self.mode = "register" if self._cudart is not None else "bounce"
        self.why = (
            "slots are pinned by cudaHostRegister"
            if self._cudart is not None
            else f"{device.type} cannot pin foreign memory"
        )

    def current_stream(self) -> Any:
        return torch.accelerator.current_stream(self._device)

    def side_stream(self) -> Any:
        return self._side

    def record(self, stream: Any) -> Any:
        event = torch.Event(self._device, blocking=True)
        event.record(stream)
        return event

    def wait(self, stream: Any, event: Any) -> None:
        stream.wait_event(event)

    def copy(self, stream: Any, destination: torch.Tensor, source: torch.Tensor) -> None:
        with stream:
            destination.copy_(source, non_blocking=self.mode == "register")

    def join(self, event: Any) -> None:
        event.synchronize()

    def pin(self, address: int, size_bytes: int) -> None:
        if self._cudart is None:
            return
        torch.accelerator.set_device_index(self._device.index or 0)
        done: list[tuple[int, int]] = []
        for start in range(address, address + size_bytes, PIN_CHUNK_BYTES):
            length = min(PIN_CHUNK_BYTES, address + size_bytes - start)
            if int(self._cudart.cudaHostRegister(start, length, 0)) != 0:
                # All or nothing: a half-pinned slot would be copied at two speeds. The sticky error is cleared too.
                for pinned, _ in done:
                    self._cudart.cudaHostUnregister(pinned)
                self.mode, self.why = "bounce", f"cudaHostRegister of {length} bytes failed"
                return
            done.append((start, length))

    def unpin(self, address: int, size_bytes: int) -> None:
        if self._cudart is not None and self.mode == "register":
            for start in range(address, address + size_bytes, PIN_CHUNK_BYTES):
                self._cudart.cudaHostUnregister(start)


def _cudart(device: torch.device) -> Any | None:
    return torch.cuda.cudart() if device.type == "cuda" else None  # type: ignore[no-untyped-call]


def port_for(device: torch.device) -> DevicePort:
    """The port of a device. One per device and evacuator: it owns a stream."""
    return CpuPort() if device.type == "cpu" else AcceleratorPort(device)
