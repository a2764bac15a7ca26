"""Which measurement speaks for a GPU's evacuation.

Owns:      the choice among imported measurements.
Promises:  pinned device-to-host copies by the copy engine only; never a value of another GPU or of a kernel copy, nor
           of a log that names another product. Of a
           sweep over sizes it is the plateau, not the luckiest point; sizes too small to fill a link tell nothing of it,
           so a sweep that was cut before its large sizes gives no figure instead of a low one.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hinan.wire.facts.identity import gpu_name
from hinan.wire.facts.memo import remembered
from hinan.wire.facts.model import Gpu, Machine, Measurement
from hinan.wire.facts.numbering import is_reordered, number_of, surely_differ, vendor_of_gpu_name

NO_HOST_LINK_BYTES_PER_S = 1e12
"""Twice NVLink-C2C: what a log calls faster is a copy within a device, under a heading that was lost."""

ALL_AT_ONCE = "d2h_all"

MIN_COPY_S = 250e-6
"""A copy has a fixed cost of about 10 us (launch, first byte): below 4 % of a copy that takes this long."""


def measurements_of(machine: Machine, gpu: Gpu, what: str = "d2h") -> tuple[Measurement, ...]:
    """Copy-engine measurements of this GPU, by address where the measurement has one, else by index."""
    return tuple(
        m
        for m in machine.measurements
        if m.what == what and m.engine != "sm" and 0 < m.bytes_per_s < NO_HOST_LINK_BYTES_PER_S
        and _names_place(machine, gpu, m) and not _is_another(machine, gpu, m)
    )  # fmt: skip


def strangers(machine: Machine, gpu: Gpu) -> tuple[Measurement, ...]:
    """Measurements under this GPU's number or address that are surely of another product; one of each source and name."""
    found = {
        (m.source, m.gpu_name): m
        for m in machine.measurements
        if m.gpu_name and _names_place(machine, gpu, m) and _is_another(machine, gpu, m)
    }
    return tuple(found.values())


def without_place(machine: Machine) -> tuple[str, ...]:
    """Sources of measurements that name GPUs by numbers only, where numbers have two orders."""
    numbered = [m for m in machine.measurements if m.gpu_index is not None and not m.gpu_address]
    return tuple(dict.fromkeys(m.source for m in numbered if is_reordered(machine.gpus, _vendor_of(m))))


def _names_place(machine: Machine, gpu: Gpu, m: Measurement) -> bool:
    """Is it of this GPU by address, where it has one, else by the number that its tool gives to this GPU?"""
    if m.gpu_address and gpu.address:
        return m.gpu_address == gpu.address
    vendor = _vendor_of(m)
    if is_reordered(machine.gpus, vendor):
        return False
    absent = all(other.vendor_id not in (vendor, None) for other in machine.gpus)  # then it is another machine's log
    number = gpu.index if absent else number_of(machine.gpus, gpu, vendor)
    return m.gpu_index is not None and m.gpu_index == number


def _is_another(machine: Machine, gpu: Gpu, m: Measurement) -> bool:
    function = machine.functions.get(gpu.address or "")
    ids = (function.vendor_id, function.device_id) if function else (gpu.vendor_id, None)
    if None not in (_vendor_of(m), ids[0]) and _vendor_of(m) != ids[0]:
        return True
    if m.gpu_name and "name" in gpu.disputed:  # logs of two products under one number: nobody knows which is here
        return True
    return surely_differ(m.gpu_name, gpu.name, function.name if function else None, gpu_name(*ids))


def _vendor_of(m: Measurement) -> int | None:
    return m.vendor_id or vendor_of_gpu_name(m.gpu_name)


def best_measurement(machine: Machine, gpu: Gpu, near: Sequence[int], what: str = "d2h") -> Measurement | None:
    """The fastest plateau on the GPU's own nodes, else of logs that tell no node; on any where the machine tells none.

    Never one of another node: what that costs is not known, and it is no word on the GPU's own way.
    """
    found = tuple(m for m in measurements_of(machine, gpu, what) if _fills_the_link(m))
    if near:
        local = tuple(m for m in found if m.numa_node in near)
        found = local or tuple(m for m in found if m.numa_node is None)
    return _fastest(found)


def only_elsewhere(machine: Machine, gpu: Gpu, near: Sequence[int]) -> tuple[Measurement, ...]:
    """Measurements of this GPU when all of them are of other nodes than its near ones; one of each source and node."""
    found = [m for m in measurements_of(machine, gpu) if _fills_the_link(m)]
    if not near or any(m.numa_node in (*near, None) for m in found):
        return ()
    return tuple({(m.source, m.numa_node): m for m in found}.values())


def _fastest(found: Sequence[Measurement]) -> Measurement | None:
    return max(_plateaus(found), key=lambda m: m.bytes_per_s, default=None)


def _plateaus(found: Sequence[Measurement], *, at_least: bool = False) -> list[Measurement]:
    """One of each source and node."""
    groups: dict[tuple[str, int | None], list[Measurement]] = {}
    for m in found:
        groups.setdefault((m.source, m.numa_node), []).append(m)
    return [_plateau(group, at_least=at_least) for group in groups.values()]


def measured_at_once(machine: Machine, gpu: Gpu) -> Measurement | None:
    """The GPU's rate while all others evacuate too; None where no run of a stopwatch was on all of them.

    Of several runs the least: what each GPU got at best in another run it did not get together with the best of the others.
    """
    found = _plateaus(_on_all(machine, gpu), at_least=True)
    return min(found, key=lambda m: m.bytes_per_s, default=None)


def runs_at_once(machine: Machine) -> tuple[dict[str, float], ...]:
    """What each GPU had in each run on all: address -> bytes/s. Figures of different runs are never in one of these."""
    return remembered(machine, "runs_at_once", lambda: _runs_at_once(machine))


def _runs_at_once(machine: Machine) -> tuple[dict[str, float], ...]:
    runs: dict[tuple[str, str | None], dict[str, float]] = {}
    for gpu in machine.gpus:
        for m in _on_all(machine, gpu) if gpu.address and not gpu.off_bus else ():
            rates = runs.setdefault((m.source, m.run), {})
            rates[gpu.address or ""] = min(m.bytes_per_s, rates.get(gpu.address or "", m.bytes_per_s))
    return tuple(runs.values())


def _on_all(machine: Machine, gpu: Gpu) -> tuple[Measurement, ...]:
    measured, evacuating = at_once_counts(machine)
    return _at_once(machine, gpu, evacuating) if measured >= evacuating else ()


def at_once_counts(machine: Machine) -> tuple[int, int]:
    """GPUs that were measured while others copied too, the most in one run; and GPUs that evacuate.

    Runs are not added: two GPUs that copied alone, one after the other, are not two at once.
    """
    return remembered(machine, "at_once_counts", lambda: _at_once_counts(machine))


def _at_once_counts(machine: Machine) -> tuple[int, int]:
    evacuating = [gpu for gpu in machine.gpus if gpu.off_bus is None]
    whole = [gpu for gpu in evacuating if _at_once(machine, gpu, len(evacuating))]
    runs = [m.at_once or 1 for gpu in evacuating for m in _at_once(machine, gpu)]
    part = max((len(whole), *(run for run in runs if run < len(evacuating))))
    return len(evacuating) if evacuating and len(whole) == len(evacuating) else part, len(evacuating)


def _at_once(machine: Machine, gpu: Gpu, least: int = 0) -> tuple[Measurement, ...]:
    """Of this GPU in runs on at least so many."""
    found = (m for m in measurements_of(machine, gpu, ALL_AT_ONCE) if _fills_the_link(m))
    return tuple(m for m in found if (m.at_once or 1) >= least)


def too_small_bytes(machine: Machine, gpu: Gpu, what: str = "d2h") -> int | None:
    """The largest size that was measured, if none was large enough [bytes]; None if one was, or nothing was measured."""
    sizes = [m.size_bytes for m in measurements_of(machine, gpu, what) if m.size_bytes and not _fills_the_link(m)]
    return max(sizes) if sizes and best_measurement(machine, gpu, (), what) is None else None


def _fills_the_link(m: Measurement) -> bool:
    """A size that is told says how long the copy took; tools that tell none (nvbandwidth) copy long enough."""
    return m.size_bytes is None or m.size_bytes / m.bytes_per_s >= MIN_COPY_S


def _plateau(group: list[Measurement], *, at_least: bool) -> Measurement:
    """The median over the largest decade of sizes; the fastest where no sizes are told, or `at_least` the slowest."""
    largest = max((m.size_bytes or 0 for m in group), default=0)
    top = sorted((m for m in group if (m.size_bytes or 0) * 10 >= largest), key=lambda m: m.bytes_per_s)
    middle = top[0 if at_least else -1] if largest == 0 else top[len(top) // 2]
    return msgspec.structs.replace(middle, size_bytes=None)
