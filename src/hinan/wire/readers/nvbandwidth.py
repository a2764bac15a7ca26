"""nvbandwidth, as JSON (-j) or as text: measured copies between host RAM and each GPU.

Owns:      the testcases between host and devices: one device alone, and one while all others copy too (all_to_host).
Promises:  a testcase that failed, was waived or has "N/A" gives no measurement; it never becomes 0 GB/s.
Relies on: nvbandwidth binding itself to the GPU's own CPUs, so that it shows the best node; a cell of all_to_host and
           host_to_all being the rate of one device, not of all together (its README and testcases_ce.cpp).
Never:     says on which NUMA node the buffer lay, because no report of nvbandwidth does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from zlib import crc32

from hinan.wire.facts.address import parse_address
from hinan.wire.facts.identity import NVIDIA
from hinan.wire.facts.model import Gpu, Machine, Measurement
from hinan.wire.facts.text import number, printable, whole_lines

_TESTS = {
    f"{way}_memcpy_{engine}": (what, engine)
    for engine in ("ce", "sm")
    for way, what in (
        ("device_to_host", "d2h"), ("host_to_device", "h2d"), ("all_to_host", "d2h_all"), ("host_to_all", "h2d_all"),
    )
}  # fmt: skip
_NAMES = {kind: name for name, kind in _TESTS.items()}
_DEVICE = re.compile(r"^\s*(?:Device )?([0-9]{1,3}): (.+?)(?: \(([0-9a-fA-F:.]+)\))?(?:: \(.*\))?\s*$")


def read_json(text: str) -> Machine | None:
    """Measurements of a JSON report; None when it is another JSON. A cut report has no measurement."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        if '"nvbandwidth"' not in text:
            return None
        return Machine(sources=("nvbandwidth",), notes=("the nvbandwidth report is cut or damaged: no measurement",))
    report = document.get("nvbandwidth") if isinstance(document, dict) else None
    if not isinstance(report, dict):
        return None
    gpus = tuple(_devices(_strings(report.get("GPU Device list"))))
    cases = report.get("testcases")
    found = [m for case in (cases if isinstance(cases, list) else []) if isinstance(case, dict) for m in _case(case, gpus)]
    notes = () if found else ("nvbandwidth ran without a host test that passed: no measurement",)
    return Machine(gpus=gpus, measurements=tuple(found), sources=("nvbandwidth",), notes=notes)


def _strings(value: Any) -> list[str]:
    return [printable(item) for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _devices(lines: list[str]) -> Iterator[Gpu]:
    for line in lines:
        match = _DEVICE.match(line)
        if match is not None:
            address = parse_address(match[3]) if match[3] else None
            yield Gpu(index=int(match[1]), vendor_id=NVIDIA, name=match[2].strip(), address=address)


def _case(case: dict[str, Any], gpus: tuple[Gpu, ...]) -> Iterator[Measurement]:
    matrix = case.get("bandwidth_matrix")
    kind = _TESTS.get(str(case.get("name")))
    if kind is None or str(case.get("status")).lower() != "passed" or not isinstance(matrix, list) or not matrix:
        return
    yield from _row(kind, [str(cell) for cell in matrix[0]] if isinstance(matrix[0], list) else [], gpus)


def _row(kind: tuple[str, str], cells: list[str], gpus: tuple[Gpu, ...]) -> Iterator[Measurement]:
    by_index = {gpu.index: gpu for gpu in gpus}
    alone = kind[0] in ("d2h", "h2d")
    values = {index: value for index, cell in enumerate(cells) if (value := number(cell))}
    run = f"{crc32(repr((kind, cells)).encode()):08x}"  # the same wherever the report is read, and in a capture
    for index, value in values.items():
        gpu = by_index.get(index)
        yield Measurement(
            what=kind[0],
            engine=kind[1],
            bytes_per_s=value * 1e9,
            source="nvbandwidth" if alone else f"nvbandwidth {_NAMES[kind]}",
            gpu_index=index,
            vendor_id=NVIDIA,
            gpu_address=gpu.address if gpu else None,
            gpu_name=gpu.name if gpu else None,
            at_once=None if alone else len(values),
            run=None if alone else run,
        )


def read_text(text: str) -> Machine | None:
    """Measurements of the plain output ("Running device_to_host_memcpy_ce." and its table)."""
    lines = whole_lines(text)[0]
    gpus = tuple(_devices([line for line in lines if line.startswith("Device ")]))
    found: list[Measurement] = []
    kind: tuple[str, str] | None = None
    for line in lines:
        if running := re.match(r"^Running (\w+)\.", line):
            kind = _TESTS.get(running[1])
        elif kind is not None and (row := re.match(r"^\s*0((?:\s+[0-9]+[.,][0-9]+)+)\s*$", line)):
            found.extend(_row(kind, row[1].split(), gpus))
            kind = None
    return Machine(gpus=gpus, measurements=tuple(found), sources=("nvbandwidth",)) if found else None
