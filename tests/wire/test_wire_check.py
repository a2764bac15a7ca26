"""Findings: each rule fires on its evidence and on nothing else."""

import msgspec
import pytest
import wire_dumps as dumps

from hinan.wire import capture, sources
from hinan.wire.case import Question
from hinan.wire.check import check_machine
from hinan.wire.hotpath import paths_of
from hinan.wire.model import IommuMode, Machine
from hinan.wire.render import render
from hinan.wire.report import report_gpu


def codes(text: str, *more: str, **question: object) -> list[str]:
    """Codes of all findings on a machine, without the shared uplink that dumps.LSPCI_VVV always has."""
    machine = sources.read_texts([text, *more])
    found = check_machine(machine, Question(**question))  # type: ignore[arg-type]
    return [f.code for f in found if f.code != "shared-uplink"]


def edited(before: str, after: str, block: str, count: int = 1) -> str:
    """dumps.LSPCI_VVV with an edit inside the block of one function."""
    start = dumps.LSPCI_VVV.index(f"\n{block} ") if not dumps.LSPCI_VVV.startswith(block) else 0
    assert before in dumps.LSPCI_VVV[start:]
    return dumps.LSPCI_VVV[:start] + dumps.LSPCI_VVV[start:].replace(before, after, count)


def test_nothing_on_a_good_machine() -> None:
    """An idle GPU link, a gen 3 drive in a gen 4 slot and SrcValid+ are no findings."""
    assert codes(dumps.LSPCI_VVV, state_bytes=10**10) == []


def test_speed_under_load() -> None:
    """The same idle-looking link, read under load, is a fault, told once for its two ends."""
    assert codes(dumps.LSPCI_VVV, under_load=True) == ["speed-below-capability"]


def test_width() -> None:
    """x8 of x16 is a fault at any time, with its cost."""
    text = edited(
        "LnkSta:\tSpeed 2.5GT/s (downgraded), Width x16", "LnkSta:\tSpeed 2.5GT/s (downgraded), Width x8", "43:00.0"
    )
    machine = sources.read_texts([text])
    finding = next(
        f for f in check_machine(machine, Question(state_bytes=int(28.807e9))) if f.code == "width-below-capability"
    )
    assert (finding.gpu, finding.at) == (0, "43:00.0")
    assert finding.effect_s == pytest.approx(1.0, rel=1e-3)
    assert "x8 of x16" in finding.evidence


def test_uplink_below_both_capabilities() -> None:
    """A switch uplink at 8 of 16 GT/s is flagged as one of two things, unless a measurement proves the path."""
    text = edited("LnkSta:\tSpeed 16GT/s (ok)", "LnkSta:\tSpeed 8GT/s (downgraded)", "41:00.0")
    assert codes(text) == ["link-suspect", "link-suspect"]  # both GPUs use it
    fast = dumps.NVBANDWIDTH.replace("13.05", "26.00")
    assert codes(text, fast) == []


HEADER_7F = "\n\t!!! Unknown header type 7f"
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


def test_measured_below_ceiling() -> None:
    """85 % is the line."""
    assert codes(dumps.LSPCI_VVV, dumps.NVBANDWIDTH) == ["below-ceiling"]
    assert codes(dumps.LSPCI_VVV, dumps.NVBANDWIDTH.replace("13.05", "24.60")) == []
    assert codes(dumps.LSPCI_VVV, dumps.NVBANDWIDTH.replace("13.05", "24.40")) == ["below-ceiling"]


def test_buffer_on_another_node() -> None:
    """The buffer's node is compared with the GPU's; without a buffer nothing is said."""
    assert codes(dumps.LSPCI_VVV, buffer_node=0) == ["wrong-numa-node", "wrong-numa-node"]
    assert codes(dumps.LSPCI_VVV, buffer_node=1) == []


def test_acs_only_between_gpu_and_peer() -> None:
    """ReqRedir on the drive's port is a finding of its switch's GPUs; on a management port it is none."""
    text = edited("ReqRedir-", "ReqRedir+", "42:02.0")
    assert codes(text) == ["acs-redirect", "acs-redirect"]
    management = dumps.LSPCI_VVV.replace(
        "02:00.0 VGA", "82:00.0 PCI bridge: M\n\t\tACSCtl:\tSrcValid- ReqRedir+ CmpltRedir+\n\n02:00.0 VGA"
    )
    assert codes(management) == []


def cost(code: str, text: str, *more: str, gpu: int = 0, **question: object) -> tuple[str, float | None]:
    """Effect in words and in seconds of the one finding of this code for a GPU."""
    machine = sources.read_texts([text, *more])
    found = check_machine(machine, Question(**question))  # type: ignore[arg-type]
    (finding,) = [f for f in found if (f.code, f.gpu) == (code, gpu)]
    return finding.effect, finding.effect_s


def test_a_redirect_costs_what_the_uplink_lacks() -> None:
    """The drive is the narrow hop on both ways: 0 s. Behind an uplink of x1 the way over the root is slower."""
    text = edited("ReqRedir-", "ReqRedir+", "42:02.0")
    assert cost("acs-redirect", text, state_bytes=10**10)[1] == 0.0
    start = text.index("41:00.0 PCI")
    narrow = text[:start] + text[start:].replace("Speed 16GT/s, Width x16", "Speed 16GT/s, Width x2", 1)
    # Completions of 256 B carry 20 B each. The drive's gen 3 x4 is as fast as gen 4 x2.
    gen3_x4, gen4_x1 = 31.508e9 / 8 * 256 / 276, 31.508e9 / 16 * 256 / 276
    assert cost("acs-redirect", narrow, state_bytes=10**10)[1] == pytest.approx(0.0, abs=1e-9)
    thin = narrow.replace("Speed 16GT/s, Width x2", "Speed 16GT/s, Width x1")
    assert cost("acs-redirect", thin, state_bytes=10**10)[1] == pytest.approx(10**10 / gen4_x1 - 10**10 / gen3_x4, rel=1e-3)
    assert cost("acs-redirect", thin)[1] is None


def test_a_translating_iommu_costs_at_most_what_was_measured() -> None:
    """Measured 26.1 of 28.8 GB/s bounds it; without a stopwatch it is a count of translations, and no seconds."""
    machine = sources.read_texts([dumps.LSPCI_VVV])
    text = capture.write(msgspec.structs.replace(machine, iommu_mode=IommuMode.TRANSLATED))
    words, effect_s = cost("iommu-translating", text, state_bytes=80 << 30)
    assert effect_s is None
    assert "20,971,520 translations of 4 KiB pages, or 40,960 of 2 MiB" in words
    words, effect_s = cost("iommu-translating", text, dumps.NVBANDWIDTH, state_bytes=10**10)
    assert effect_s == pytest.approx(1e10 / 26.1e9 - 1e10 / 28.807e9, rel=1e-3)
    assert "at most" in words
    too_fast = dumps.NVBANDWIDTH.replace("26.10", "29.10")
    assert cost("iommu-translating", text, too_fast, state_bytes=10**10)[1] == 0.0


def test_another_node_costs_what_was_measured_there() -> None:
    """Measured on both nodes: the difference. Else the range seen elsewhere, in seconds of this state, as words."""
    words, effect_s = cost("wrong-numa-node", dumps.LSPCI_VVV, buffer_node=0, state_bytes=int(28.807e9))
    assert effect_s is None
    assert "(-0.02 to +4.00 s for this state)" in words
    log = dumps.SUPERBENCH.replace("numa0 25.85", "numa0 13.05")
    words, effect_s = cost("wrong-numa-node", dumps.LSPCI_VVV, log, buffer_node=0, state_bytes=10**10)
    assert effect_s == pytest.approx(1e10 / 13.05e9 - 1e10 / 26.1e9, rel=1e-6)
    assert "measured 13.1 GB/s there, 26.1 on the near node" in words
    one_node = log.replace("gpu0_to_cpu_by_dma_under_numa0 13.05\n", "")
    assert cost("wrong-numa-node", dumps.LSPCI_VVV, one_node, buffer_node=0, state_bytes=10**10)[1] is None


def test_ram_short() -> None:
    """Node 1 has 1 GiB free."""
    assert codes(dumps.LSPCI_VVV, dumps.NUMACTL, state_bytes=10**10) == ["ram-short"]
    assert codes(dumps.LSPCI_VVV, dumps.NUMACTL, state_bytes=10**9) == []
    assert codes(dumps.NUMACTL, state_bytes=10**10) == []  # no GPU: some node has room
    assert codes(dumps.NUMACTL, state_bytes=10**12) == ["ram-short"]


GRACE = """\
0009:00:00.0 PCI bridge [0604]: NVIDIA Corporation Root Port [10de:22b2] (prog-if 00 [Normal decode])
\tBus: primary=00, secondary=01, subordinate=01, sec-latency=0
\tCapabilities: [40] Express (v2) Root Port (Slot-), MSI 00
\t\tLnkCap:\tPort #1, Speed 32GT/s, Width x16, ASPM L1

0009:01:00.0 3D controller [0302]: NVIDIA Corporation GH100 [GH200 120GB / 480GB] [10de:2342] (rev a1)
\tCapabilities: [78] Express (v2) Endpoint, MSI 00
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM L1
\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x1 (downgraded)
"""


def grace(mode: str) -> Machine:
    """A Grace machine whose IOMMU is in `mode`, through a capture file."""
    import json

    from hinan.wire import capture

    document = json.loads(capture.write(sources.read_texts([GRACE])))
    document["machine"]["iommu_mode"] = mode
    return sources.read_texts([json.dumps(document)])


def test_grace_claims_no_pcie_ceiling_and_wants_translation() -> None:
    """On NVLink-C2C no link, width or share is judged, and pass-through is the finding, not translation."""
    assert [f.code for f in check_machine(grace("passthrough"), Question(under_load=True))] == ["iommu-not-translating"]
    assert check_machine(grace("translated"), Question(under_load=True)) == ()


@pytest.mark.parametrize("name", ["NVIDIA GH200 480GB", "NVIDIA GB200", "NVIDIA GB10"])
def test_c2c_by_name(name: str) -> None:
    """nvbandwidth alone: 330 GB/s on Grace is no wrong measurement."""
    text = dumps.NVBANDWIDTH.replace("NVIDIA Example", name).replace("26.10", "330.10").replace("13.05", "115.00")
    machine = sources.read_texts([text])
    assert check_machine(machine, Question(state_bytes=10**9)) == ()


def test_power_nvlink_in_nccl_xml() -> None:
    """An NVLink whose other end is a CPU (tclass 0x068001), and <c2c>, are coherent links."""
    for tag in ('<nvlink target="0000:00:00.0" count="3" tclass="0x068001"/>', '<c2c bw="10" count="1"/>'):
        text = dumps.NCCL.replace(
            '<gpu dev="0" sm="90" rank="0" gdr="1"/>', f'<gpu dev="0" sm="90" rank="0" gdr="1">{tag}</gpu>'
        )
        machine = sources.read_texts([text])
        from hinan.wire.report import report_gpu

        assert report_gpu(machine, machine.gpus[0], Question()).ceiling_bytes_per_s is None


def on_power(bridge: str, gpu: str) -> str:
    """A GPU behind one root port, as lspci -vvv prints them."""
    link = "\t\tLnkCap:\tPort #0, Speed 8GT/s, Width x16, ASPM L1\n\t\tLnkSta:\tSpeed 8GT/s, Width x16\n"
    return (
        f"00:01.0 PCI bridge: {bridge} (prog-if 00 [Normal decode])\n\tBus: primary=00, secondary=01, subordinate=01\n"
        f"\tCapabilities: [40] Express (v2) Root Port (Slot+), MSI 00\n{link}\n"
        f"01:00.0 3D controller: {gpu} (rev a1)\n\tCapabilities: [60] Express (v2) Endpoint, MSI 00\n{link}"
    )


@pytest.mark.parametrize(
    ("bridge", "gpu", "nvlink"),
    [
        ("IBM POWER9 Host Bridge (PHB4)", "NVIDIA Corporation GV100GL [Tesla V100 SXM2 16GB]", True),
        ("IBM POWER8 Host Bridge (PHB3)", "NVIDIA Corporation GP100GL [Tesla P100 SXM2 16GB]", True),
        ("IBM Device [1014:04c1]", "NVIDIA Corporation Device [10de:1db5]", True),
        ("IBM POWER9 Host Bridge (PHB4)", "NVIDIA Corporation GV100GL [Tesla V100 PCIe 16GB]", False),
        ("IBM POWER8 Host Bridge (PHB3)", "NVIDIA Corporation GK210GL [Tesla K80]", False),
        ("Intel Corporation Example Root Port", "NVIDIA Corporation GV100GL [Tesla V100 SXM2 16GB]", False),
    ],
)
def test_power_by_lspci(bridge: str, gpu: str, nvlink: bool) -> None:
    """lspci does not show NVLink: the host bridge and the GPU's model do. Then no PCIe ceiling is claimed."""
    machine = sources.read_texts([on_power(bridge, gpu)])
    answer = report_gpu(machine, machine.gpus[0], Question())
    assert (answer.ceiling_bytes_per_s is None) == nvlink
    assert any("no ceiling is claimed" in note for note in answer.notes) == nvlink


def test_a_port_with_a_smaller_payload() -> None:
    """MPS 128 at the root port and 256 at the GPU is a fault; the smaller one at the GPU is none."""
    small = edited("MaxPayload 256 bytes, MaxReadReq 512", "MaxPayload 128 bytes, MaxReadReq 512", "40:01.0")
    assert codes(small) == ["mps-mismatch", "mps-mismatch"]  # both GPUs are above it
    at_gpu = edited("MaxPayload 256 bytes, MaxReadReq 512", "MaxPayload 128 bytes, MaxReadReq 512", "44:00.0")
    assert codes(at_gpu) == []


def test_a_measurement_that_no_link_can_carry() -> None:
    """191 % of the ceiling is somebody else's log: a finding, and no proof that the links are whole."""
    fast = dumps.NVBANDWIDTH.replace("26.10", "55.10").replace("13.05", "26.00")
    assert codes(dumps.LSPCI_VVV, fast) == ["above-ceiling"]
    slow_uplink = edited("LnkSta:\tSpeed 16GT/s (ok)", "LnkSta:\tSpeed 8GT/s (downgraded)", "41:00.0")
    assert codes(slow_uplink, fast) == ["above-ceiling", "link-suspect"]
    # hwloc tells the present speed, which idles low: more than that can be measured, and is a note
    hwloc = sources.read_texts([dumps.HWLOC, dumps.BANDWIDTH_TEST])
    answer = report_gpu(hwloc, hwloc.gpus[0], Question())
    assert not any(f.code == "above-ceiling" for f in answer.findings)
    assert any("above the ceiling" in note for note in answer.notes)


def test_what_is_usual_stands_beside_a_ceiling_only() -> None:
    """91 to 97 % of nothing is no help."""
    for text, said in ((dumps.LSPCI_VVV, True), (dumps.TOPO, False)):
        machine = sources.read_texts([text])
        shown = "\n".join(render(report_gpu(machine, machine.gpus[0], Question()), machine))
        assert ("of the ceiling is usual" in shown) == said
