"""GPUs on a coherent link to their CPU: no PCIe ceiling is claimed, whoever tells of the link."""

import json

import pytest
import wire_dumps as dumps
from wire_machines import machine as machine_of
from wire_machines import report

from hinan.wire.checks.case import Question
from hinan.wire.checks.check import check_machine
from hinan.wire.facts.model import Machine
from hinan.wire.machine import capture, sources
from hinan.wire.show.report import report_gpu

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


@pytest.mark.parametrize(
    ("product", "card", "coherent"),
    [
        ("NVIDIA Grace CPU Superchip P3830", "GH100 [H100 PCIe] [10de:2331]", False),
        ("NVIDIA Grace CPU Superchip P3830", "Device [10de:2331]", False),
        ("NVIDIA Grace CPU Superchip P3830", "GH100 [GH200 120GB / 480GB] [10de:2342]", True),
        ("NVIDIA Grace Hopper Superchip", "Device [10de:2999]", True),
        ("NVIDIA GH200 P5042", "AD102GL [RTX 6000 Ada Generation] [10de:26b1]", False),
        ("NVIDIA GH200 P5042", "Device [10de:2999]", True),
    ],
)
def test_a_card_in_a_grace_host(product: str, card: str, coherent: bool) -> None:
    """Grace takes PCIe cards, and there is a Grace without a GPU: its name says nothing of a card in it."""
    gpu = GRACE.replace("GH100 [GH200 120GB / 480GB] [10de:2342]", card)
    host = '<topology version="2.0"><object type="Machine"><info name="DMIProductName" value="{}"/></object></topology>'
    found = sources.read_texts([gpu, host.format(product)])
    answer = report_gpu(found, found.gpus[0], Question())
    assert (answer.coherent_link is not None) == coherent
    assert (answer.ceiling_bytes_per_s is None) == coherent


@pytest.mark.parametrize(("device", "fabric"), [("7408", True), ("740c", False), ("740f", False)])
def test_mi250x_is_reached_by_infinity_fabric(device: str, fabric: bool) -> None:
    """31.5 GB/s is right there, above what its PCIe link carries; of the ID that MI250 has too, and of MI210, it is not."""
    found = machine_of(
        '<system version="1"><cpu numaid="0"><pci busid="0000:c1:00.0" class="0x038000" vendor="0x1002" '
        f'device="0x{device}" link_speed="16.0 GT/s PCIe" link_width="16"><gpu dev="0"/></pci></cpu></system>'
    )
    answer = report(found)
    assert (answer.coherent_link or "").startswith("Infinity Fabric") is fabric
    assert (answer.ceiling_bytes_per_s is None) is fabric
