"""Whose figures they are: logs that name another product are not taken, and each vendor's tools count their own GPUs."""

import pytest
import wire_dumps as dumps

from hinan.wire.checks.case import Question
from hinan.wire.checks.check import check_machine
from hinan.wire.facts.model import Machine
from hinan.wire.facts.numbering import surely_differ
from hinan.wire.machine import capture, sources
from hinan.wire.paths.rail import nic_for_gpu
from hinan.wire.show.answer import Report
from hinan.wire.show.report import report_gpu


def report(machine: Machine, index: int = 0) -> Report:
    """The report of one GPU."""
    return report_gpu(machine, machine.gpus[index], Question())


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        ("Tesla V100-PCIE-32GB", "H100 SXM5 80GB", True),
        ("NVIDIA H100 80GB HBM3", "NVIDIA Corporation GH100 [H100 SXM5 80GB]", False),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "GA100 [A100 SXM4 80GB]", False),
        ("NVIDIA RTX A6000", "AD102GL [RTX 6000 Ada Generation]", True),
        ("NVIDIA RTX 6000 Ada Generation", "AD102GL [RTX 6000 Ada Generation]", False),
        ("AMD Radeon RX 6900 XT", "Navi 21 [Radeon RX 6800/6800 XT / 6900 XT]", False),
        ("NVIDIA L4", "TU104GL [Tesla T4]", True),
        ("NVIDIA L40S", "AD102GL [L40]", False),
        ("NVIDIA A16", "GA107GL [A2 / A16]", False),
        ("NVIDIA H200", "H200 SXM 141GB", False),
        ("AMD Instinct MI250X / MI250", "Aldebaran/MI200 [Instinct MI210]", True),
        ("NVIDIA GH200 480GB", "GH100 [GH200 120GB / 480GB]", False),
        ("NVIDIA Graphics Device", "H100 SXM5 80GB", False),
        ("NVIDIA H100", "NVIDIA Corporation Device 2330", False),
        ("AMD Radeon HD 7970", "Tahiti [Radeon HD 7000 Series]", False),
        (None, "H100", False),
    ],
)
def test_names(one: str | None, other: str, differ: bool) -> None:
    """Two names are of two products only where both tell a model, and not the same."""
    assert surely_differ(one, other) == surely_differ(other, one) == differ


NAMED = {
    "bandwidthTest": dumps.BANDWIDTH_TEST.replace("NVIDIA Example", "Tesla V100-PCIE-32GB"),
    "nvbandwidth": dumps.NVBANDWIDTH.replace("NVIDIA Example", "Tesla V100-PCIE-32GB"),
}


@pytest.mark.parametrize("tool", NAMED)
def test_a_log_that_names_another_gpu_is_not_taken(tool: str) -> None:
    """By number or by address: no measurement, no finding from it, and a note that says why."""
    machine = sources.read_texts([dumps.LSPCI_VVV, NAMED[tool]])
    for found in (machine, sources.read_texts([capture.write(machine)])):
        answer = report(found)
        assert (answer.measured_bytes_per_s, answer.labels["measured_bytes_per_s"]) == (None, "unknown")
        assert any(f"{tool} measured another GPU (Tesla V100-PCIE-32GB; this one is A100" in note for note in answer.notes)
        assert {f.code for f in check_machine(found, Question())} == {"shared-uplink"}
    same = NAMED[tool].replace("Tesla V100-PCIE-32GB", "NVIDIA A100-SXM4-80GB")
    assert report(sources.read_texts([dumps.LSPCI_VVV, same])).measured_bytes_per_s is not None


def gpu(address: str, named: str, node: int) -> str:
    """A GPU on its own, as lspci -vvv prints it."""
    return (
        f"{address} VGA compatible controller [0300]: {named} (rev a1)\n\tNUMA node: {node}\n"
        "\tCapabilities: [60] Express (v2) Endpoint, MSI 00\n\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L1\n\n"
    )


RADEON = gpu("03:00.0", "Advanced Micro Devices, Inc. [AMD/ATI] Example [Radeon RX 7900 XTX] [1002:744c]", 0)
GEFORCE = gpu("0a:00.0", "NVIDIA Corporation AD102 [GeForce RTX 4090] [10de:2684]", 0)
SECOND = gpu("0b:00.0", "NVIDIA Corporation AD102 [GeForce RTX 4090] [10de:2684]", 0)
TOPO = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tPHB\t0-3\t0\nGPU1\tPHB\t X \t0-3\t0\n"
LOG = dumps.BANDWIDTH_TEST.replace("NVIDIA Example", "NVIDIA GeForce RTX 4090")


def test_each_vendors_tools_count_their_own() -> None:
    """CUDA's device 0 is our GPU 1, behind a Radeon; so are the rows of topo -m and gdscheck's lines."""
    machine = sources.read_texts([RADEON + GEFORCE + SECOND, LOG, TOPO, dumps.GDSCHECK.format(compat="false")])
    for found in (machine, sources.read_texts([capture.write(machine)])):
        assert [report(found, index).measured_bytes_per_s for index in range(3)] == [None, 26.3e9, None]
        assert [bool(each.relations) for each in found.gpus] == [False, True, True]
        assert len(found.gpus) == 3
        assert not any("measured another GPU" in note for note in report(found).notes)
    unnamed = LOG.replace("NVIDIA GeForce RTX 4090", "Graphics Device")
    assert [report(sources.read_texts([RADEON + GEFORCE, unnamed]), i).measured_bytes_per_s for i in (0, 1)] == [
        None,
        26.3e9,
    ]


def test_a_cuda_log_is_not_of_amds_gpus() -> None:
    """Whatever its number: there is no NVIDIA GPU here."""
    answer = report(sources.read_texts([RADEON, LOG]))
    assert answer.measured_bytes_per_s is None
    assert any("measured another GPU" in note for note in answer.notes)


REORDERED = """\
<system version="1"><cpu numaid="0" arch="x86_64">
  <pci busid="0000:01:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
    <pci busid="0000:03:00.0" class="0x030200" vendor="0x10de" device="0x20b2" link_speed="16.0 GT/s PCIe" link_width="16">
      <gpu dev="{low}" rank="1"/></pci>
  </pci>
  <pci busid="0000:81:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
    <pci busid="0000:83:00.0" class="0x030200" vendor="0x10de" device="0x20b2" link_speed="8.0 GT/s PCIe" link_width="16">
      <gpu dev="{high}" rank="0"/></pci>
  </pci>
</cpu></system>
"""
NEAR = (
    "\tGPU0\tGPU1\tmlx5_0\tmlx5_1\tCPU Affinity\tNUMA Affinity\n"
    "GPU0\t X \tSYS\tPIX\tSYS\t0-3\t0\nGPU1\tSYS\t X \tSYS\tPIX\t4-7\t0\n"
)


def test_topo_m_counts_by_address_whatever_cuda_shows() -> None:
    """CUDA_VISIBLE_DEVICES=1,0 turns NCCL's numbers round, and not those of nvidia-smi: 03:00.0 has mlx5_0."""
    for low, high in ((1, 0), (0, 1)):
        found = sources.read_texts([REORDERED.format(low=low, high=high), NEAR])
        for machine in (found, sources.read_texts([capture.write(found)])):
            rails = {gpu.address: nic_for_gpu(machine, gpu.index).nic for gpu in machine.gpus}
            assert rails == {"0000:03:00.0": "mlx5_0", "0000:83:00.0": "mlx5_1"}


def test_numbers_of_two_orders_name_no_gpu() -> None:
    """A log that tells numbers only may be of either GPU: not taken, no finding from it, and said. Addresses count."""
    log = dumps.BANDWIDTH_TEST.replace("NVIDIA Example", "NVIDIA A100-SXM4-80GB")
    turned = sources.read_texts([REORDERED.format(low=1, high=0), log])
    assert [report(turned, index).measured_bytes_per_s for index in (0, 1)] == [None, None]
    assert check_machine(turned, Question()) == ()
    assert any(
        "bandwidthTest numbers GPUs, and a topology numbers them in another order" in n for n in report(turned).notes
    )
    straight = sources.read_texts([REORDERED.format(low=0, high=1), log])
    assert report(straight).measured_bytes_per_s == 26.3e9
    placed = dumps.NVBANDWIDTH.replace(":43:", ":03:").replace(":44:", ":83:").replace("NVIDIA Example", "NVIDIA A100")
    machine = sources.read_texts([REORDERED.format(low=1, high=0), placed])
    rates = {gpu.address: report_gpu(machine, gpu, Question()).measured_bytes_per_s for gpu in machine.gpus}
    assert rates == {"0000:03:00.0": 26.1e9, "0000:83:00.0": 13.05e9}
