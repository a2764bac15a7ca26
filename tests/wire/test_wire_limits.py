"""What links forbid, what an even share would be, and what was measured: three numbers that are not the same."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import pytest
import wire_dumps as dumps
from test_wire_gaps import _without as without
from wire_machines import GB, machine, near, report, reports
from wire_trees import NESTED, TWO, lspci

from hinan.wire.show.answer import Report
from hinan.wire.show.figures import figures_of
from hinan.wire.show.rates import rate_of


def stopwatch(buses: Sequence[str], *, alone: Sequence[float] = (), together: Sequence[float] = ()) -> str:
    """A report of nvbandwidth on the GPUs of these buses [GB/s]."""
    rows = {"device_to_host_memcpy_ce": alone, "all_to_host_memcpy_ce": together}
    cases = [
        {"name": name, "status": "Passed", "bandwidth_matrix": [[f"{cell:.2f}" for cell in cells]]}
        for name, cells in rows.items()
        if cells
    ]
    devices = [f"{index}: NVIDIA H100 80GB HBM3 (00000000:{bus}:00)" for index, bus in enumerate(buses)]
    return json.dumps({"nvbandwidth": {"GPU Device list": devices, "testcases": cases}})


def codes(answer: Report) -> set[str]:
    """Of its findings."""
    return {finding.code for finding in answer.findings}


def planned_gb(answer: Report) -> tuple[str, float]:
    """What the planner takes."""
    rate = rate_of(answer)
    assert rate is not None
    return rate.label, round(rate.bytes_per_s / GB, 1)


def test_an_uneven_split_is_neither_impossible_nor_slow() -> None:
    """A switch that arbitrates per port: 27.5 and twice 13.75 of one link of 57.6. All true, and all taken."""
    log = stopwatch(("03", "06", "07"), alone=(55, 55, 55), together=(27.5, 13.75, 13.75))
    answers = reports(machine(lspci(*NESTED), log))
    assert [codes(answer) for answer in answers] == [{"shared-uplink"}] * 3
    assert [planned_gb(answer) for answer in answers] == [("measured", 27.5), ("measured", 13.8), ("measured", 13.8)]


def test_what_a_sibling_leaves_may_be_taken() -> None:
    """A GPU of unknown rate does 12 of 57.6; the other one had 43, above an even share."""
    rows = [*TWO[:-1], "04:00.0 gpu 32 0"]
    fast = report(machine(lspci(*rows), stopwatch(("03", "04"), together=(43, 12))))
    assert (codes(fast), planned_gb(fast)) == ({"shared-uplink"}, ("measured", 43.0))
    assert near(fast.all_ranks_ceiling_bytes_per_s, 28.807)


@pytest.mark.parametrize(
    ("together", "words"),
    [
        ((40, 40), "80.0 GB/s of 2 GPUs over 00:01.0, which carries 57.6"),
        ((70, 1), "70.0 GB/s where its links carry 57.6"),
    ],
)
def test_what_a_link_forbids_is_impossible(together: tuple[float, float], words: str) -> None:
    """A sum above a link, or one GPU above its own: not taken, and said."""
    answer = report(machine(lspci(*TWO), stopwatch(("03", "04"), alone=(55, 55), together=together)))
    assert "above-ceiling" in codes(answer)
    assert planned_gb(answer) == ("ceiling", 28.8)
    rate = rate_of(answer)
    assert rate is not None
    assert words in rate.note


def test_several_runs_are_not_added() -> None:
    """Each GPU was the fast one in one of two runs: nobody saw both fast at once."""
    logs = [stopwatch(("03", "04"), together=together) for together in ((40.0, 15.0), (15.0, 40.0))]
    for answer in reports(machine(lspci(*TWO), *logs)):
        assert (codes(answer), planned_gb(answer)) == ({"shared-uplink"}, ("measured", 15.0))


def test_a_share_is_called_one() -> None:
    """Shared: an estimate. Of a link that nobody else crosses it is what nobody can exceed."""
    shared, alone = report(machine(lspci(*TWO))), report(machine(lspci(*TWO[:4])))
    assert [a.labels["all_ranks_ceiling_bytes_per_s"] for a in (shared, alone)] == ["share", "ceiling"]
    assert [f.label for f in figures_of(shared) if f.name == "all 2 GPUs"] == ["share"]


@pytest.mark.parametrize("cut", [("00:01.0",), ("01:00.0",), ("00:01.0", "02:00.0")])
def test_what_lies_above_does_not_widen_a_link(cut: tuple[str, ...]) -> None:
    """A port is missing in the dump: both GPUs still cross one link of 57.6, so 55 alone is no plan for both."""
    rows = [row for row in TWO if row.split()[0] not in cut]
    answers = reports(machine(lspci(*rows), stopwatch(("03", "04"), alone=(55, 55))))
    for answer in answers:
        assert not answer.path_complete
        assert answer.all_ranks_ceiling_bytes_per_s is None
        assert planned_gb(answer) == ("ceiling", 28.8)
        assert "shared-uplink" in codes(answer)
        rate = rate_of(answer)
        assert rate is not None
        assert "its share of the links that are told" in rate.source


def test_who_is_slow_alone_is_not_slowed_by_others() -> None:
    """30 alone and 30 with all the others: no fault of DRAM. 30 alone and 12 with them: one."""
    rows = ("00:01.0 root 01-01", "01:00.0 gpu", "00:02.0 root 02-02", "02:00.0 gpu")
    for together, found in ((30.0, False), (12.0, True)):
        log = stopwatch(("01", "02"), alone=(30, 30), together=(together, together))
        answer = report(machine(lspci(*rows), log), state_bytes=30 * 10**9)
        assert ("below-share" in codes(answer)) == found
    (finding,) = [f for f in answer.findings if f.code == "below-share"]
    assert "12.0 GB/s while all copy" in finding.evidence
    assert "of 30.0 that it does alone: 40%" in finding.evidence
    assert finding.effect_s == pytest.approx(30 / 12 - 1)


def test_a_shared_uplink_is_the_one_that_fills() -> None:
    """A gen 3 uplink of two GPUs below a gen 5 one of three: each GPU is told the link that stops it."""
    rows = [row.replace("04:00.0 up 05-09", "04:00.0 up 05-09 8 16") for row in NESTED]
    found = [next(f for f in answer.findings if f.code == "shared-uplink") for answer in reports(machine(lspci(*rows)))]
    assert [finding.at for finding in found] == ["00:01.0", "02:01.0", "02:01.0"]
    assert [finding.evidence[:6] for finding in found] == ["3 GPUs", "2 GPUs", "2 GPUs"]
    assert [finding.effect[:4] for finding in found] == ["43.2", "7.20", "7.20"]


def _nccl_and_hwloc() -> tuple[str, str]:
    """One GPU at 32 GT/s x16 by its capability, which hwloc saw at a quarter of it."""
    nccl = (
        '<system version="1"><cpu numaid="0"><pci busid="0000:01:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" '
        'link_width="16"><pci busid="0000:03:00.0" class="0x030200" vendor="0x10de" device="0x2330" '
        'link_speed="32.0 GT/s PCIe" link_width="16"><gpu dev="0"/></pci></pci></cpu></system>'
    )
    bridge = (
        '<object type="Bridge" bridge_type="1-1" bridge_pci="0000:[{}]" pci_busid="0000:{}" pci_type="0604 [8086:352a] '
        '[0000:0000] 00" pci_link_speed="{}">'
    )
    whole, rest = "63.015385", "15.753846"
    tree = "".join(
        bridge.format(*each)
        for each in (("01-03", "00:01.0", whole), ("02-03", "01:00.0", whole), ("03-03", "02:00.0", rest))
    )
    kind = "0302 [10de:2330] [0000:0000] 00"
    gpu = f'<object type="PCIDev" pci_busid="0000:03:00.0" pci_type="{kind}" pci_link_speed="{rest}"/>'
    return nccl, f'<topology version="2.0"><object type="Machine">{tree}{gpu}{"</object>" * 4}</topology>'


def test_a_present_bandwidth_is_no_capability_where_one_is_told() -> None:
    """NCCL says 32 GT/s x16, hwloc saw the GPU at rest: 57.6. Under load it is a fault of 8 of 32 GT/s, and the rate."""
    nccl, hwloc = _nccl_and_hwloc()
    assert near(report(machine(hwloc)).ceiling_bytes_per_s, 14.404)
    found = machine(nccl, hwloc)
    rest = report(found)
    assert near(rest.ceiling_bytes_per_s, 57.614)
    assert rest.findings == ()
    assert not any("idle link reads low" in note for note in rest.notes)
    busy = report(found, under_load=True, state_bytes=10**10)
    assert (near(busy.ceiling_bytes_per_s, 14.404), near(busy.as_built_bytes_per_s, 57.614)) == (True, True)
    (finding,) = [f for f in busy.findings if f.code == "speed-below-capability"]
    assert finding.evidence == "link carries 14.4 GB/s of 57.6 (32 GT/s x16)"
    assert finding.effect_s == pytest.approx(10 / 14.404 - 10 / 57.614, rel=1e-3)


def test_a_present_bandwidth_of_one_end_beside_the_others_register() -> None:
    """lspci of the GPU alone: its capability bounds, not what hwloc saw of the port at rest."""
    block = next(block for block in dumps.LSPCI_VVV.split("\n\n") if block.startswith("43:00.0")) + "\n"
    found = machine(block.replace("43:00.0", "03:00.0").replace("10de:20b2", "10de:2330"), _nccl_and_hwloc()[1])
    assert near(report(found).ceiling_bytes_per_s, 28.807)


def test_the_sum_over_a_link_that_is_only_read_at_rest_proves_nothing() -> None:
    """hwloc alone: two GPUs above what the idle uplink seems to carry are no log of another machine."""
    hwloc = re.sub(r'pci_link_speed="[0-9.]+"', 'pci_link_speed="15.753846"', dumps.HWLOC)
    found = machine(hwloc)
    buses = [(gpu.address or "")[5:7] for gpu in found.gpus]
    log = stopwatch(buses, together=[14.0] * len(buses)).replace("H100 80GB HBM3", "Tesla V100-SXM3-32GB")
    for answer in reports(machine(hwloc, log)):
        assert answer.all_ranks_measured_bytes_per_s == 14.0 * GB
        assert "above-ceiling" not in codes(answer)


def test_cutting_a_dump_never_plans_more_than_a_known_link_carries() -> None:
    """Any one bridge of the two-GPU server missing: what is planned for both fits the link that both are told to cross."""
    for cut in ("40:01.0", "41:00.0", "42:00.0", "42:01.0"):
        log = stopwatch(("43", "44"), alone=(26, 26)).replace("H100 80GB HBM3", "A100")
        answers = reports(machine(without(dumps.LSPCI_VVV, cut), log))
        assert [planned_gb(answer)[1] for answer in answers] == [14.4, 14.4]
