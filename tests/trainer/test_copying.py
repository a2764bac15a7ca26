"""The order on the device, asserted against a fake device that writes down every call."""

from __future__ import annotations

import gc
import threading
import weakref
from contextlib import suppress

import pytest
import torch

from hinan.formats.image import SMALL_BYTES
from hinan.trainer.evacuating.copying import Copying, SlotMap, enqueue, lanes
from hinan.trainer.ports import hostport
from hinan.trainer.ports.hostport import HERE, CpuPort
from hinan.trainer.ports.pieces import BUCKET_BYTES, CHUNK_BYTES
from hinan.trainer.state.capture import Capture
from hinan.trainer.state.layout import Plan, make_plan
from tests.trainer.fakedevice import FakeDriver, FakePort
from tests.trainer.flights import interrupted


def started(gated: set[str], port: FakePort, tensors: dict[str, torch.Tensor]) -> tuple[Copying, bytearray]:
    plan = plan_of(tensors)
    image = bytearray(plan.image_bytes)
    slot = SlotMap("slot", memoryview(image))
    copying = Copying(slot)
    enqueue(copying, plan, lanes(plan, lambda device: port, gated), tensors, lambda device: port)
    return copying, image


def plan_of(tensors: dict[str, torch.Tensor]) -> Plan:
    return make_plan(Capture(tensors).take().tensors)


def copies(port: FakePort) -> list[int]:
    return [int(call[2]) for call in port.calls if call[0] == "copy"]


def test_the_order_on_the_device() -> None:
    """E0 on the capturing stream, the side stream waits; ungated copies, E1, the capturing stream waits; gated, E2."""
    port = FakePort(FakeDriver())
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


def test_the_gate_is_a_wait_on_the_device_never_on_the_host() -> None:
    """D: waiting on the host would end the trainer's run ahead of the device."""
    port = FakePort(FakeDriver())
    copying, _ = started({"t"}, port, {"t": torch.ones(4)})
    port.calls.clear()
    copying.hold_back()
    assert port.calls == [("wait", "training", "E2")]


def test_held_only_after_the_last_event_and_sources_live_until_then() -> None:
    """Nothing is in the slot before E2 is joined; sources are referenced until they are let go, also if replaced."""
    port = FakePort(FakeDriver())
    parameter = torch.nn.Parameter(torch.randn(1 << 10))
    old = weakref.ref(parameter.untyped_storage())
    wanted = parameter.detach().clone()
    copying, image = started({"p"}, port, {"p": parameter})
    parameter.data = torch.zeros(1 << 10)
    gc.collect()
    assert not any(image[4096:])
    copying.join()
    assert port.calls[-1] == ("join", "E2")
    assert bytes(image[4096 : 4096 + 4096]) == wanted.numpy().tobytes()
    port.enqueued.clear()
    copying.let_go()
    gc.collect()
    assert old() is None


def test_device_copies_come_in_chunks() -> None:
    """No single copy on a device is larger than 32 MiB."""
    port = FakePort(FakeDriver())
    started({"t"}, port, {"t": torch.zeros(9 << 20)})
    assert copies(port) == [CHUNK_BYTES, 4 << 20]
    assert CHUNK_BYTES == 32 << 20


def test_small_tensors_go_in_a_bucket() -> None:
    """A thousand small tensors of one dtype are one copy; a large one between them is not gathered."""
    port = FakePort(FakeDriver())
    tensors = {f"t{i}": torch.full((3,), float(i)) for i in range(1000)}
    tensors = {"t": torch.zeros(3), "large": torch.ones(SMALL_BYTES)} | tensors
    copying, image = started(set(), port, tensors)
    assert sorted(copies(port)) == [12 * 1001, 4 * SMALL_BYTES]
    copying.join()
    plan = plan_of(tensors)
    for name in ("t0", "t7", "t999"):
        entry = plan.header.by_name[name]
        assert image[entry.offset : entry.offset + 12] == tensors[name].numpy().tobytes()


def test_a_bucket_is_bounded() -> None:
    """Device memory that an evacuation adds stays within the stated size."""
    port = FakePort(FakeDriver())
    nearly = SMALL_BYTES // 4 - 1
    started(set(), port, {f"t{i}": torch.zeros(nearly) for i in range(70)})
    assert sum(copies(port)) == 70 * nearly * 4
    buckets = {source.untyped_storage().nbytes() for _, source in port.enqueued}
    assert max(buckets) <= BUCKET_BYTES
    assert len(buckets) > 1


def test_pinning_goes_in_chunks_and_is_undone_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """One registration a chunk; if one is refused all are taken back, the error is cleared, and copies bounce."""
    monkeypatch.setattr("hinan.trainer.ports.device.PIN_CHUNK_BYTES", 1 << 10)
    driver = FakeDriver()
    port = FakePort(driver)
    port.pin(4096, 2500)
    assert driver.registered == {4096: 1024, 5120: 1024, 6144: 452}
    assert ("device",) in port.calls
    port.unpin(4096)
    assert not driver.registered
    driver = FakeDriver(refuse_at=2)
    port = FakePort(driver)
    port.pin(4096, 2500)
    assert not driver.registered
    assert driver.error == 0
    assert (port.mode, port.overlaps) == ("bounce", False)
    assert "452 bytes" in port.why


def test_bouncing_is_whole_when_it_returns() -> None:
    """Without pinned slots the bytes go through two pinned chunks; nothing is left on its way."""
    port = FakePort(None)
    tensors = {"t": torch.arange(20 << 20, dtype=torch.float32), "s": torch.ones(3)}
    _, image = started(set(), port, tensors)
    entry = plan_of(tensors).header.by_name["t"]
    assert image[entry.offset : entry.offset + entry.size_bytes] == tensors["t"].numpy().tobytes()
    assert max(copies(port)) == CHUNK_BYTES


def test_who_is_interrupted_in_the_ungated_copy_leaves_its_source_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a state_dict() makes anew is nobody else's: its memory would be freed under the copy."""
    port, go, move = CpuPort(), threading.Event(), hostport.memmove
    monkeypatch.setattr(hostport, "memmove", lambda *arguments: (go.wait(10), move(*arguments)))
    tensors = {"t": torch.ones(4)}
    plan, source = plan_of(tensors), weakref.ref(tensors["t"].untyped_storage())
    image = bytearray(plan.image_bytes)
    copying = Copying(SlotMap("slot", memoryview(image)))
    with monkeypatch.context() as patch:
        patch.setattr(port, "wait", lambda stream, event: interrupted() if stream is HERE else None)
        with suppress(TimeoutError):
            enqueue(copying, plan, lanes(plan, lambda device: port), tensors, lambda device: port)
    del tensors
    assert source() is not None
    go.set()
    port.reach(port.record(port.side_stream()))
    del copying
    assert source() is None
    port.end()
