"""The hot path beside the evacuation: verdicts with reasons, shared hops, and what a virtual function shows."""

import msgspec
import pytest
import wire_dumps as dumps

from hinan.wire.checks.case import Question
from hinan.wire.facts.model import Machine
from hinan.wire.machine import sample, sources
from hinan.wire.paths.hotpath import ROWS, Paths, lines, paths_of
from hinan.wire.show.render import render, render_legs
from hinan.wire.show.report import report_gpu

NIC = """
46:00.0 Infiniband controller [0207]: Mellanox Technologies MT2910 Family [ConnectX-7] [15b3:1021]
\tNUMA node: 1
\tCapabilities: [60] Express (v2) Endpoint, MSI 00
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported

42:03.0 PCI bridge [0604]: Example Switch [1000:c010] (prog-if 00 [Normal decode])
\tBus: primary=42, secondary=46, subordinate=46, sec-latency=0
\tCapabilities: [68] Express (v2) Downstream Port (Slot+), MSI 00
\tCapabilities: [170 v1] Access Control Services
\t\tACSCtl:\tSrcValid- ReqRedir{redirect} CmpltRedir-
"""


def paths(*texts: str, index: int = 0) -> Paths:
    """The comparison for one GPU."""
    machine = sources.read_texts(texts)
    return paths_of(machine, next(g for g in machine.gpus if g.index == index))


def with_nic(redirect: str) -> Machine:
    """The two-GPU machine with a NIC behind the same switch."""
    return sources.read_texts([dumps.LSPCI_VVV + NIC.format(redirect=redirect)])


def test_five_rows_three_ways_and_shared_hops() -> None:
    """Carried, route, CPU, NIC, speed; what both cross carries a star; the third leg crosses the NIC."""
    machine = with_nic("-")
    found = paths_of(machine, machine.gpus[0])
    assert len(ROWS) == 5
    assert len(found.ways) == 3
    assert found.shared == ("0000:43:00.0", "0000:42:00.0", "0000:41:00.0")
    hot, evacuation, third = (way.cells for way in found.ways)
    assert "43:00.0* > 42:00.0* > 41:00.0* > 42:03.0 > 46:00.0" in hot[1]
    assert evacuation[1] == "43:00.0* > 42:00.0* > 41:00.0* > 40:01.0 > root complex > RAM"
    assert evacuation[3] == "not crossed"
    assert "46:00.0" in third[1]
    assert "45:00.0" in third[1]
    assert "crossed on the way to the target" in third[3]


@pytest.mark.parametrize(
    ("redirect", "words"),
    [("-", "possible, unproven: same switch as 46:00.0"), ("+", "slow: ACS redirect at 42:03.0")],
)
def test_rdma_verdict_follows_acs(redirect: str, words: str) -> None:
    """The same switch is possible and unproven; with redirect it goes through the root complex."""
    machine = with_nic(redirect)
    assert words in paths_of(machine, machine.gpus[0]).rdma


def test_rdma_verdicts_of_other_sources() -> None:
    """gdr=0 is a no; a label is no proof; no NIC is unknown."""
    assert paths(dumps.NCCL, index=3).rdma.startswith("no: the driver")
    assert "topo -m says PIX" in paths(dumps.TOPO).rdma
    assert paths(dumps.LSPCI_VVV).rdma == "unknown: no NIC is known"
    assert "meet only at the root complex" in paths(dumps.NCCL, index=2).rdma


def test_nvlink_is_told_by_whoever_knows() -> None:
    """NCCL counts links, topo -m prints NV18."""
    assert "NVLink (12 links)" in paths(dumps.NCCL, index=1).ways[0].cells[1]
    assert "GPU to GPU: NVLink" in paths(dumps.TOPO).ways[0].cells[1]


def test_a_virtual_function_without_its_physical_one() -> None:
    """The physical function may be beyond a hypervisor; "VM" is said only where a source shows signs of one."""
    text = (
        "05:00.0 Ethernet controller [0200]: Mellanox Technologies ConnectX Family mlx5Gen Virtual Function [15b3:101e]\n"
    )
    rows = paths(dumps.LSPCI_VVV + "\n" + text).virtual_functions
    assert rows == ("VF 05:00.0 -> PF unknown -> IOMMU group unknown: isolates unknown",)
    guest = "06:00.0 SCSI storage controller [0100]: Red Hat, Inc. Virtio block device [1af4:1001]\n"
    (row,) = paths(dumps.LSPCI_VVV + "\n" + text + "\n" + guest).virtual_functions
    assert row.startswith("VF 05:00.0 -> PF unknown (inside a VM)")


def test_the_table_fits() -> None:
    """100 columns, every row named."""
    machine = sample.machine()
    shown = lines(paths_of(machine, machine.gpus[0]))
    assert max(map(len, shown)) <= 100
    assert [row for row in ROWS if any(line.startswith(row) for line in shown)] == list(ROWS)


def test_files_of_several_machines_join_no_gpu_with_a_device() -> None:
    """A drive of one file is not the nearest of a GPU of another: which it is, is unknown, and why, in every view."""
    why = "unknown: the sources may be of different machines"
    redirecting = dumps.LSPCI_VVV.replace("ReqRedir-", "ReqRedir+")
    machine = sources.read_texts([redirecting, dumps.HWLOC])
    assert machine.mixed is not None
    gpu = next(g for g in machine.gpus if g.address == "0000:43:00.0")
    found = paths_of(machine, gpu)
    assert (found.rdma, found.shared, found.shared_unknown) == (why, (), why.removeprefix("unknown: "))
    hot, _, third = (way.cells for way in found.ways)
    assert (hot[3], third[1]) == (why, why)
    answer = report_gpu(machine, gpu, Question())
    assert render_legs(answer) == [why]
    doubtful = msgspec.structs.replace(sample.machine(), mixed="these files may not be of one machine")
    for told, alone in ((doubtful, False), (sample.machine(), True)):
        shown = render(report_gpu(told, told.gpus[0], Question()), told)
        assert any("(no other GPU)" in line for line in shown) == alone
    assert all(finding.code != "acs-redirect" for finding in answer.findings)
    alone = sources.read_texts([redirecting])
    assert "acs-redirect" in {f.code for f in report_gpu(alone, alone.gpus[0], Question()).findings}


def test_an_nvlink_gpu_shares_no_port_with_its_evacuation() -> None:
    """Its copies cross none: no star on the hot path, no hops of the evacuation, and "none" where they are named."""
    machine = msgspec.structs.replace(sample.machine(), coherent_link="NVLink between GPU and CPU (a test)")
    found = paths_of(machine, machine.gpus[0])
    hot, evacuation, _ = found.ways
    assert (found.shared, found.shared_unknown, evacuation.hops) == ((), None, ())
    assert "*" not in hot.cells[1]
    assert "12:00.0" in hot.cells[1]
    assert "* shared by hot path and evacuation: none" in lines(found)
