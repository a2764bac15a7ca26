"""Logs of other people's stopwatches: CUDA bandwidthTest, SuperBench, gdsio.

Owns:      their line formats.
Promises:  device-to-host means pinned memory; which engine and which NUMA node is kept beside the number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hinan.wire.facts.identity import NVIDIA
from hinan.wire.facts.model import Gpu, Machine, Measurement
from hinan.wire.facts.text import number, whole_lines

_F = r"([0-9]+(?:[.,][0-9]+)?)"
_DEVICE = re.compile(r"^\s*Device ([0-9]{1,3}): (\S.*?)\s*$")
_SECTION = re.compile(r"^\s*(Device to Host|Host to Device|Device to Device) Bandwidth")
_TABLE_HEAD = (re.compile(r"^\s*PINNED Memory Transfers"), re.compile(r"^\s*Transfer Size \(Bytes\)\s+Bandwidth\(GB/s\)"))
_QUICK = re.compile(rf"^\s*([0-9]{{1,15}})\s+{_F}\s*$")
_SHMOO = re.compile(rf"^bandwidthTest-(D2H|H2D)-Pinned, Bandwidth = {_F} GB/s, .*Size = ([0-9]{{1,15}}) bytes")
_SUPERBENCH = re.compile(
    rf"^(?:gpu([0-9]{{1,3}})_to_cpu|cpu_to_gpu([0-9]{{1,3}}))_by_(sm|dma)_under_numa([0-9]{{1,3}})\s+{_F}\s*$"
)
_GDSIO = re.compile(rf"IoType: (READ|WRITE) XferType: (GPUD|CPUONLY|CPU_GPU)\b.*Throughput: {_F} GiB/sec")
_GDSIO_DEVICE = re.compile(r"\bgdsio\b.*\s-d ([0-9]{1,3})\b")


def read(text: str) -> Machine | None:
    """Every measurement in `text`; None when there is none."""
    lines = whole_lines(text)[0]
    found = [*_bandwidth_test(lines), *_superbench(lines), *_gdsio(lines)]
    if not found:
        return None
    gpus = {m.gpu_index: (m.vendor_id, m.gpu_name) for m in found if m.gpu_index is not None}
    return Machine(
        gpus=tuple(Gpu(index=index, vendor_id=gpus[index][0], name=gpus[index][1]) for index in sorted(gpus)),
        measurements=tuple(found),
        sources=tuple(dict.fromkeys(m.source for m in found)),
    )


def _bandwidth_test(lines: list[str]) -> Iterator[Measurement]:
    index: int | None = None
    name: str | None = None
    section, seen = "", 0
    for line in filter(str.strip, lines):
        if match := _DEVICE.match(line):
            index, name, section = int(match[1]), match[2], ""
        elif match := _SECTION.match(line):
            section, seen = {"Device to Host": "d2h", "Host to Device": "h2d"}.get(match[1], ""), 0
        elif match := _SHMOO.match(line):
            yield _pinned(match[1].lower(), match[2], int(match[3]), index, name)
        elif seen < len(_TABLE_HEAD) and _TABLE_HEAD[seen].match(line):
            seen += 1
        else:
            # A value counts only right below its whole head: in a log that lost lines it is of another direction.
            match = _QUICK.match(line) if section and seen == len(_TABLE_HEAD) else None
            if match is not None and index is not None:
                yield _pinned(section, match[2], int(match[1]), index, name)
            section = ""


def _pinned(what: str, value: str, size_bytes: int, index: int | None, name: str | None) -> Measurement:
    return Measurement(
        what=what,
        bytes_per_s=(number(value) or 0.0) * 1e9,
        source="bandwidthTest",
        gpu_index=index,
        gpu_name=name,
        vendor_id=NVIDIA,
        engine="ce",
        size_bytes=size_bytes,
    )


def _superbench(lines: list[str]) -> Iterator[Measurement]:
    for line in lines:
        if match := _SUPERBENCH.match(line):
            yield Measurement(
                what="d2h" if match[1] is not None else "h2d",
                bytes_per_s=(number(match[5]) or 0.0) * 1e9,
                source="SuperBench",
                gpu_index=int(match[1] if match[1] is not None else match[2]),
                numa_node=int(match[4]),
                engine="ce" if match[3] == "dma" else "sm",
            )


def _gdsio(lines: list[str]) -> Iterator[Measurement]:
    device: int | None = None
    for line in lines:
        if command := _GDSIO_DEVICE.search(line):
            device = int(command[1])
        if match := _GDSIO.search(line):
            way = "gds" if match[2] == "GPUD" else "cpu"
            yield Measurement(
                what=f"{way}_{match[1].lower()}",
                bytes_per_s=(number(match[3]) or 0.0) * (1 << 30),
                source="gdsio",
                gpu_index=device if way == "gds" else None,
                vendor_id=NVIDIA,
            )


def half_bandwidth_bytes(points: list[tuple[int, float]]) -> tuple[float, float] | None:
    """Asymptotic rate [bytes/s] and the copy size [bytes] that reaches half of it (Hockney's n1/2), from (size, rate).

    A copy of n bytes takes t0 + n / rate; n1/2 = t0 x rate. The line is fitted by least squares to the times of copies
    from the first that reaches half of the best rate up to fifty times its size: below, other costs rule; above, t0 is
    lost in the noise. None when fewer than three copies are left.
    """
    usable = sorted((size, rate) for size, rate in points if size > 0 and rate > 0)
    best = max((rate for _, rate in usable), default=0.0)
    start = next((size for size, rate in usable if rate >= best / 2), 0)
    fitted = [(float(size), size / rate) for size, rate in usable if start <= size <= 50 * start]
    if len(fitted) < 3:
        return None
    mean_n, mean_t = (sum(column) / len(fitted) for column in zip(*fitted, strict=True))
    spread = sum((n - mean_n) ** 2 for n, _ in fitted)
    slope = sum((n - mean_n) * (t - mean_t) for n, t in fitted) / spread if spread else 0.0
    if slope <= 0:
        return None
    return 1 / slope, max(mean_t - slope * mean_n, 0.0) / slope
