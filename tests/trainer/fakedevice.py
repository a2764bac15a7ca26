"""A device that only writes down what it is told; its copies are done when an event recorded after them is joined."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from hinan.trainer.ports.device import AcceleratorPort


class FakeEvent:
    """Knows how many copies were enqueued before it."""

    def __init__(self, port: FakePort) -> None:
        self._port, self.name, self._copies = port, "", 0

    def record(self, stream: Any) -> None:
        self.name = f"E{self._port.events}"
        self._port.events += 1
        self._copies = len(self._port.enqueued)
        self._port.calls.append(("record", str(stream), self.name))

    def synchronize(self) -> None:
        self._port.calls.append(("join", self.name))
        self._port.copy_up_to(self._copies)


class FakeStream:
    """A name that can be entered and told to wait."""

    def __init__(self, port: FakePort, name: str) -> None:
        self._port, self._name = port, name

    def __str__(self) -> str:
        return self._name

    def __enter__(self) -> None:
        self._port.inside.append(self._name)

    def __exit__(self, *error: object) -> None:
        self._port.inside.pop()

    def wait_event(self, event: FakeEvent) -> None:
        self._port.calls.append(("wait", self._name, event.name))


class FakeDriver:
    """What pins foreign memory. Refuses the registration of that number."""

    def __init__(self, refuse_at: int = -1) -> None:
        self.refuse_at = refuse_at
        self.registered: dict[int, int] = {}
        self.calls = 0
        self.error = 0

    def cudaHostRegister(self, address: int, size_bytes: int, flags: int) -> int:
        self.calls += 1
        if self.calls - 1 == self.refuse_at:
            self.error = 2
            return 2
        self.registered[address] = size_bytes
        return 0

    def cudaHostUnregister(self, address: int) -> int:
        del self.registered[address]
        return 0

    def cudaGetLastError(self) -> int:
        error, self.error = self.error, 0
        return error


class FakePort(AcceleratorPort):
    """The port's own order of calls, with streams and events that are names."""

    def __init__(self, driver: FakeDriver | None = None) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.enqueued: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.inside: list[str] = []
        self.events = 0
        self._done = 0
        super().__init__(torch.device("cpu"), driver)
        self._training = FakeStream(self, "training")

    def _new_stream(self) -> Any:
        return FakeStream(self, "side")

    def _new_event(self) -> Any:
        return FakeEvent(self)

    def _new_chunk(self) -> torch.Tensor:
        return torch.empty(32 << 20, dtype=torch.uint8)

    def _set_device(self) -> None:
        self.calls.append(("device",))

    def current_stream(self) -> Any:
        return self._training

    def _send(self, target: torch.Tensor, source: torch.Tensor) -> None:
        self.calls.append(("copy", self.inside[-1], str(len(source))))
        self.enqueued.append((target, source))

    def copy_up_to(self, number: int) -> None:
        """The device has worked until here."""
        for target, source in self.enqueued[self._done : number]:
            ctypes.memmove(target.data_ptr(), source.data_ptr(), len(source))
        self._done = max(self._done, number)
