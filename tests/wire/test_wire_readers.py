"""Every reader on a small machine of the project's own."""

import json
from itertools import combinations

import pytest
import wire_dumps as dumps

from hinan.core.errors import ConfigError, FormatError
from hinan.wire import capture, sample, sources
from hinan.wire.case import Question
from hinan.wire.hotpath import paths_of
from hinan.wire.measured import best_measurement
from hinan.wire.model import Machine, Port, Role
from hinan.wire.path import fair_shares, path_ceiling, path_up
from hinan.wire.placement import node_for_gpu
from hinan.wire.rail import Peer, Rail, nic_for_gpu, peer_on_rail, rails
from hinan.wire.readers.stopwatches import half_bandwidth_bytes
from hinan.wire.report import Report, report_gpu


def machine(*texts: str) -> Machine:
    """Texts as one machine."""
    return sources.read_texts(texts)


def report(found: Machine, index: int = 0, **question: object) -> Report:
    """The report of GPU `index`."""
    gpu = next(g for g in found.gpus if g.index == index)
    return report_gpu(found, gpu, Question(**question))  # type: ignore[arg-type]


def test_lspci_verbose() -> None:
    """Path, ports, capability and state, MPS, windows and BARs come from the blocks; a BMC is no GPU."""
    found = machine(dumps.LSPCI_VVV)
    answer = report(found, state_bytes=10**9)
    assert [hop.address for hop in answer.hops] == ["43:00.0", "42:00.0", "41:00.0", "40:01.0"]
    assert [hop.kind for hop in answer.hops] == ["gpu", "downstream port", "upstream port", "root port"]
    first = answer.hops[0]
    assert (first.cap_gt_s, first.now_gt_s, first.width, first.mps) == (16.0, 2.5, 16, 256)
    assert answer.numa_node == 1
    assert len(found.gpus) == 2
    gpu = found.functions["0000:43:00.0"]
    assert [(w.bar, w.size_bytes) for w in gpu.bars] == [(0, 16 << 20), (1, 128 << 30)]
    assert gpu.virtual_functions == 2
    assert [w.prefetchable for w in found.functions["0000:42:00.0"].windows] == [True]
    assert found.functions["0000:40:01.0"].iommu_group == 7


def test_idle_link_is_no_finding_and_shared_uplink_is_one() -> None:
    """2.5 GT/s x16 at rest is not alarmed; two GPUs on one uplink are told, with half the rate each."""
    answer = report(machine(dumps.LSPCI_VVV), state_bytes=int(28.8e9))
    assert [f.code for f in answer.findings] == ["shared-uplink"]
    assert answer.ceiling_bytes_per_s == pytest.approx(28.807e9, rel=1e-4)
    assert answer.all_ranks_ceiling_bytes_per_s == pytest.approx(28.807e9 / 2, rel=1e-4)
    assert answer.findings[0].effect_s == pytest.approx(1.0, rel=1e-2)


def test_lspci_without_its_indentation() -> None:
    """A paste that lost its tabs: VF BARs under the SR-IOV capability still are no BARs of the function."""
    flat = "\n".join(line.strip() for line in dumps.LSPCI_VVV.splitlines()) + "\n"
    assert machine(flat).functions["0000:43:00.0"].bars == machine(dumps.LSPCI_VVV).functions["0000:43:00.0"].bars
    assert report(machine(flat)).ceiling_bytes_per_s == report(machine(dumps.LSPCI_VVV)).ceiling_bytes_per_s


def test_nvswitches_are_no_gpus() -> None:
    """By class 0680, or by device ID where a tree prints no class."""
    tree = "-[0000:00]-+-01.0  NVIDIA Corporation Device [10de:22a3]\n           \\-02.0  NVIDIA Corporation Device 2330\n"
    found = machine(tree)
    assert [f.role for _, f in sorted(found.functions.items())] == [Role.NVSWITCH, Role.GPU]
    listed = machine("0005:00:00.0 Bridge [0680]: NVIDIA Corporation Device [10de:1af1] (rev a1)\n")
    assert listed.functions["0005:00:00.0"].role is Role.NVSWITCH


def test_rails() -> None:
    """The NIC of a GPU: same switch by the bus, else the nearest label; a tie says so."""
    assert nic_for_gpu(machine(dumps.NCCL), 1) == Rail("mlx5_3", "same switch", "0000:33:00.0")
    found = machine(dumps.TOPO)
    assert [nic_for_gpu(found, index).nic for index in (0, 1)] == ["mlx5_0", "mlx5_4"]
    grace = machine(dumps.TOPO.replace("PIX", "SYS").replace("PXB", "SYS"))
    assert [nic_for_gpu(grace, index) for index in (0, 1)] == [
        Rail("mlx5_0", "SYS in topo -m, one of 2 alike"), Rail("mlx5_4", "SYS in topo -m, one of 2 alike")
    ]  # fmt: skip
    assert nic_for_gpu(machine(dumps.NUMACTL), 0).nic is None


PAIRS = """\
<system version="1">
  <cpu numaid="0" arch="x86_64">
    <pci busid="0000:10:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:11:00.0" class="0x030200" vendor="0x10de" device="0x20b2"><gpu dev="0"/></pci>
      <pci busid="0000:12:00.0" class="0x030200" vendor="0x10de" device="0x20b2"><gpu dev="1"/></pci>
      <pci busid="0000:13:00.0" class="0x020700" vendor="0x15b3"><nic><net name="mlx5_2"/></nic></pci>
      <pci busid="0000:14:00.0" class="0x020700" vendor="0x15b3"><nic><net name="mlx5_10"/></nic></pci>
    </pci>
    <pci busid="0000:20:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:21:00.0" class="0x030200" vendor="0x10de" device="0x20b2"><gpu dev="2"/></pci>
      <pci busid="0000:22:00.0" class="0x030200" vendor="0x10de" device="0x20b2"><gpu dev="3"/></pci>
      <pci busid="0000:23:00.0" class="0x020700" vendor="0x15b3"><nic><net name="mlx5_11"/></nic></pci>
    </pci>
  </cpu>
</system>
"""


def test_nics_of_one_switch_are_taken_in_turns() -> None:
    """Two GPUs and two NICs behind one switch: one each; two GPUs and one NIC: both take it."""
    found = machine(PAIRS)
    assert [nic_for_gpu(found, index).nic for index in range(4)] == ["mlx5_2", "mlx5_10", "mlx5_11", "mlx5_11"]
    assert rails(found) == {0: 0, 1: 1, 2: 2, 3: 2}
    assert [leg.device for leg in report(found, 1).legs] == ["14:00.0", "14:00.0"]
    assert "14:00.0" in paths_of(found, found.gpus[1]).rdma


def test_peers_are_on_the_same_rail() -> None:
    """Whatever number the other machine gives its GPUs: same rail, and the same place among those that share it."""
    here, swapped = machine(PAIRS), PAIRS
    for dev, other in enumerate((2, 3, 1, 0)):
        swapped = swapped.replace(f'<gpu dev="{dev}"/>', f'<gpu dev="x{other}"/>')
    there = machine(swapped.replace('dev="x', 'dev="'))
    assert [peer_on_rail(here, index, there) for index in range(4)] == [
        Peer(2, "rail 0"), Peer(3, "rail 1"), Peer(0, "rail 2"), Peer(1, "rail 2")
    ]  # fmt: skip
    assert peer_on_rail(here, 9, there).gpu is None
    assert peer_on_rail(here, 0, machine(dumps.NUMACTL)) == Peer(None, "the other machine has no GPU on rail 0")
    assert [peer_on_rail(sample.machine(), i, sample.machine()).gpu for i in range(8)] == list(range(8))


def test_lspci_tree() -> None:
    """The tree gives parents; roles come from names; ports alternate; nothing is known of speeds."""
    found = machine(dumps.LSPCI_TV)
    by_role = {role: [a for a, f in found.functions.items() if f.role is role] for role in Role}
    assert by_role[Role.GPU] == ["0000:01:00.0", "0000:66:00.0"]
    assert by_role[Role.NVME] == ["0000:02:00.0", "0000:63:00.0"]
    assert by_role[Role.NIC] == ["0000:64:00.0"]
    path = path_up(found, "0000:66:00.0")
    assert [hop.address for hop in path.hops[1:]] == ["0000:65:00.0", "0000:62:08.0", "0000:61:00.0", "0000:60:01.1"]
    assert [hop.port for hop in path.hops[2:]] == [Port.DOWN, Port.UP, Port.ROOT]
    assert path.complete
    assert path_ceiling(path) == (None, None)


def test_hwloc() -> None:
    """Bandwidth is the link's present one; GPU numbers are NVML's; nodes and distances are read."""
    found = machine(dumps.HWLOC)
    answer = report(found, 1)
    assert answer.gpu is not None
    assert (answer.gpu.address, answer.gpu.name) == ("13:00.0", "Example V100")
    assert answer.numa_node == 0
    assert answer.hops[0].cap_gt_s is None
    assert (answer.hops[0].now_gt_s, answer.hops[0].width) == (8.0, 16)
    assert answer.ceiling_bytes_per_s == pytest.approx(14.404e9, rel=1e-4)
    assert answer.all_ranks_ceiling_bytes_per_s == pytest.approx(7.202e9, rel=1e-4)
    assert found.nodes[0].distances == {0: 10, 1: 21}
    assert found.nic_names == {"mlx5_0": "0000:21:00.0"}
    assert found.functions["0000:20:00.0"].link.now_bytes_per_s is None  # pci_link_speed="0.000000" is unknown


def test_hwloc_idle_gpu_has_no_ceiling_and_no_alarm() -> None:
    """A GPU link read at its idle speed (4 GB/s, told by both ends) is neither a 3.7 GB/s ceiling nor a finding."""
    gpu = 'a1 00" pci_link_speed="15.753846"'
    port = 'pci_busid="0000:12:00.0" pci_type="0604 [10b5:9781] [10b5:9781] b0 00" pci_link_speed="15.753846"'
    assert port in dumps.HWLOC
    slow = dumps.HWLOC.replace(gpu, gpu.replace("15.753846", "4.000000"))
    answer = report(machine(slow.replace(port, port.replace("15.753846", "4.000000"))), 1)
    assert answer.hops[0].cap_gt_s is None
    assert answer.ceiling_bytes_per_s is None
    assert answer.findings == ()


def test_nccl_names_the_slow_hop_above_the_gpu() -> None:
    """A 16 GT/s GPU behind an 8 GT/s uplink: the uplink is narrowest. Class 1200 is a GPU."""
    answer = report(machine(dumps.NCCL), 0)
    assert answer.gpu is not None
    assert (answer.gpu.address, answer.narrowest) == ("42:00.0", "40:00.0")
    assert answer.ceiling_bytes_per_s == pytest.approx(14.404e9, rel=1e-4)
    assert answer.mps_bytes is None
    assert answer.assumed_mps_bytes == 256


def test_nccl_suspect_capability_is_flagged_and_not_used() -> None:
    """2.5 GT/s above a gen 5 GPU is idle or broken; it bounds nothing and is told."""
    answer = report(machine(dumps.NCCL), 2)
    assert answer.ceiling_bytes_per_s == pytest.approx(57.614e9, rel=1e-4)
    assert [(f.code, f.at) for f in answer.findings] == [("link-suspect", "60:00.0")]
    assert answer.hops[1].cap_gt_s is None
    assert answer.hops[1].now_gt_s == 2.5


def test_nccl_empty_speed_is_unknown() -> None:
    """link_speed="" and link_width="0" stay unknown, up to the seconds."""
    answer = report(machine(dumps.NCCL), 3, state_bytes=10**9)
    assert answer.ceiling_bytes_per_s is None
    assert answer.seconds is None
    assert answer.hops[0].width is None
    assert answer.labels["ceiling_bytes_per_s"] == "unknown"


def test_topo_matrix() -> None:
    """ANSI header, tabs, legend names; a list of nodes stays a list; N/A is unknown."""
    found = machine(dumps.TOPO)
    assert [g.numa_node for g in found.gpus] == [0, 1]
    assert found.gpus[1].numa_affinity == (1, 3, 4)
    assert found.gpus[1].memory_node == 10
    assert found.gpus[0].relations == {"GPU1": "NV18", "mlx5_0": "PIX", "mlx5_4": "SYS"}
    assert report(found).ceiling_bytes_per_s is None


def test_topo_matrix_in_single_spaces() -> None:
    """A matrix whose spacing was lost, and an old one without the NUMA columns."""
    lost = "\n".join(" ".join(line.split()) for line in dumps.TOPO.splitlines()[:3]) + "\n"
    assert [g.numa_node for g in machine(lost).gpus] == [0, 1]
    old = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPHB\t0-7\nGPU1\tPHB\t X \t0-7\n"
    assert [(g.numa_node, g.relations) for g in machine(old).gpus] == [(None, {"GPU1": "PHB"}), (None, {"GPU0": "PHB"})]


def test_emulated_ports_bound_nothing() -> None:
    """QEMU's root port says x1 of whatever speed; the GPU behind it is as fast as its own link, as told by the VM."""
    text = (
        "00:02.0 PCI bridge [0604]: Red Hat, Inc. QEMU PCIe Root port [1b36:000c]\n"
        "\tBus: primary=00, secondary=01, subordinate=01, sec-latency=0\n"
        "\tCapabilities: [54] Express (v2) Root Port (Slot+), MSI 00\n"
        "\t\tLnkCap:\tPort #16, Speed 8GT/s, Width x1, ASPM L0s\n\n"
        "01:00.0 3D controller [0302]: NVIDIA Corporation GA100 [10de:20b2] (rev a1)\n"
        "\tCapabilities: [60] Express (v2) Endpoint, MSI 00\n"
        "\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported\n"
    )
    answer = report(machine(text))
    assert answer.ceiling_bytes_per_s == pytest.approx(28.807e9, rel=1e-4)
    assert answer.hops[1].cap_gt_s is None
    assert answer.virtual


def test_numactl() -> None:
    """Nodes of memory only are known to be so; distances follow the header's numbering."""
    found = machine(dumps.NUMACTL)
    assert [n.index for n in found.nodes] == [0, 1, 10]
    assert found.nodes[2].cpus == ()
    assert found.nodes[2].distances == {0: 80, 1: 40, 10: 10}
    assert found.nodes[1].free_bytes == 1024 << 20


def test_memory_only_node_is_replaced_by_the_nearest_with_cpus() -> None:
    """A GPU said to be on node 10 gets the nearest node with CPUs."""
    topo = dumps.TOPO.replace("1,3-4\t\t10", "10\t\t10")
    placement = node_for_gpu(machine(topo, dumps.NUMACTL), 1)
    assert placement.node == 1
    assert "no CPUs" in placement.why


def test_iomem_nesting_is_by_containment() -> None:
    """The smallest range claims, whatever the indentation; zeros (no root) claim nothing."""
    from hinan.wire.readers.iomem import claimants

    flat = "\n".join(line.strip() for line in dumps.IOMEM.splitlines()) + "\n"
    names = [r.name for r in claimants(machine(flat).iomem, 0xD0010000)]
    assert names == ["PCI Bus 0000:00", "PCI Bus 0000:02", "0000:02:01.0", "e1000"]
    upside_down = "".join(line + "\n" for line in reversed(dumps.IOMEM.splitlines()))
    assert [r.name for r in claimants(machine(upside_down).iomem, 0xD0010000)][:2] == names[:2]
    zeros = machine("00000000-00000000 : System RAM\n  00000000-00000000 : PCI Bus 0000:00\n")
    assert zeros.iomem == ()
    assert "root" in zeros.notes[0]


@pytest.mark.parametrize(("compat", "codes"), [("false", []), ("true", ["gds-compat"])])
def test_gdscheck(compat: str, codes: list[str]) -> None:
    """Capability is a note; compatibility mode is a finding."""
    found = machine(dumps.LSPCI_TV, dumps.GDSCHECK.format(compat=compat))
    answer = report(found)
    assert [f.code for f in answer.findings] == codes
    assert answer.iommu == "off"
    assert any("GDS: possible, unproven" in note for note in answer.notes)


def test_hwloc_1() -> None:
    """Distances of hwloc 1 are shares of a base, in the order of the file, about the NUMA nodes and not the sockets."""
    found = machine(dumps.HWLOC_1)
    assert {node.index: node.distances for node in found.nodes} == {1: {1: 10, 0: 21}, 0: {1: 22, 0: 10}}
    answer = report(found)
    assert (answer.numa_node, [hop.address for hop in answer.hops]) == (1, ["02:00.0", "00:01.0"])
    for broken in (
        dumps.HWLOC_1.replace('<latency value="2.200000"/>', ""),
        dumps.HWLOC_1.replace('value="2.200000"', 'value="far"'),
        dumps.HWLOC_1.replace('nbobjs="2" relative_depth="2"', 'nbobjs="3" relative_depth="2"'),
        dumps.HWLOC_1.replace('relative_depth="2"', 'relative_depth="4"'),
    ):
        assert all(not node.distances for node in machine(broken).nodes)


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
    assert best_measurement(found, found.gpus[0], 0).bytes_per_s == pytest.approx(25.85e9)  # type: ignore[union-attr]
    assert best_measurement(found, found.gpus[0], None).bytes_per_s == pytest.approx(26.10e9)  # type: ignore[union-attr]
    gds = [m for m in machine(dumps.GDSIO).measurements if m.what == "gds_write"]
    assert [(m.gpu_index, round(m.bytes_per_s / 2**30, 1)) for m in gds] == [(1, 22.5)]


def test_half_bandwidth() -> None:
    """n1/2 of an exact t0 + n/B curve is t0 x B."""
    points = [(n, n / (1e-6 + n / 10e9)) for n in (1_000, 5_000, 10_000, 50_000, 100_000, 10**6, 10**7, 10**8)]
    plateau, half = half_bandwidth_bytes(points)  # type: ignore[misc]
    assert plateau == pytest.approx(10e9, rel=0.01)
    assert half == pytest.approx(10_000, rel=0.05)


def test_srat_gives_the_node_of_an_address() -> None:
    """A physical address has one node, by range."""
    from hinan.wire.root_complex import node_of_address

    found = machine(dumps.SRAT)
    assert [node_of_address(found, a)[0] for a in (0x1000, 0x4012345000, 0x4080000000)] == [0, 0, 1]


def test_sources_join_in_any_order() -> None:
    """lspci, topo -m, numactl and nvbandwidth of one machine make one machine, whatever comes first."""
    texts = [dumps.LSPCI_VVV, dumps.NUMACTL, dumps.NVBANDWIDTH, dumps.SRAT]
    assert machine(*texts) == machine(*reversed(texts))


def test_one_paste_with_several_outputs() -> None:
    """A pasted terminal in code fences is read by every reader that knows a part."""
    paste = f"```\n$ lspci -tv\n{dumps.LSPCI_TV}```\n\n```\n$ numactl -H\n{dumps.NUMACTL}```\n"
    found = machine(paste)
    assert found.sources == ("lspci -tv", "numactl -H")
    assert len(found.nodes) == 3


def test_shares_are_max_min_fair() -> None:
    """Who is limited elsewhere leaves the rest of an uplink to the others."""
    text = dumps.LSPCI_VVV.replace(
        "44:00.0 3D controller [0302]: NVIDIA Corporation GA100 [Example A100] [10de:20b2] (rev a1)\n\tNUMA node: 1\n",
        "@",
    )
    head, tail = text.split("@")
    tail = tail.replace("Speed 16GT/s, Width x16", "Speed 16GT/s, Width x4", 1)
    joined = head + "44:00.0 3D controller [0302]: NVIDIA Corporation GA100 [10de:20b2] (rev a1)\n\tNUMA node: 1\n" + tail
    shares = fair_shares(machine(joined), ["0000:43:00.0", "0000:44:00.0"])
    assert shares["0000:44:00.0"] == pytest.approx(28.807e9 / 4, rel=1e-4)
    assert shares["0000:43:00.0"] == pytest.approx(28.807e9 * 3 / 4, rel=1e-4)


def test_unrecognised_is_a_usage_error(tmp_path) -> None:
    """The message lists what is readable."""
    path = tmp_path / "x"
    path.write_text("hello\n")
    with pytest.raises(ConfigError, match="lspci -vvv"):
        sources.read_path(path)


def test_entities_are_refused(tmp_path) -> None:
    """A topology file that declares entities is not expanded."""
    path = tmp_path / "x"
    path.write_text('<!DOCTYPE system [<!ENTITY a "aaaa">]><system version="1">&a;</system>')
    with pytest.raises(ConfigError, match="entities"):
        sources.read_path(path)


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


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("mps_bytes", -256, r">= 128.*mps_bytes"),
        ("mps_bytes", 384, "no power of two"),
        ("numa_node", -1, r">= 0.*numa_node"),
        ("link", {"now_gt_s": -1}, r">= 0.*now_gt_s"),
        ("link", {"cap_gt_s": float("inf")}, "damaged"),
        ("address", "0000:43:00.1", "stands under 0000:43:00.0"),
        ("parent", "somewhere", r"regex.*parent"),
        ("bars", [{"first": 2, "last": 1}], "range from 0x2 to 0x1"),
        ("buses", {"primary": 0, "secondary": 1, "subordinate": 256}, r"<= 255.*buses"),
    ],
)
def test_a_capture_with_what_cannot_be(field: str, value: object, words: str) -> None:
    """It is refused with its place, instead of becoming a figure."""
    document = json.loads(capture.write(machine(dumps.LSPCI_VVV)))
    document["machine"]["functions"]["0000:43:00.0"][field] = value
    with pytest.raises(FormatError, match=words):
        capture.read(json.dumps(document))


def test_what_readers_make_a_capture_can_hold() -> None:
    """Every text's machine comes back as it was; a payload that somebody typed is unknown."""
    for text in (*dumps.ALL_TEXTS, dumps.LSPCI_VVV.replace("MaxPayload 256", "MaxPayload 100000")):
        found = machine(text)
        assert capture.read(capture.write(found)) == found


def test_one_node_of_several_is_not_the_only_one() -> None:
    """An NCCL file that tells the node of one CPU and not of the other: GPUs of the other are on an unknown node."""
    text = NCCL_OF_TWO.format(first="-1", second="1")
    assert [node_for_gpu(machine(text), index).node for index in (0, 1)] == [None, 1]
    assert [node_for_gpu(machine(NCCL_OF_TWO.format(first="0", second="1")), index).node for index in (0, 1)] == [0, 1]


NCCL_OF_TWO = """\
<system version="1">
  <cpu numaid="{first}">
    <pci busid="0000:11:00.0" class="0x030200" vendor="0x10de" device="0x20b2"><gpu dev="0"/></pci>
  </cpu>
  <cpu numaid="{second}">
    <pci busid="0000:21:00.0" class="0x030200" vendor="0x10de" device="0x20b2"><gpu dev="1"/></pci>
  </cpu>
</system>
"""
