"""Copies from an accelerator into pinned memory under the device's own clock: the effect behind `hinan wire probe`."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import torch

from hinan.host.numa import KernelMemory
from hinan.host.signals import suppress_ours
from hinan.trainer.ports.device import pci_address
from hinan.wire.checks.probe import Device, Timed


class TorchCopier:
    """Any device that torch.accelerator knows, one after the other."""

    def devices(self) -> Sequence[Device]:
        accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        if accelerator is None:
            return []
        found = [torch.device(accelerator.type, index) for index in range(torch.accelerator.device_count())]
        return [Device(index=d.index, address=pci_address([d]), name=_name(d)) for d in found]

    def copy(self, device: Device, size_bytes: int, count: int, cpus: Sequence[int]) -> Timed:
        memory = KernelMemory()
        torch.accelerator.set_device_index(device.index)
        source = torch.empty(size_bytes, dtype=torch.uint8, device=torch.accelerator.current_accelerator())
        with contextlib.ExitStack() as here:
            if cpus:
                with suppress_ours(OSError):  # not allowed there: the node that is found is told with the result
                    here.enter_context(memory.near(cpus))
            target = torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)
        times = [_time_s(target, source) for _ in range(count)]
        return Timed(seconds=tuple(times), node=memory.node_at(target.data_ptr()))


def _time_s(target: torch.Tensor, source: torch.Tensor) -> float:
    began, ended = torch.Event(source.device, enable_timing=True), torch.Event(source.device, enable_timing=True)
    began.record()
    target.copy_(source, non_blocking=True)
    ended.record()
    ended.synchronize()
    return float(began.elapsed_time(ended)) / 1e3


def _name(device: torch.device) -> str | None:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else None
