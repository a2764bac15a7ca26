"""Stopwatches that ran on several GPUs, or with the buffer on one node: each says what it saw, and no more."""

from __future__ import annotations

import json

import pytest
from test_wire_shares import SHARED
from wire_machines import GB, machine, near, report, reports

from hinan.wire.checks.case import Question
from hinan.wire.checks.check import check_machine
from hinan.wire.checks.measured import at_once_counts
from hinan.wire.show.rates import rate_of
from hinan.wire.show.render import render, render_all

NUMACTL = """\
available: 2 nodes (0-1)
node 0 cpus: 0 1
node 0 size: 128000 MB
node 0 free: 1000 MB
node 1 cpus: 2 3
node 1 size: 128000 MB
node 1 free: 2000 MB
node distances:
node   0   1
  0:  10  32
  1:  32  10
"""


def all_to_host(*cells: str) -> str:
    """A report of nvbandwidth's all_to_host_memcpy_ce."""
    case = {"name": "all_to_host_memcpy_ce", "status": "Passed", "bandwidth_matrix": [list(cells)]}
    devices = [f"{index}: NVIDIA A100 (0000{0x11 + index:04x}:00.0)" for index in range(len(cells))]
    listed = [device.replace("0000001", "0000:1") for device in devices]
    return json.dumps({"nvbandwidth": {"GPU Device list": listed, "testcases": [case]}})


def test_runs_of_one_gpu_each_are_not_all_at_once() -> None:
    """Two reports with one device each: nobody saw both copy, so the share stands, and a note says why."""
    found = machine(SHARED, all_to_host("7.1", "N/A"), all_to_host("N/A", "7.0"))
    assert at_once_counts(found) == (1, 2)
    for answer in reports(found):
        assert answer.all_ranks_measured_bytes_per_s is None
        assert "copies of 1 of 2 GPUs at once were measured: not the rate when all evacuate" in answer.notes
    assert at_once_counts(machine(SHARED, all_to_host("7.1", "7.0"))) == (2, 2)


@pytest.mark.parametrize(
    ("told", "code"), [("13.1", "above-ceiling"), ("7.3", None), ("6.9", None), ("1.6", "below-share")]
)
def test_what_all_get_is_compared_with_their_share(told: str, code: str | None) -> None:
    """Twice the share cannot be; a quarter of it: something else is shared; a little above: the payload size."""
    found = machine(SHARED, all_to_host(told, told))
    answer = report(found, state_bytes=72_000_000_000)
    codes = [f.code for f in answer.findings if f.code != "shared-uplink"]
    assert codes == ([code] if code else [])
    rate = rate_of(answer)
    assert rate is not None
    if code == "above-ceiling":
        assert (rate.label, near(rate.bytes_per_s, 7.202)) == ("ceiling", True)
        assert rate.note.endswith("while all copy; 26.2 GB/s of 2 GPUs over 10:01.0, which carries 14.4: not taken")
    else:
        assert (rate.label, rate.bytes_per_s, rate.note) == ("measured", float(told) * GB, "")
    if code == "below-share":
        (finding,) = [f for f in answer.findings if f.code == code]
        assert finding.effect_s == pytest.approx(72 / 1.6 - 72 / 7.202, rel=1e-3)


def test_one_gpu_has_no_others() -> None:
    """all_to_host of the only GPU: its row has a name, and nobody speaks of all one GPUs."""
    alone = SHARED.replace('<pci busid="0000:12:00.0" class="0x030200"', '<pci busid="0000:12:00.0" class="0x020000"')
    found = machine(alone.replace('<gpu dev="1"/>', ""), all_to_host("13.1"))
    answer = report(found)
    shown = render(answer, found)
    assert any(line.startswith("one GPU     measured    13.1 GB/s") for line in shown)
    rate = rate_of(answer)
    assert rate is not None
    assert not any("1 GPUs" in text for text in [*shown, rate.source])


def test_a_log_of_another_node_is_not_the_rate_of_this_one() -> None:
    """GPU on node 0, SuperBench with the buffer on node 1: a note, neither a measurement nor an alarm."""
    log = "gpu0_to_cpu_by_dma_under_numa1 3.5\n"
    answer = report(machine(SHARED, NUMACTL, log))
    assert answer.measured_bytes_per_s is None
    assert [f.code for f in answer.findings if f.code == "below-ceiling"] == []
    assert any("3.50 GB/s with the buffer on node 1, the GPU is on node 0" in note for note in answer.notes)
    both = report(machine(SHARED, NUMACTL, log + "gpu0_to_cpu_by_dma_under_numa0 13.1\n"), buffer_node=1)
    assert both.measured_bytes_per_s == 13.1 * GB
    (wrong,) = [f for f in both.findings if f.code == "wrong-numa-node"]
    assert "measured 3.5 GB/s there, 13.1 on the near node" in wrong.effect
    assert not any("not the rate of its own way" in note for note in both.notes)


def test_all_shows_what_check_shows() -> None:
    """Two nodes that are both short of memory are two problems under --all as under check."""
    far = SHARED.replace("</cpu>", "").replace("</system>", "")
    other = (
        far.partition("<pci ")[2].replace("0000:1", "0000:2").replace('dev="0"', 'dev="2"').replace('dev="1"', 'dev="3"')
    )
    found = machine(f'{far}</cpu><cpu numaid="1"><pci {other}</cpu></system>', NUMACTL)
    question = Question(state_bytes=3 * 10**9)
    short = [f for f in check_machine(found, question) if f.code == "ram-short"]
    assert len(short) == 2
    shown = " ".join(render_all(reports(found, state_bytes=3 * 10**9)))
    assert all(f"node {node} has" in shown for node in (0, 1))


def test_runs_are_not_added_to_fill_a_link() -> None:
    """7.0 and 4.0 of an uplink of 14.4, then 4.0 and 7.0: neither run filled it, and each alone says so too."""
    runs = all_to_host("7.0", "4.0"), all_to_host("4.0", "7.0")
    for texts in ((runs[0],), runs, runs[::-1], (*runs, *runs)):
        found = machine(SHARED, *texts)
        codes = [f.code for answer in reports(found) for f in answer.findings if f.code == "below-share"]
        assert len(codes) == min(len(set(texts)), 2)
    full = machine(SHARED, *runs, all_to_host("9.0", "4.0"))
    assert not any(f.code == "below-share" for answer in reports(full) for f in answer.findings)
