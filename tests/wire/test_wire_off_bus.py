"""A GPU that fell off the bus, or that only other sources name: what is told of it, and what is not claimed."""

import pytest
import wire_dumps as dumps

from hinan.wire.checks.case import Question
from hinan.wire.checks.check import check_machine
from hinan.wire.machine import sources
from hinan.wire.paths.hotpath import paths_of
from hinan.wire.show.render import render
from hinan.wire.show.report import report_gpu

NCCL_OF_BOTH = """\
<system version="1">
  <cpu numaid="1" arch="x86_64">
    <pci busid="0000:43:00.0" class="0x030200" vendor="0x10de" device="0x20b2" link_speed="16.0 GT/s PCIe" link_width="16">
      <gpu dev="0" sm="80" rank="0" gdr="1"/>
    </pci>
    <pci busid="0000:44:00.0" class="0x030200" vendor="0x10de" device="0x20b2" link_speed="16.0 GT/s PCIe" link_width="16">
      <gpu dev="1" sm="80" rank="1" gdr="1"/>
    </pci>
  </cpu>
</system>
"""


def dead(mark: str) -> str:
    """dumps.LSPCI_VVV in which GPU 44:00.0 answers nothing, as lspci prints it."""
    head = "44:00.0 3D controller [0302]: NVIDIA Corporation GA100 [Example A100] [10de:20b2]"
    before, _, rest = dumps.LSPCI_VVV.partition(head)
    _, _, after = rest.partition("\n\n")
    return before + head + mark + "\n\n" + after


OFF_BUS_MARKS = (
    " (rev ff) (prog-if ff)\n\t!!! Unknown header type 7f",
    " (rev a1)\n\t!!! Unknown header type 7f",
    " (rev ff)",
)


@pytest.mark.parametrize("mark", OFF_BUS_MARKS)
def test_a_gpu_that_does_not_answer(mark: str) -> None:
    """Config space of all ones: one finding, no ceiling for it, and the whole uplink for the other GPU."""
    machine = sources.read_texts([dead(mark)])
    (finding,) = check_machine(machine, Question(state_bytes=10**10))
    assert (finding.code, finding.gpu, finding.at) == ("gpu-off-bus", 1, "44:00.0")
    assert "lspci says" in finding.evidence
    assert "Xid 79" in finding.fix
    alive, lost = (report_gpu(machine, gpu, Question()) for gpu in machine.gpus)
    assert lost.ceiling_bytes_per_s is lost.all_ranks_ceiling_bytes_per_s is None
    assert alive.all_ranks_ceiling_bytes_per_s == alive.ceiling_bytes_per_s


@pytest.mark.parametrize("mark", OFF_BUS_MARKS)
def test_a_gpu_that_does_not_answer_has_no_rate(mark: str) -> None:
    """On no hop, on no leg, not from an old measurement, and not for GPUDirect; the other GPU's legs stay."""
    machine = sources.read_texts([dead(mark), dumps.NVBANDWIDTH])
    alive, lost = (report_gpu(machine, gpu, Question(state_bytes=10**9)) for gpu in machine.gpus)
    assert (len(alive.legs), lost.legs) == (2, ())
    assert lost.measured_bytes_per_s is lost.measured_seconds is lost.seconds is None
    assert {hop.ceiling_bytes_per_s for hop in lost.hops} == {None}
    assert not any("GB/s" in line for line in render(lost, machine))
    assert paths_of(machine, machine.gpus[1]).rdma == "no: the GPU does not answer on the bus"


WITHOUT_GPU_1 = (
    dumps.LSPCI_VVV[: dumps.LSPCI_VVV.index("44:00.0 3D")] + dumps.LSPCI_VVV[dumps.LSPCI_VVV.index("45:00.0 Non") :]
)


@pytest.mark.parametrize(("other", "who"), [(NCCL_OF_BOTH, "NCCL topology"), (dumps.NVBANDWIDTH, "a measurement")])
def test_a_gpu_that_only_others_name(other: str, who: str) -> None:
    """Its port is on the bus and empty: it is lost. With the port gone too, the list may be cut, and that is a note."""
    found = check_machine(sources.read_texts([WITHOUT_GPU_1, other]), Question())
    (lost,) = [f for f in found if f.code == "gpu-off-bus"]
    assert lost.evidence == f"{who} names it; 42:01.0 is on the bus, with nothing behind it"
    assert lost.at == "44:00.0"
    cut = WITHOUT_GPU_1[: WITHOUT_GPU_1.index("42:01.0")] + WITHOUT_GPU_1[WITHOUT_GPU_1.index("42:02.0") :]
    for text in (cut, dumps.LSPCI_VVV):
        assert "gpu-off-bus" not in [f.code for f in check_machine(sources.read_texts([text, other]), Question())]


def test_more_gpus_by_number_are_a_note() -> None:
    """nvidia-smi names two, this lspci lists one: nobody can say whether one is lost or the list is cut."""
    topo = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV12\t0-3\t1\nGPU1\tNV12\t X \t0-3\t1\n"
    machine = sources.read_texts([WITHOUT_GPU_1, topo])
    assert [f.code for f in check_machine(machine, Question())] == []
    assert any("names 2 GPUs, the bus lists 1" in note for note in machine.notes)
    assert not any("the bus lists" in note for note in sources.read_texts([dumps.LSPCI_VVV, topo]).notes)


def test_another_machines_file_is_no_lost_gpu() -> None:
    """Not one GPU in common: then it is the file that is wrong."""
    for other in (dumps.NCCL, dumps.HWLOC, dumps.NVBANDWIDTH.replace("00000000:4", "00000000:5")):
        found = check_machine(sources.read_texts([dumps.LSPCI_VVV, other]), Question())
        assert "gpu-off-bus" not in [f.code for f in found]
