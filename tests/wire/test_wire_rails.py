"""Which NIC and which node belong to a GPU, which GPU of another machine is its peer, and who shares an uplink."""

import pytest
import wire_dumps as dumps
from wire_machines import machine, report

from hinan.wire.facts.placement import node_for_gpu
from hinan.wire.machine import sample
from hinan.wire.paths.hotpath import paths_of
from hinan.wire.paths.rail import Peer, Rail, nic_for_gpu, peer_on_rail, rails
from hinan.wire.paths.shares import fair_shares


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


def test_memory_only_node_is_replaced_by_the_nearest_with_cpus() -> None:
    """A GPU said to be on node 10 gets the nearest node with CPUs."""
    topo = dumps.TOPO.replace("1,3-4\t\t10", "10\t\t10")
    placement = node_for_gpu(machine(topo, dumps.NUMACTL), 1)
    assert placement.node == 1
    assert "no CPUs" in placement.why


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


def test_a_nic_behind_a_redirect_is_the_farther_one() -> None:
    """Of two NICs behind the GPU's switch the one that ACS does not send up to the root; both redirected are alike."""
    start, end = (dumps.LSPCI_VVV.index(f"\n{block} ") for block in ("42:02.0", "43:00.0"))
    port = (
        dumps.LSPCI_VVV[start:end]
        .replace("42:02.0", "42:03.0")
        .replace("secondary=45, subordinate=45", "secondary=46, subordinate=46")
    )
    nics = "".join(
        f"\n{bus}:00.0 Infiniband controller [0207]: Mellanox Technologies MT2910 Family [ConnectX-7] [15b3:1021]\n"
        "\tCapabilities: [60] Express (v2) Endpoint, MSI 00\n"
        "\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported\n"
        for bus in ("45", "46")
    )
    drive = dumps.LSPCI_VVV.index("\n45:00.0 ")
    text = dumps.LSPCI_VVV[:end] + port + dumps.LSPCI_VVV[end:drive] + nics
    for redirecting, near in (("42:02.0", "46:00.0"), ("42:03.0", "45:00.0")):
        at = text.index(f"\n{redirecting} ")
        rail = nic_for_gpu(machine(text[:at] + text[at:].replace("ReqRedir-", "ReqRedir+", 1)), 0)
        assert (rail.nic, rail.why) == (near, "same switch")
    both = [nic_for_gpu(machine(text.replace("ReqRedir-", "ReqRedir+")), index) for index in (0, 1)]
    assert [rail.nic for rail in both] == ["45:00.0", "46:00.0"]
    assert "by way of the root complex" in both[0].why
