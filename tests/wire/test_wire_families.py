"""Links whose word is worth nothing: idle ones told as capability, tunnels, cards' own bridges, GPUs that share RAM."""

import pytest
import wire_dumps as dumps

from hinan.wire.checks.case import Question
from hinan.wire.checks.check import check_machine
from hinan.wire.facts.families import max_gt_s_of_gpu
from hinan.wire.facts.model import Machine
from hinan.wire.machine import capture, sources
from hinan.wire.show.answer import Report
from hinan.wire.show.report import report_gpu


def report(machine: Machine, index: int = 0) -> Report:
    """The report of one GPU."""
    return report_gpu(machine, machine.gpus[index], Question(state_bytes=10**10))


def idle_hwloc(ids: str, speed: str = "4.000000") -> Machine:
    """dumps.HWLOC with GPUs of other IDs, all links at 2.5 GT/s x16, or as told."""
    return sources.read_texts([dumps.HWLOC.replace("[10de:1db8]", f"[{ids}]").replace("15.753846", speed)])


@pytest.mark.parametrize("ids", ["10de:1db8", "10de:2901", "10de:2bb5", "10de:3182", "1002:74a1", "1002:740f", "1da3:1020"])
def test_an_idle_link_is_no_ceiling(ids: str) -> None:
    """hwloc tells the present speed: of a GPU that is new, or that we do not know, generation 1 is no capability."""
    answer = report(idle_hwloc(ids))
    assert answer.ceiling_bytes_per_s is None
    assert any("capability is unknown" in note for note in answer.notes)


@pytest.mark.parametrize(("ids", "speed", "claimed"), [("10de:06d1", "8.0", True), ("10de:06d1", "4.0", True),
                                                       ("10de:06d1", "2.0", True), ("10de:06d1", "0.25", False),
                                                       ("10de:102d", "8.0", False)])  # fmt: skip
def test_an_old_gpu_is_believed(ids: str, speed: str, claimed: bool) -> None:
    """Fermi can do generation 2 and no more; below that (0.25 GB/s is one lane of generation 1) it may be idle."""
    assert (report(idle_hwloc(ids, speed)).ceiling_bytes_per_s is not None) == claimed


def test_families() -> None:
    """Highest speeds [GT/s] of products, and unknown for what is newer than the table."""
    known = {
        (0x10DE, 0x102D): 8.0, (0x10DE, 0x1DB8): 8.0, (0x10DE, 0x20B2): 16.0, (0x10DE, 0x2330): 32.0,
        (0x10DE, 0x2684): 16.0, (0x10DE, 0x2901): 32.0, (0x10DE, 0x2BB5): 32.0, (0x10DE, 0x3182): None,
        (0x1002, 0x66A1): 16.0, (0x1002, 0x687F): 8.0, (0x1002, 0x744C): 16.0, (0x1002, 0x74A1): 32.0,
        (0x1002, 0x75A0): 32.0, (0x8086, 0x56C0): None,
    }  # fmt: skip
    assert {ids: max_gt_s_of_gpu(*ids) for ids in known} == known


def link_lines(link: str, now: str) -> str:
    """Capability and state of a link, and the end of the block."""
    return f"\t\tLnkCap:\tPort #0, {link}, ASPM L1\n\t\tLnkSta:\t{now or link}\n\n"


def bridge(address: str, named: str, buses: str, port: str, link: str, now: str = "") -> str:
    """A bridge as lspci -vvvnn prints it."""
    primary, secondary, last = buses.split()
    return (
        f"{address} PCI bridge [0604]: {named} (prog-if 00 [Normal decode])\n"
        f"\tBus: primary={primary}, secondary={secondary}, subordinate={last}, sec-latency=0\n"
        f"\tCapabilities: [68] Express (v2) {port}, MSI 00\n{link_lines(link, now)}"
    )


def device(address: str, named: str, link: str, now: str = "", kind: str = "VGA compatible controller [0300]") -> str:
    """An endpoint as lspci -vvvnn prints it."""
    return (
        f"{address} {kind}: {named} (rev a1)\n\tCapabilities: [60] Express (v2) Endpoint, MSI 00\n{link_lines(link, now)}"
    )


TUNNEL = "Speed 2.5GT/s, Width x4"
ROOT_IDS, TUNNEL_IDS = "[8086:a76e]", "[8086:15ef]"
ROOT_NAME, TUNNEL_NAME = (
    "Intel Corporation Thunderbolt 4 PCI Express Root Port #0",
    "Intel Corporation Thunderbolt 3 Bridge",
)


def external(root: str, chip: str) -> str:
    """A GPU in a box at the end of a cable."""
    return (
        bridge("00:07.0", root, "00 20 49", "Root Port (Slot+)", TUNNEL)
        + bridge("20:00.0", chip, "20 21 49", "Upstream Port", TUNNEL)
        + bridge("21:01.0", chip, "21 22 22", "Downstream Port (Slot+)", "Speed 8GT/s, Width x4")
        + device(
            "22:00.0",
            "NVIDIA Corporation AD102 [Example 4090] [10de:2684]",
            "Speed 16GT/s, Width x16",
            "Speed 8GT/s, Width x4",
        )
    )


@pytest.mark.parametrize(
    ("root", "chip"),
    [
        (f"{ROOT_NAME} {ROOT_IDS}", f"{TUNNEL_NAME} {TUNNEL_IDS}"),
        (f"Intel Corporation Device {ROOT_IDS}", f"Intel Corporation Device {TUNNEL_IDS}"),  # an old ID database
        (f"Intel Corporation Device {ROOT_IDS}", "Example Port [1b21:2463]"),
        ("Advanced Micro Devices, Inc. [AMD] USB4/Thunderbolt PCIe tunnel [1022:14ef]", "Example USB4 Bridge [1234:5678]"),
    ],
)
def test_a_tunnel_hides_the_ceiling(root: str, chip: str) -> None:
    """Its ports say 2.5 GT/s x4 whatever the cable carries: no ceiling, no alarm, and a sentence that says why."""
    machine = sources.read_texts([external(root, chip)])
    answer = report(machine)
    assert answer.ceiling_bytes_per_s is answer.all_ranks_ceiling_bytes_per_s is None
    assert {hop.ceiling_bytes_per_s for hop in answer.hops if hop.address in ("20:00.0", "00:07.0")} == {None}
    assert any("tunnel is on the path (20:00.0 00:07.0)" in note for note in answer.notes)
    assert check_machine(machine, Question(state_bytes=10**10)) == ()
    log = dumps.BANDWIDTH_TEST.replace("26.3", "2.9").replace("NVIDIA Example", "NVIDIA GeForce Example 4090")
    measured = sources.read_texts([external(root, chip), log])
    assert report(measured).measured_bytes_per_s == 2.9e9
    assert check_machine(measured, Question()) == ()


def test_a_port_of_the_same_chip_that_faces_a_device_is_real() -> None:
    """Above 2.5 GT/s the chip's word counts: a controller in an ordinary slot is no tunnel."""
    text = external(f"Example Root Port {'[8086:352a]'}", f"{TUNNEL_NAME} {TUNNEL_IDS}").replace(
        TUNNEL, "Speed 8GT/s, Width x4"
    )
    assert report(sources.read_texts([text])).ceiling_bytes_per_s == pytest.approx(3.601e9, rel=1e-3)


def test_a_card_that_tells_no_link() -> None:
    """Intel's cards say 2.5 GT/s x1 for the GPU and the port on the card that faces it: no ceiling from that."""
    text = (
        bridge("00:01.0", "Example Root [8086:4c01]", "00 01 03", "Root Port (Slot+)", "Speed 16GT/s, Width x16")
        + bridge("01:00.0", "Example [8086:4fa0]", "01 02 03", "Upstream Port", "Speed 16GT/s, Width x16")
        + bridge("02:01.0", "Example [8086:4fa4]", "02 03 03", "Downstream Port (Slot-)", "Speed 2.5GT/s, Width x1")
        + device("03:00.0", "Intel Corporation Example Arc [8086:56c0]", "Speed 2.5GT/s, Width x1")
    )
    machine = sources.read_texts([text])
    assert report(machine).ceiling_bytes_per_s is None
    assert check_machine(machine, Question()) == ()


IDLE = "Speed 2.5GT/s (downgraded), Width x16"


@pytest.mark.parametrize("ids", ["1002:1478", "1022:1500"])
def test_a_bridge_on_the_card_idles_with_it(ids: str) -> None:
    """AMD's cards have a switch: the link that idles is the one above it. The same of any other switch is suspect."""

    def codes(chip: str, *, loaded: bool = False) -> list[str]:
        text = (
            bridge("00:01.1", "Example Root [1022:14db]", "00 01 03", "Root Port (Slot+)", "Speed 32GT/s, Width x16", IDLE)
            + bridge("01:00.0", f"Example Up [{chip}]", "01 02 03", "Upstream Port", "Speed 16GT/s, Width x16", IDLE)
            + bridge(
                "02:00.0", "Example Down [1002:1479]", "02 03 03", "Downstream Port (Slot-)", "Speed 16GT/s, Width x16"
            )
            + device("03:00.0", "Advanced Micro Devices, Inc. [AMD/ATI] Example [1002:744c]", "Speed 16GT/s, Width x16")
        )
        return [f.code for f in check_machine(sources.read_texts([text]), Question(under_load=loaded))]

    assert codes(ids) == []
    assert codes(ids, loaded=True) == ["speed-below-capability"]
    assert codes("1000:c010") == ["link-suspect"]


@pytest.mark.parametrize(
    ("kind", "named", "shared"),
    [
        ("Processing accelerators [1200]", "Advanced Micro Devices, Inc. [AMD/ATI] Example [1002:74a0]", True),
        ("Processing accelerators [1200]", "Advanced Micro Devices, Inc. [AMD/ATI] Instinct MI300A", True),
        ("Display controller [0380]", "Advanced Micro Devices, Inc. [AMD/ATI] Example [1002:1586]", True),
        ("3D controller [0302]", "NVIDIA Corporation Example [10de:2b00]", True),
        ("Processing accelerators [1200]", "Advanced Micro Devices, Inc. [AMD/ATI] Example [1002:74a1]", False),
        ("Processing accelerators [1200]", "Advanced Micro Devices, Inc. [AMD/ATI] Example [1002:2342]", False),  # no Grace
    ],
)
def test_a_gpu_whose_memory_is_ram(kind: str, named: str, shared: bool) -> None:
    """An APU's copy crosses no link: no ceiling and no leg, and no advice for Grace; also after a capture."""
    text = bridge("00:01.1", "Example Root [1022:14db]", "00 01 01", "Root Port (Slot+)", "Speed 32GT/s, Width x16")
    machine = sources.read_texts([text + device("01:00.0", named, "Speed 32GT/s, Width x16", kind=kind)])
    for found in (machine, sources.read_texts([capture.write(machine)])):
        answer = report(found)
        assert (answer.ceiling_bytes_per_s is None) == shared
        assert any("memory is host RAM" in note for note in answer.notes) == shared
        off = sources.read_texts([capture.write(found).replace('"machine": {', '"machine": {"iommu_mode": "off",', 1)])
        assert check_machine(off, Question()) == ()


def test_a_gpu_that_is_told_faster_than_its_family() -> None:
    """A VM tells 32 GT/s of an MI250X, which is gen 4: the file's word stands, and a note says what is known of it."""
    link = 'link_speed="16.0 GT/s PCIe" link_width="16">\n        <gpu dev="1"'
    assert link in dumps.NCCL
    text = dumps.NCCL.replace(link, link.replace("16.0", "32.0"))
    text = text.replace('vendor="0x10de" device="0x20b2"', 'vendor="0x1002" device="0x740c"')
    said = "told at 32 GT/s, though GPUs of this family do 16; a ceiling above that is none: 32:00.0"
    for told, raw in ((True, text), (False, dumps.NCCL)):
        found = sources.read_texts([raw])
        answer = next(r for r in (report(found, place) for place in range(4)) if r.gpu and r.gpu.address == "32:00.0")
        assert (said in answer.notes) == told
