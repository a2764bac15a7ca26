"""Where a write ends: what no window claims is RAM only if a source says so; what a window holds stays behind it."""

import msgspec
import pytest
import wire_dumps as dumps

from hinan.wire.checks.case import Question
from hinan.wire.facts.model import IomemRange, IommuMode, Machine
from hinan.wire.machine import sample, sources
from hinan.wire.paths.decode import Route, route_write
from hinan.wire.paths.peer import distance
from hinan.wire.show.explain import Explanation, Told, explain
from hinan.wire.show.explain_words import lines
from hinan.wire.show.render import render
from hinan.wire.show.report import report_gpu

GPU, DRIVE = "0000:43:00.0", "0000:45:00.0"
OUTSIDE = 0x4012345000  # in no window of dumps.LSPCI_VVV

IOMEM = """\
00001000-0009e7ff : System RAM
0009e800-0009ffff : Reserved
00100000-7fffffff : System RAM
  01000000-01ffffff : Kernel code
fee00000-fee00fff : Local APIC
100000000-407fffffff : System RAM
500000000000-5fffffffffff : PCI Bus 0000:c0
"""


def route(address: int, *texts: str, sender: str = GPU) -> Route:
    """The way of a write in the machine of these texts."""
    return route_write(sources.read_texts(texts), sender, address)


def explained(machine: Machine, address: int) -> Explanation:
    """The explanation of 4 KiB written by GPU 0."""
    return explain(machine, machine.gpus[0], address, size_bytes=4096, told=Told(words="given", label="illustration"))


def test_without_a_memory_range_nobody_knows_ram() -> None:
    """Outside all windows of one socket's list may be another socket's device: unknown, with the way out."""
    found = route(OUTSIDE, dumps.LSPCI_VVV)
    assert (found.destination, found.node) == ("unknown", None)
    assert "iomem" in found.steps[-1].why
    assert "SRAT" in found.steps[-1].why


@pytest.mark.parametrize(
    ("address", "destination"),
    [
        (OUTSIDE, "system memory"),
        (0x01000800, "system memory"),  # the kernel's code lies in RAM
        (0x9EC00, "Reserved"),
        (0xFEE00000, "Local APIC"),
        (0x500000000000, "PCI Bus 0000:c0"),  # behind another root, whose bridges are not listed
        (0xA0000, "unknown"),
        (0xFFFFFFFFFFFF, "unknown"),
        (0x0, "unknown"),
    ],
)
def test_iomem_decides_what_the_root_complex_does(address: int, destination: str) -> None:
    """System RAM is memory, any other range is what it is called, and a hole is unknown."""
    assert route(address, dumps.LSPCI_VVV, IOMEM).destination == destination


@pytest.mark.parametrize(
    ("address", "destination", "node"),
    [
        (OUTSIDE, "system memory", 0),
        (0x4080000000, "system memory", 1),
        (0xA0000, "unknown", None),  # inside the first SRAT range, and never RAM on x86
        (0xFEE00000, "unknown", None),
        (0xFFFFFFFFFFFF, "unknown", None),
    ],
)
def test_without_iomem_the_nodes_ranges_decide(address: int, destination: str, node: int | None) -> None:
    """The SRAT tells memory and its node; what it does not hold is unknown."""
    found = route(address, dumps.LSPCI_VVV, dumps.SRAT)
    assert (found.destination, found.node) == (destination, node)


@pytest.mark.parametrize("address", [0xFEE00000, 0xFFFFF000, 0xA0000, 0x0, 0xFFFFFFFFFFFF])
def test_the_sample_has_holes(address: int) -> None:
    """Its nodes' ranges cover them, its /proc/iomem does not; parts 1 to 3 of the answer say the same."""
    found = explained(sample.machine(), address)
    assert found.route is not None
    assert found.route.destination == "unknown"
    text = "\n".join(lines(found))
    assert "if it is RAM: no source tells" in text
    assert "system memory; node" not in text


def test_without_windows_nothing_is_claimed() -> None:
    """NCCL tells no window: the destination is unknown, and the heading does not call windows reported."""
    found = explained(sources.read_texts([dumps.NCCL]), 0x210000000000)
    assert found.route is not None
    assert found.route.destination == "unknown"
    assert found.labels["route"] == "unknown"
    assert explained(sources.read_texts([dumps.LSPCI_VVV]), OUTSIDE).labels["route"] == "reported"


ROOT_PORT_BAR = dumps.LSPCI_VVV.replace(
    "\tIOMMU group: 7\n", "\tIOMMU group: 7\n\tRegion 0: Memory at 2fe00a100000 (64-bit, non-prefetchable) [size=128K]\n"
)


def test_a_bridge_claims_its_own_bar() -> None:
    """Registers of a root port are no memory: for what is below it, and for what comes from elsewhere."""
    mine = route(0x2FE00A100000, ROOT_PORT_BAR, IOMEM)
    assert mine.destination == "BAR 0 of 40:01.0"
    assert mine.steps[-1].at == "0000:40:01.0"
    other = route(0x2FE00A100000, ROOT_PORT_BAR, IOMEM, sender="0000:02:00.0")
    assert other.destination == "BAR 0 of 40:01.0"


@pytest.mark.parametrize(
    ("sender", "address", "turns_at"),
    [
        (DRIVE, 0xA0080000, "0000:42:02.0"),  # in the port's window, in no BAR
        (GPU, 0xA0F00000, "0000:41:00.0"),  # in the switch's window, in no port's
        (GPU, 0x300000000000, "0000:42:00.0"),  # its own BAR
    ],
)
def test_what_lies_in_a_window_stays_below_it(sender: str, address: int, turns_at: str) -> None:
    """No port sends up an address of its own window: the write is lost there, and the root complex never sees it."""
    found = route(address, dumps.LSPCI_VVV, dumps.SRAT, sender=sender)
    assert found.destination == "nowhere"
    assert [(s.at, s.action) for s in found.steps[-2:]] == [(turns_at, "stays"), (turns_at, "lost")]
    assert "root complex" not in [s.at for s in found.steps]


def test_a_turn_is_certain_only_where_acs_is_told() -> None:
    """Without root lspci shows windows and no ACS: the write turns there unless a port redirects, which is unknown."""
    told = route(0x380000000000, dumps.LSPCI_VVV)
    untold = route(0x380000000000, dumps.LSPCI_VVV.replace("ACSCtl:", "ACSCap:"))
    assert told.destination == untold.destination == "BAR 1 of 44:00.0"
    turn, doubtful = (next(s for s in found.steps if s.action == "turn") for found in (told, untold))
    assert "ACS" not in turn.why
    assert "unless ACS redirects at 42:00.0, which is unknown" in doubtful.why


SUBTRACTIVE = """
40:02.0 PCI bridge [0604]: Example PCI bridge [8086:244e] (prog-if 01 [Subtractive decode])
\tBus: primary=40, secondary=50, subordinate=50, sec-latency=0
\tMemory behind bridge: a2000000-a20fffff [size=1M]

50:00.0 Multimedia controller [0480]: Example card [1106:3059]
\tRegion 0: Memory at a4000000 (32-bit, non-prefetchable) [size=64K]
"""


def test_a_subtractive_bridge_takes_what_nobody_claims() -> None:
    """The card behind it is reached although no window holds its BAR; a positive bridge would not pass it."""
    found = route(0xA4000000, dumps.LSPCI_VVV + SUBTRACTIVE, IOMEM)
    assert found.destination == "BAR 0 of 50:00.0"
    assert any(s.at == "0000:40:02.0" and "subtractive" in s.why for s in found.steps)
    positive = SUBTRACTIVE.replace("01 [Subtractive decode]", "00 [Normal decode]")
    assert route(0xA4000000, dumps.LSPCI_VVV + positive, IOMEM).destination == "unknown"


def test_a_page_of_this_machine_keeps_its_frame() -> None:
    """Ranges of the machine that has the pages say RAM, whatever the windows of another machine say."""
    machine = sample.machine()
    told = Told(words="a page", label="read", machine="illustration", iomem=(IomemRange(0, 0xFFFFF, "System RAM"),))
    found = explain(machine, machine.gpus[0], 0x0, size_bytes=64, told=told)
    assert "page frame        physical         0x0\n" in "\n".join(lines(found))


def test_a_guest_does_not_see_the_iommu_of_its_host() -> None:
    """In a VM "off" is the guest's word: nothing is said of the host, and the walk is called the guest's."""
    bare = msgspec.structs.replace(sources.read_texts([dumps.LSPCI_VVV, dumps.SRAT]), iommu_mode=IommuMode.OFF)
    guest = msgspec.structs.replace(bare, virtual=("Red Hat devices on the bus",))
    told, there = ("\n".join(lines(explained(machine, OUTSIDE))) for machine in (bare, guest))
    assert "the DMA address is the physical address." in told
    assert "host" not in told.split("6. The same ideas")[0]
    assert "IOMMU in this guest: off (reported)" in there
    assert "the DMA address is the guest's physical address." in there
    assert "The host's IOMMU is unknown" in there
    tree = "\n".join(render(report_gpu(guest, guest.gpus[0], Question()), guest))
    assert "the host's IOMMU is unknown" in tree
    assert max(map(len, [*there.splitlines(), *tree.splitlines()])) <= 100


def test_an_unknown_address_is_no_number() -> None:
    """A page whose frame cannot be read: no route, no walk, no packet, and null in JSON."""
    machine = sample.machine()
    told = Told(words="a page", label="unknown", iomem=())
    found = explain(machine, machine.gpus[0], None, size_bytes=4096, told=told)
    assert found.address is found.route is None
    assert (found.walks, found.packets, found.packet_count) == ((), (), 0)
    assert {found.labels[key] for key in ("address", "route", "walks", "packets")} == {"unknown"}
    assert max(map(len, lines(found))) <= 100


@pytest.mark.parametrize(("flag", "turns"), [("CmpltRedir", True), ("ReqRedir", False), ("EgressCtrl", False),
                                             ("SrcValid", True), ("UpstreamFwd", True)])  # fmt: skip
def test_which_acs_sends_a_write_to_the_root(flag: str, turns: bool) -> None:
    """Completion redirect moves answers, and a write has none; for the kernel's distance it counts all the same."""
    start = dumps.LSPCI_VVV.index("\n42:00.0 ")
    text = dumps.LSPCI_VVV[:start] + dumps.LSPCI_VVV[start:].replace(f"{flag}-", f"{flag}+", 1)
    found = route(0xA0000000, text)
    assert found.destination == f"BAR 0 of {DRIVE.removeprefix('0000:')}"
    assert [step.action for step in found.steps][1:3] == (["up", "turn"] if turns else ["redirect", "up"])
    kernel = -2 if flag in ("CmpltRedir", "ReqRedir", "EgressCtrl") else 4
    assert distance(sources.read_texts([text]), GPU, DRIVE) == kernel


@pytest.mark.parametrize("flag", ["hotplug", "non-volatile", "hotplug non-volatile"])
def test_room_for_memory_is_no_memory(flag: str) -> None:
    """SRAT lines for DIMMs that may come, or that are none, make no address RAM."""
    line = "[    0.01] ACPI: SRAT: Node 0 PXM 0 [mem 0x100000000-0x407fffffff]\n"
    assert route(OUTSIDE, dumps.LSPCI_VVV, dumps.SRAT).destination == "system memory"
    assert line in dumps.SRAT
    assert route(OUTSIDE, dumps.LSPCI_VVV, dumps.SRAT.replace(line, f"{line[:-1]} {flag}\n")).destination == "unknown"


@pytest.mark.parametrize(
    ("address", "words"),
    [
        (0xD0010000, "none: the address is no RAM but e1000, see 3"),
        (0x100000000, "page frame        physical         0x100000000"),
        (0x900000000, "if it is RAM: no source tells"),
    ],
)
def test_without_a_route_the_deepest_range_decides(address: int, words: str) -> None:
    """/proc/iomem alone, no GPU: part 1 says what part 3 says."""
    machine = sources.read_texts([dumps.IOMEM])
    found = explain(machine, None, address, size_bytes=16, told=Told(words="given", label="illustration"))
    assert words in "\n".join(lines(found))
