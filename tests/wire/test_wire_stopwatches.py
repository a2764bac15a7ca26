"""Measured rates: whose they are, which are taken, and which prove nothing."""

from itertools import combinations

import pytest
import wire_dumps as dumps
from wire_machines import machine, report

from hinan.wire.checks.measured import best_measurement
from hinan.wire.readers.stopwatches import half_bandwidth_bytes


def test_nvbandwidth_joins_by_address() -> None:
    """The measurement of the GPU at 44:00.0 is GPU 1's; half of the ceiling is a finding with its cost."""
    found = machine(dumps.LSPCI_VVV, dumps.NVBANDWIDTH)
    good, bad = report(found, 0), report(found, 1, state_bytes=int(13.05e9))
    assert good.measured_bytes_per_s == pytest.approx(26.1e9)
    assert "below-ceiling" not in [f.code for f in good.findings]
    assert bad.measured_bytes_per_s == pytest.approx(13.05e9)
    finding = next(f for f in bad.findings if f.code == "below-ceiling")
    assert finding.effect_s == pytest.approx(1.0 - 13.05 / 28.807, rel=1e-3)


def test_nvbandwidth_of_another_machine_is_not_taken() -> None:
    """Addresses that are not on this bus: no measurement, and a note."""
    answer = report(machine(dumps.NCCL, dumps.NVBANDWIDTH), 0)
    assert answer.measured_bytes_per_s is None
    assert any("another machine" in note for note in answer.notes)


@pytest.mark.parametrize(
    "damage", ["Passed", '"26.10", "13.05"', "device_to_host_memcpy_ce"], ids=["status", "values", "name"]
)
def test_nvbandwidth_without_a_pass_is_no_measurement(damage: str) -> None:
    """A failed, empty or other test gives none, never 0 GB/s."""
    answer = report(machine(dumps.NVBANDWIDTH.replace(damage, "ERROR" if damage[0] != '"' else '"N/A"')))
    assert answer.measured_bytes_per_s is None


BANDWIDTH_TEST_OF_A_DEVICE = (
    dumps.BANDWIDTH_TEST
    + """
 Device to Device Bandwidth, 1 Device(s)
 PINNED Memory Transfers
   Transfer Size (Bytes)\tBandwidth(GB/s)
   32000000\t\t\t4374.1
"""
)


def test_a_log_that_lost_lines_is_of_no_other_direction() -> None:
    """bandwidthTest tells the direction in a heading: whichever two lines are missing, none takes the place of another."""
    lines = BANDWIDTH_TEST_OF_A_DEVICE.splitlines(keepends=True)
    whole = machine(BANDWIDTH_TEST_OF_A_DEVICE).measurements
    assert whole
    for lost in combinations(range(len(lines)), 2):
        found = machine("".join(line for number, line in enumerate(lines) if number not in lost)).measurements
        assert all(m.bytes_per_s in {w.bytes_per_s for w in whole if w.what == m.what} for m in found), lost


def test_pageable_copies_are_not_taken() -> None:
    """The same log of memory that is not pinned: half the speed, and another question."""
    assert machine(dumps.BANDWIDTH_TEST.replace("PINNED", "PAGEABLE")).measurements == ()


def test_faster_than_any_link_is_no_copy_to_host() -> None:
    """And a measurement above the ceiling is told, whatever it is of."""
    text = dumps.BANDWIDTH_TEST
    value = f"{next(m for m in machine(text).measurements if m.what == 'd2h').bytes_per_s / 1e9:g}"
    for shown, known in (("4374.1", False), ("41.5", True)):
        answer = report(machine(dumps.LSPCI_VVV, text.replace(value, shown)))
        assert (answer.measured_bytes_per_s is not None) == known
        assert any("above the ceiling" in note for note in answer.notes) == known


def test_nvbandwidth_text() -> None:
    """The plain output is read too."""
    text = (
        "Device 0: NVIDIA Example (00000000:43:00)\n\nRunning device_to_host_memcpy_ce.\n"
        "memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)\n           0         1\n 0     55.64     55,12\n"
    )
    assert [round(m.bytes_per_s / 1e9, 2) for m in machine(text).measurements] == [55.64, 55.12]


def test_stopwatches() -> None:
    """bandwidthTest, SuperBench and gdsio: pinned, by copy engine, on the GPU's own node where it is known."""
    assert report(machine(dumps.BANDWIDTH_TEST)).measured_bytes_per_s == pytest.approx(26.3e9)
    found = machine(dumps.SUPERBENCH)
    assert best_measurement(found, found.gpus[0], (0,)).bytes_per_s == pytest.approx(25.85e9)  # type: ignore[union-attr]
    assert best_measurement(found, found.gpus[0], ()).bytes_per_s == pytest.approx(26.10e9)  # type: ignore[union-attr]
    gds = [m for m in machine(dumps.GDSIO).measurements if m.what == "gds_write"]
    assert [(m.gpu_index, round(m.bytes_per_s / 2**30, 1)) for m in gds] == [(1, 22.5)]


def test_half_bandwidth() -> None:
    """n1/2 of an exact t0 + n/B curve is t0 x B."""
    points = [(n, n / (1e-6 + n / 10e9)) for n in (1_000, 5_000, 10_000, 50_000, 100_000, 10**6, 10**7, 10**8)]
    plateau, half = half_bandwidth_bytes(points)  # type: ignore[misc]
    assert plateau == pytest.approx(10e9, rel=0.01)
    assert half == pytest.approx(10_000, rel=0.05)


def sweep(sizes: list[int], rate: float = 13.2e9, start_s: float = 5e-6) -> str:
    """A bandwidthTest sweep of copies that take start_s + size / rate."""
    lines = (
        f"bandwidthTest-D2H-Pinned, Bandwidth = {size / (start_s + size / rate) / 1e9:.1f} GB/s, Time = 0.00001 s, "
        f"Size = {size} bytes, NumDevsUsed = 1"
        for size in sizes
    )
    return " Device 0: NVIDIA Example\n" + "\n".join(lines) + "\n"


SWEEP_SIZES = [1000 * n for n in (1, 5, 20, 50, 100, 300, 600, 1000, 3000, 5000, 8000, 16000, 32000, 64000)]


@pytest.mark.parametrize("kept", range(1, len(SWEEP_SIZES) + 1))
def test_a_cut_sweep_gives_the_same_figure_or_none(kept: int) -> None:
    """Small copies tell nothing of a link; from the first that fills it, the figure is that of the whole sweep."""
    found = machine(sweep(SWEEP_SIZES[:kept]))
    answer = report(found)
    if SWEEP_SIZES[kept - 1] < 5_000_000:
        assert answer.measured_bytes_per_s is None
        assert any(f"at most {SWEEP_SIZES[kept - 1]:,} bytes were measured: too small" in n for n in answer.notes)
    else:
        assert answer.measured_bytes_per_s == pytest.approx(13.2e9, rel=0.03)
        assert not any("too small" in note for note in answer.notes)
