"""Our own stopwatch: its arithmetic and its place beside ceilings, with a made-up device; and that none is an error."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from hinan.cli.main import app
from hinan.cli.wire_probe import print_measured
from hinan.core.errors import ConfigError
from hinan.trainer.ports.probe import TorchCopier
from hinan.wire.checks.case import Question
from hinan.wire.checks.check import check_machine
from hinan.wire.checks.probe import Device, Timed, measure
from hinan.wire.facts.model import Machine
from hinan.wire.machine import assemble, capture, sample, sources
from hinan.wire.machine.merge import merge

SIZE_BYTES = 1 << 28
GPU_4 = Device(index=0, address="0000:52:00.0", name="Example")  # the only one that CUDA_VISIBLE_DEVICES leaves


class Stopwatch:
    """Two devices: GPU 4 of the sample machine at 50 GB/s, with a slow first copy, and one whose clock stands still."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, int, int]] = []

    def devices(self) -> Sequence[Device]:
        return [GPU_4, Device(index=1, address=None, name=None)]

    def copy(self, device: Device, size_bytes: int, count: int, cpus: Sequence[int]) -> Timed:
        self.asked.append((device.index, size_bytes, count, len(cpus)))
        if device is not GPU_4:
            return Timed(seconds=(0.0,) * count, node=None)
        usual = size_bytes / 50e9
        return Timed(seconds=(10 * usual, usual / 2, *[usual] * (count - 3), 3 * usual), node=1)


def measured() -> Machine:
    return measure(Stopwatch(), sample.machine(), size_bytes=SIZE_BYTES, copies=5)


def test_the_median_of_copies_after_the_first() -> None:
    """50 GB/s: not the first copy, the fastest or the slowest. A clock that stands still gives no rate, not infinity."""
    stopwatch = Stopwatch()
    found = measure(stopwatch, sample.machine(), size_bytes=SIZE_BYTES, copies=5)
    (only,) = found.measurements
    assert only.bytes_per_s == pytest.approx(50e9)
    assert (only.what, only.engine, only.gpu_address, only.numa_node) == ("d2h", "ce", "0000:52:00.0", 1)
    assert only.source == "hinan wire probe, median of 5 x 256.0 MiB"
    assert stopwatch.asked == [(0, SIZE_BYTES, 6, 56), (1, SIZE_BYTES, 6, 0)]  # node 1 of the sample has 56 CPUs


def test_it_stands_beside_the_ceiling(capsys: pytest.CaptureFixture[str]) -> None:
    """Joined by address: torch's device 0 is the machine's GPU 4. 87 % of the ceiling proves the path."""
    machine = assemble.assemble(merge([sample.machine(), measured()]))
    assert check_machine(machine, Question()) == ()
    print_measured(machine, as_json=False)
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows if "50.0 GB/s" in row] == ["4"]
    print_measured(machine, as_json=True)
    answers = json.loads(capsys.readouterr().out)["gpus"]
    assert [a["labels"]["measured_bytes_per_s"] for a in answers].count("measured") == 1
    assert answers[4]["measured_bytes_per_s"] == pytest.approx(50e9)


def test_the_file_is_a_source(tmp_path: Path) -> None:
    """What was measured is read back by --from and by the planner."""
    machine, probe = tmp_path / "machine", tmp_path / "probe"
    machine.write_text(capture.write(sample.machine()))
    probe.write_text(capture.write(measured()))
    joined = sources.read_paths([probe, machine])
    assert joined.functions == sample.machine().functions
    assert joined.measurements == measured().measurements
    words = ["plan", "--wire", str(machine), "--wire", str(probe), "--gpu", "52:00.0", "--json"]
    d2h = json.loads(CliRunner().invoke(app, words).stdout)["inputs"]["machine.d2h_bytes_per_s"]
    assert (d2h["value"], d2h["kind"]) == (pytest.approx(50e9), "measured")


def test_nothing_to_copy_is_refused() -> None:
    for size_bytes, copies in ((0, 1), (1, 0)):
        with pytest.raises(ConfigError, match="at least"):
            measure(Stopwatch(), sample.machine(), size_bytes=size_bytes, copies=copies)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_is_an_error(tmp_path: Path) -> None:
    """Said with the other ways to a figure; nothing is written."""
    assert TorchCopier().devices() == []
    out = tmp_path / "probe"
    with pytest.raises(ConfigError, match=r"torch sees no GPU.*nvbandwidth"):
        CliRunner().invoke(app, ["wire", "probe", "--out", str(out)], catch_exceptions=False)
    assert not out.exists()


@pytest.mark.skipif(not torch.accelerator.is_available(), reason="there is no GPU here")
def test_a_real_device_is_faster_than_nothing_and_slower_than_its_ceiling() -> None:
    """On a machine with a GPU: a rate for each, below the link's ceiling."""
    here = sources.read_live()
    machine = assemble.assemble(merge([here, measure(TorchCopier(), here, size_bytes=SIZE_BYTES, copies=5)]))
    assert machine.measurements
    assert all(1e9 < m.bytes_per_s < 1e12 for m in machine.measurements)
