"""Joining sources: what they contradict each other on is unknown, in any order, and other machines' files are told."""

import pytest
import wire_dumps as dumps
from wire_machines import machine, report
from wire_trees import lspci

from hinan.wire.facts.join import join_functions
from hinan.wire.facts.model import Function, Role
from hinan.wire.paths.hotpath import paths_of


def block(address: str) -> str:
    """The block of one function of dumps.LSPCI_VVV."""
    return next(part for part in dumps.LSPCI_VVV.split("\n\n") if part.startswith(address)) + "\n"


GPU = block("43:00.0")
OTHER_LINK = GPU.replace("LnkCap:\tPort #0, Speed 16GT/s, Width x16", "LnkCap:\tPort #0, Speed 16GT/s, Width x8")
OTHER_NODE = GPU.replace("NUMA node: 1", "NUMA node: 0")
OTHER_MPS = GPU.replace("\t\t\tMaxPayload 256 bytes", "\t\t\tMaxPayload 128 bytes")


def test_sources_join_in_any_order() -> None:
    """lspci, topo -m, numactl and nvbandwidth of one machine make one machine, whatever comes first."""
    texts = [dumps.LSPCI_VVV, dumps.NUMACTL, dumps.NVBANDWIDTH, dumps.SRAT]
    assert machine(*texts) == machine(*reversed(texts))


@pytest.mark.parametrize("one_text", [True, False])
@pytest.mark.parametrize("swapped", [True, False])
def test_contradicting_links_and_nodes_are_unknown(one_text: bool, swapped: bool) -> None:
    """x16 on node 1 and x8 on node 0: no ceiling, no node, and the words of both; the other GPU keeps its own."""
    other = OTHER_LINK.replace("NUMA node: 1", "NUMA node: 0")
    texts = [other, dumps.LSPCI_VVV] if swapped else [dumps.LSPCI_VVV, other]
    found = machine("\n".join(texts)) if one_text else machine(*texts)
    answer, whole = report(found), report(found, 1)
    assert answer.ceiling_bytes_per_s is answer.numa_node is None
    assert answer.labels["ceiling_bytes_per_s"] == answer.labels["numa_node"] == "unknown"
    (note,) = [
        n for n in answer.notes if "contradict each other: link" in n or "contradict each other: NUMA node 0 or 1 at" in n
    ]
    assert "link width x16 or x8 at 43:00.0" in note
    assert "NUMA node 0 or 1 at 43:00.0" in note
    assert whole.ceiling_bytes_per_s == pytest.approx(28.807e9, rel=1e-4)
    assert whole.numa_node == 1


def test_a_third_source_does_not_settle_a_contradiction() -> None:
    """Two of three agree, and still nobody knows which one is of today; a third value is told with the others."""
    third = GPU.replace("LnkCap:\tPort #0, Speed 16GT/s, Width x16", "LnkCap:\tPort #0, Speed 16GT/s, Width x4")
    for more, words in ((GPU, "x16 or x8 at"), (third, "x16 or x4 or x8 at")):
        found = machine(dumps.LSPCI_VVV, OTHER_LINK, more)
        assert report(found).ceiling_bytes_per_s is None
        assert words in " ".join(found.notes)


def test_a_narrow_link_may_be_above_the_gpu() -> None:
    """Sources that contradict each other on a switch's uplink leave every path over it without a ceiling."""
    found = machine(dumps.LSPCI_VVV, block("41:00.0").replace("Speed 16GT/s, Width x16", "Speed 8GT/s, Width x16"))
    assert [report(found, index).ceiling_bytes_per_s for index in (0, 1)] == [None, None]


def test_a_disputed_link_bounds_every_leg_over_it() -> None:
    """Neither peer to peer nor via RAM has a figure where the GPU's link is disputed; other GPUs' legs have theirs."""
    found = machine(dumps.LSPCI_VVV, OTHER_LINK)
    assert [leg.ceiling_bytes_per_s for leg in report(found).legs] == [None, None]
    assert all(leg.ceiling_bytes_per_s for leg in report(found, 1).legs)
    above = machine(dumps.LSPCI_VVV, block("41:00.0").replace("Speed 16GT/s, Width x16", "Speed 8GT/s, Width x16"))
    assert [leg.ceiling_bytes_per_s is None for leg in report(above).legs] == [False, True]  # peer to peer stays below it


def test_a_disputed_payload_is_assumed_and_said() -> None:
    """MPS 256 or 128: not the value of another hop, but the stated assumption."""
    answer = report(machine(dumps.LSPCI_VVV, OTHER_MPS))
    assert (answer.mps_bytes, answer.assumed_mps_bytes) == (None, 256)
    assert any("MPS is not told" in note for note in answer.notes)


def test_agreement_and_links_at_rest_are_no_contradiction() -> None:
    """The same blocks twice, another present speed, and NCCL's smaller end of a link."""
    moved = GPU.replace("Speed 2.5GT/s (downgraded)", "Speed 16GT/s (ok)")
    nccl = """\
<system version="1"><cpu numaid="1"><pci busid="0000:43:00.0" class="0x030200" vendor="0x10de" device="0x20b2"
 link_speed="8.0 GT/s PCIe" link_width="8"><gpu dev="0"/></pci></cpu></system>
"""
    found = machine(dumps.LSPCI_VVV, dumps.LSPCI_VVV, moved, nccl)
    assert not any("contradict" in note for note in found.notes)
    assert report(found).ceiling_bytes_per_s == pytest.approx(28.807e9, rel=1e-4)
    more = machine(dumps.LSPCI_VVV, nccl.replace("8.0 GT/s", "32.0 GT/s"))
    assert report(more).ceiling_bytes_per_s is None


def test_another_device_at_the_same_address() -> None:
    """A drive where the other source has a GPU: neither; what is there is unknown."""
    drive = "43:00.0 Non-Volatile memory controller [0108]: Example Drive [144d:a824]\n"
    function = machine(dumps.LSPCI_VVV, drive).functions["0000:43:00.0"]
    assert (function.role, function.name, function.link.cap_gt_s) == (Role.OTHER, None, None)
    assert any("device 20b2 or a824" in note for note in machine(dumps.LSPCI_VVV, drive).notes)


def test_files_of_different_machines() -> None:
    """GPUs at other addresses: the sentence says so, and nobody shares, no NIC and no drive is claimed."""
    found = machine(dumps.LSPCI_VVV, dumps.HWLOC)
    assert any("not be of one machine" in note and "2 and 2 GPUs, 0 of them" in note for note in found.notes)
    answers = [report(found, index) for index in range(4)]
    assert {a.all_ranks_ceiling_bytes_per_s for a in answers} == {a.nic for a in answers} == {None}
    assert {a.legs for a in answers} == {()}
    assert all(f.code != "shared-uplink" for a in answers for f in a.findings)
    assert machine(dumps.LSPCI_VVV, dumps.TOPO).mixed is None


def test_two_parts_of_one_list_are_no_proof_of_two_machines() -> None:
    """Other GPUs and no contradiction: a doubt, with the way out; other devices at the same addresses are a fact."""
    second = f"8{dumps.LSPCI_VVV[1:]}".replace("\n4", "\n8").replace("=4", "=8")
    parts, whole = machine(dumps.LSPCI_VVV, second), machine(dumps.LSPCI_VVV + "\n" + second)
    (doubt,) = [note for note in parts.notes if "of one machine" in note]
    assert "may not be" in doubt
    assert "put them into one file" in doubt
    assert whole.mixed is None
    assert len(whole.gpus) == 4
    other = machine(dumps.LSPCI_VVV, "\n".join(f"{a.removeprefix('0000:')} Serial controller [0700]: Example [abcd:1234]"
                                               for a in machine(dumps.LSPCI_VVV).functions) + "\n")  # fmt: skip
    assert any("these files are not of one machine" in note for note in other.notes)


NIC = """
4a:00.0 Ethernet controller [0200]: Mellanox Technologies Example NIC [15b3:101b]
\tNUMA node: 1
\tCapabilities: [70] Express (v2) Endpoint, MSI 00
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L1
\t\tLnkSta:\tSpeed 16GT/s (ok), Width x16 (ok)
"""
TOPO = dumps.TOPO.replace("PIX", "NODE").replace("PXB", "NODE")


def test_more_sources_tell_no_less() -> None:
    """topo -m names the NIC, lspci knows where one is: the rail gets the name, and the legs stay."""
    alone, joined = machine(dumps.LSPCI_VVV + NIC), machine(dumps.LSPCI_VVV + NIC, TOPO)
    assert report(joined).nic == "mlx5_0"
    assert [leg.device for leg in report(joined).legs] == [leg.device for leg in report(alone).legs]
    assert "4a:00.0" in [leg.device for leg in report(joined).legs]
    assert "4a:00.0" in " ".join(paths_of(joined, joined.gpus[0]).ways[0].cells)


def test_gpus_that_two_sources_number_are_counted_once() -> None:
    """topo -m and a log both say GPU 0 and 1, and so does the bus: nothing is missing."""
    log = dumps.SUPERBENCH + dumps.SUPERBENCH.replace("gpu0", "gpu1")
    assert not any("another source names" in note for note in machine(dumps.LSPCI_VVV, dumps.TOPO, log).notes)
    third = dumps.SUPERBENCH.replace("gpu0", "gpu2")
    assert any("names 3 GPUs, the bus lists 2" in note for note in machine(dumps.LSPCI_VVV, dumps.TOPO, third).notes)


NUMBERED = """\
<system version="1">
<cpu numaid="{0}"><pci busid="0000:99:00.0" class="0x030200" vendor="0x10de" device="0x2330"><gpu dev="0"/></pci></cpu>
<cpu numaid="{1}"><pci busid="0000:17:00.0" class="0x030200" vendor="0x10de" device="0x2330"><gpu dev="1"/></pci></cpu>
</system>
"""
LISTED = lspci("17:00.0 gpu", "99:00.0 gpu").replace("\tNUMA node: 0\n", "")


@pytest.mark.parametrize("nodes", [(0, 1), (1, 0)])
def test_number_0_of_the_weaker_source_is_a_number(nodes: tuple[int, int]) -> None:
    """NCCL's GPU 0 and node 0 stay beside a stronger source that tells neither: no count turns round, no node is lost."""
    nccl = NUMBERED.format(*nodes)
    for texts in ((nccl,), (nccl, LISTED), (LISTED, nccl)):
        found = machine(*texts)
        assert [(gpu.index, (gpu.address or "")[5:7], gpu.numa_node) for gpu in found.gpus] == [
            (0, "99", nodes[0]), (1, "17", nodes[1]),
        ]  # fmt: skip


def test_a_number_is_no_empty_field() -> None:
    """Every numeric field of a function, 0 in one of two sources: joined it is 0, in the stronger one and in the weaker."""
    for name in ("numa_node", "gpu_index", "smi_index", "iommu_group", "nvlinks", "virtual_functions"):
        zero, unset, other = (Function(address="0000:01:00.0", **{name: value}) for value in (0, None, 5))
        assert getattr(join_functions(unset, zero), name) == 0
        assert getattr(join_functions(zero, unset), name) == 0
        assert getattr(join_functions(zero, other), name) in (0, None)  # the stronger one's, or nobody's
