"""Evacuate a state into memory and put it into another one: capture, layout, copy and install without processes."""

from __future__ import annotations

from typing import Any

import msgspec
import torch

from hinan.tiers.mapping import read_header
from hinan.trainer.evacuating.copying import Copying, SlotMap, enqueue, lanes
from hinan.trainer.ports.device import DevicePort
from hinan.trainer.ports.hostport import CpuPort
from hinan.trainer.restoring.install import Matcher
from hinan.trainer.restoring.saved import SavedTensors
from hinan.trainer.state.capture import Capture
from hinan.trainer.state.inventory import Inventory
from hinan.trainer.state.layout import Plan, make_plan


def evacuate(state: dict[str, Any], port: DevicePort | None = None) -> tuple[bytearray, dict[str, Any], Plan]:
    """(image, small values as read back from JSON, plan) of a state."""
    captured = Capture(state).take()
    plan = make_plan(captured.tensors)
    image = bytearray(plan.image_bytes)
    chosen = port or CpuPort()
    slot = SlotMap("slot", memoryview(image))
    copying = Copying(slot)
    enqueue(copying, plan, lanes(plan, lambda device: chosen), captured.tensors, lambda device: chosen)
    copying.join()
    small = Inventory(state).small(captured, plan.header_sum)
    return image, msgspec.json.decode(msgspec.json.encode(small)), plan


def saved_tensors(image: bytearray) -> SavedTensors:
    """The tensors of an image."""
    view = memoryview(image)
    return SavedTensors(view, read_header(view, "image")[1])


def install(image: bytearray, small: dict[str, Any], state: dict[str, Any]) -> None:
    """Match and write."""
    for write in Matcher(saved_tensors(image), state).match(small["state"], state):
        write()


def through(saved: dict[str, Any], live: dict[str, Any]) -> dict[str, Any]:
    """Evacuate one state and install it into another; the other."""
    image, small, _ = evacuate(saved)
    install(image, small, live)
    return live


def bits(tensor: torch.Tensor) -> bytes:
    """A tensor's bits in logical order."""
    settled = tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format).reshape(-1)
    return settled.view(torch.uint8).numpy().tobytes()


def trained(optimizer: type[torch.optim.Optimizer] = torch.optim.AdamW, steps: int = 3, **options: Any) -> dict[str, Any]:
    """A model and optimizer after some steps."""
    torch.manual_seed(steps)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    optim = optimizer(model.parameters(), lr=0.01, **options)
    for _ in range(steps):
        model(torch.randn(8, 4)).square().mean().backward()
        optim.step()
        optim.zero_grad()
    return {"model": model, "optim": optim}
