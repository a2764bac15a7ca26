"""Every reader of a topology or a setting on a small machine of the project's own; what no reader knows is refused."""

import pytest
import wire_dumps as dumps
from wire_machines import machine, report

from hinan.core.errors import ConfigError
from hinan.wire.facts.model import Port, Role
from hinan.wire.machine import sources
from hinan.wire.paths.path import path_ceiling, path_up


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


def test_srat_gives_the_node_of_an_address() -> None:
    """A physical address has one node, by range."""
    from hinan.wire.machine.root_complex import node_of_address

    found = machine(dumps.SRAT)
    assert [node_of_address(found, a)[0] for a in (0x1000, 0x4012345000, 0x4080000000)] == [0, 0, 1]


def test_one_paste_with_several_outputs() -> None:
    """A pasted terminal in code fences is read by every reader that knows a part."""
    paste = f"```\n$ lspci -tv\n{dumps.LSPCI_TV}```\n\n```\n$ numactl -H\n{dumps.NUMACTL}```\n"
    found = machine(paste)
    assert found.sources == ("lspci -tv", "numactl -H")
    assert len(found.nodes) == 3


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
