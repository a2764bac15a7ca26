"""`hinan wire probe`: our own stopwatch for HBM to pinned RAM, beside those of others.

Owns:      what is measured (whole buffers, the copy engine, one GPU after the other) and the arithmetic.
Promises:  a rate is the median of several copies after one that is not counted. No device is touched here: a `Copier`
           does that, so that the rest is tested without one.
Never:     counts a copy that took no time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Protocol

import msgspec

from hinan.core.errors import ConfigError
from hinan.core.units import format_bytes
from hinan.wire.facts.model import Gpu, Machine, Measurement
from hinan.wire.facts.placement import node_for_slots

SOURCE = "hinan wire probe"


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """An accelerator as the measuring program sees it. `index` is that program's; only the address is the machine's."""

    index: int
    address: str | None
    name: str | None


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """Times of copies [s], in order, and the NUMA node on which the buffer lay (None: not known)."""

    seconds: tuple[float, ...]
    node: int | None


class Copier(Protocol):
    """What copies and looks at the clock of the device."""

    def devices(self) -> Sequence[Device]:
        """The devices that can be measured."""

    def copy(self, device: Device, size_bytes: int, count: int, cpus: Sequence[int]) -> Timed:
        """Copy a buffer from the device into pinned host memory `count` times.

        Args:
            cpus: where the buffer is to be allocated; empty: wherever.
        """


def measure(copier: Copier, machine: Machine, *, size_bytes: int, copies: int) -> Machine:
    """What `--from` reads: the devices, and one measurement each.

    Args:
        machine: this machine; says on which node the buffer of a device belongs.
        copies: counted ones; one more is made before them.
    Raises:
        ConfigError: there is no device, or nothing to copy.
    """
    if size_bytes <= 0 or copies <= 0:
        raise ConfigError("a probe copies at least one byte, at least once")
    devices = copier.devices()
    if not devices:
        raise ConfigError(
            "torch sees no GPU on this machine, so there is nothing to measure; `hinan wire` computes ceilings, and "
            "--from takes the JSON of nvbandwidth"
        )
    found = [m for device in devices for m in _measured(copier, machine, device, size_bytes, copies)]
    # Indices are torch's, which CUDA_VISIBLE_DEVICES changes: they stand only for devices without an address.
    gpus = tuple(Gpu(index=d.index, address=d.address, name=d.name) for d in devices)
    return Machine(gpus=gpus, measurements=tuple(found), sources=(SOURCE,))


def _measured(copier: Copier, machine: Machine, device: Device, size_bytes: int, copies: int) -> Iterator[Measurement]:
    timed = copier.copy(device, size_bytes, copies + 1, _cpus(machine, device))
    usable = [seconds for seconds in timed.seconds[1:] if seconds > 0]
    if usable:
        yield Measurement(
            what="d2h", engine="ce", bytes_per_s=size_bytes / median(usable), size_bytes=size_bytes,
            source=f"{SOURCE}, median of {len(usable)} x {format_bytes(size_bytes)}", gpu_index=device.index,
            gpu_address=device.address, gpu_name=device.name, numa_node=timed.node,
        )  # fmt: skip


def _cpus(machine: Machine, device: Device) -> Sequence[int]:
    wanted = node_for_slots(machine, device.address).node if device.address is not None else None
    return next((node.cpus or () for node in machine.nodes if node.index == wanted), ())
