"""The order on the device, asserted against a fake port that writes down every call."""

from __future__ import annotations

from typing import Any

import torch

from hinan.trainer.capture import Capture
from hinan.trainer.copying import Copying, SlotMap, enqueue
from hinan.trainer.device import COPY_CHUNK_BYTES, CpuPort
from hinan.trainer.layout import make_plan


class FakePort(CpuPort):
    """Streams and events are names; a copy is really done only when somebody joins an event recorded after it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.enqueued: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.events = 0

    def current_stream(self) -> Any:
        return "training"

    def side_stream(self) -> Any:
        return "side"

    def record(self, stream: Any) -> Any:
        self.events += 1
        self.calls.append(("record", stream, f"E{self.events - 1}"))
        return f"E{self.events - 1}"

    def wait(self, stream: Any, event: Any) -> None:
        self.calls.append(("wait", stream, event))

    def copy(self, stream: Any, destination: torch.Tensor, source: torch.Tensor) -> None:
        self.calls.append(("copy", stream, str(source.numel())))
        self.enqueued.append((destination, source))

    def join(self, event: Any) -> None:
        self.calls.append(("join", event))
        for destination, source in self.enqueued:
            super().copy(None, destination, source)


def started(gated: set[str], port: FakePort, tensors: dict[str, torch.Tensor]) -> tuple[Copying, bytearray]:
    plan = make_plan(Capture(tensors).take().tensors)
    image = bytearray(plan.image_bytes)
    return enqueue(plan, SlotMap("slot", memoryview(image)), lambda device: port, gated), image


def test_the_order_on_the_device() -> None:
    """E0 on the capturing stream, the side stream waits; ungated copies, E1, the capturing stream waits; gated, E2."""
    port = FakePort()
    started({"gated"}, port, {"gated": torch.ones(4), "plain": torch.ones(2)})
    assert port.calls == [
        ("record", "training", "E0"),
        ("wait", "side", "E0"),
        ("copy", "side", "8"),
        ("record", "side", "E1"),
        ("wait", "training", "E1"),
        ("copy", "side", "16"),
        ("record", "side", "E2"),
    ]


def test_held_only_after_the_last_event_and_sources_live_until_then() -> None:
    """Nothing is in the slot before E2 is joined; temporaries are referenced until it is, and let go then."""
    port = FakePort()
    copying, image = started(set(), port, {"t": torch.randn(3, 4).t()})
    assert not any(image[4096:])
    assert copying.keep_alive
    copying.join()
    assert port.calls[-1] == ("join", "E2")
    assert any(image[4096:])
    assert not copying.keep_alive


def test_device_copies_come_in_chunks() -> None:
    """On a device no single copy is larger than 32 MiB; on the host one long memmove is best."""
    assert COPY_CHUNK_BYTES == 32 << 20
    port = FakePort()
    started(set(), port, {"t": torch.zeros(9 << 20)})
    assert [c for c in port.calls if c[0] == "copy"] == [("copy", "side", str(36 << 20))]
