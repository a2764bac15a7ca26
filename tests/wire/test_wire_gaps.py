"""What is not told is not guessed: distances without sockets, switches whose ports are missing, links read at rest."""

from __future__ import annotations

import pytest
import wire_dumps as dumps
from wire_machines import machine, near, report

from hinan.wire.facts.model import Machine, NumaNode
from hinan.wire.facts.placement import in_one_socket
from hinan.wire.paths.peer import Meeting, nearness
from hinan.wire.paths.rail import nic_for_gpu


def _nodes(*rows: str, packages: int | None = None) -> Machine:
    tables = [dict(enumerate(map(int, row.split()))) for row in rows]
    nodes = tuple(NumaNode(index=index, cpus=(index,), distances=row) for index, row in enumerate(tables))
    return Machine(nodes=nodes, packages=packages)


EPYC_7001 = ("10 16 32 32", "16 10 32 32", "32 32 10 16", "32 32 16 10")
OPTERON = ("10 16 16 22", "16 10 22 16", "16 22 10 16", "22 16 16 10")


@pytest.mark.parametrize(
    ("found", "first", "last"),
    [
        (_nodes(*EPYC_7001), True, False),
        (_nodes(*OPTERON), None, False),
        (_nodes(*OPTERON, packages=1), True, True),
        (_nodes("10 12 12 32", "12 10 32 32", "12 32 10 12", "32 32 12 10"), True, False),
        (_nodes("10 16 16 16", "16 10 16 16", "16 16 10 16", "16 16 16 10"), None, None),
        (_nodes("10 16 16 16", "16 10 16 16", "16 16 10 16", "16 16 16 10", packages=4), False, False),
        (_nodes("", "", "", ""), None, None),
        (_nodes("10 21 31 31", "21 10 31 31", "31 31 10 21", "31 31 21 10"), False, False),
    ],
)
def test_which_nodes_are_of_one_socket(found: Machine, first: bool | None, last: bool | None) -> None:
    """By the number of sockets, else by a gap in the distances; else nobody knows. Nodes 0 and 1, and 0 and 3."""
    assert (in_one_socket(found, 0, 1), in_one_socket(found, 0, 3)) == (first, last)


def test_an_unknown_socket_is_not_called_another() -> None:
    """NCCL tells nodes and no distances."""
    text = '<system version="1"><cpu numaid="0"><pci busid="0000:11:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" '
    text += 'link_width="16"><gpu dev="0"/></pci></cpu><cpu numaid="1"/></system>'
    (finding,) = [f for f in report(machine(text), buffer_node=1).findings if f.code == "wrong-numa-node"]
    assert finding.effect.startswith("each byte goes to another node, of the same socket or another, which is not told: ")


def _without(text: str, *cut: str) -> str:
    return "\n\n".join(block for block in text.split("\n\n") if block.split(" ")[0] not in cut)


FAR_DRIVE = """
4f:01.0 PCI bridge [0604]: Example Root Port [8086:352a]
\tNUMA node: 1
\tBus: primary=4f, secondary=50, subordinate=50, sec-latency=0
\tCapabilities: [40] Express (v2) Root Port (Slot-), MSI 00
\t\tLnkCap:\tPort #1, Speed 16GT/s, Width x16, ASPM not supported

50:00.0 Non-Volatile memory controller [0108]: Example Drive [144d:a824] (prog-if 02 [NVM Express])
\tNUMA node: 1
\tCapabilities: [70] Express (v2) Endpoint, MSI 00
\t\tLnkCap:\tPort #0, Speed 8GT/s, Width x4, ASPM L1
"""


def test_the_nearest_drive_behind_a_switch_that_is_cut() -> None:
    """Bus numbers put GPU and drive behind one root port: nearer than a drive on another, however they meet."""
    found = machine(_without(dumps.LSPCI_VVV, "41:00.0") + FAR_DRIVE)
    here, there = (nearness(found, "0000:43:00.0", f"0000:{drive}") for drive in ("45:00.0", "50:00.0"))
    assert here < there
    assert (here.where, here.kernel_distance) == (Meeting.BELOW_GAP, None)
    legs = report(found).legs
    assert {leg.device for leg in legs} == {"45:00.0"}
    assert legs[0].why == "they meet at 40:01.0 or below it: bridges between are missing in the source"
    assert legs[0].at_root is None


def test_the_nic_behind_a_switch_that_is_cut() -> None:
    """Its rail says why it is taken."""
    nics = dumps.LSPCI_VVV.replace("45:00.0 Non-Volatile memory controller [0108]", "45:00.0 Ethernet controller [0200]")
    far = FAR_DRIVE.replace("50:00.0 Non-Volatile memory controller [0108]", "50:00.0 Ethernet controller [0200]")
    rail = nic_for_gpu(machine(_without(nics, "41:00.0") + far), 0)
    assert (rail.nic, "ports are missing" in rail.why) == ("45:00.0", True)


def test_a_link_that_hwloc_read_under_load() -> None:
    """4.0 of 15.8 GB/s: at rest it bounds nothing; while a copy ran it is the rate, and a fault."""
    text = dumps.HWLOC
    start = text.index("pci_link_speed=", text.index("0000:13:00.0"))
    text = text[:start] + 'pci_link_speed="4.000000"' + text[text.index(">", start) :]
    found = machine(text)
    index = next(gpu.index for gpu in found.gpus if gpu.address == "0000:13:00.0")
    rest, busy = report(found, index), report(found, index, under_load=True, state_bytes=10**10)
    assert near(rest.ceiling_bytes_per_s, 14.404)
    assert {f.code for f in rest.findings} == {"shared-uplink"}
    assert near(busy.ceiling_bytes_per_s, 3.657)
    assert near(busy.as_built_bytes_per_s, 14.404)
    idle = "told at its idle speed, its capability is unknown: 13:00.0"
    assert (idle in rest.notes, idle in busy.notes) == (True, False)
    (finding,) = [f for f in busy.findings if f.code == "speed-below-capability"]
    assert (finding.at, finding.effect_s) == ("13:00.0", pytest.approx(10 / 3.657 - 10 / 14.404, rel=1e-3))


def test_advice_that_can_be_followed() -> None:
    """NCCL tells no present state, whenever it is read: lspci or hwloc does."""
    text = '<system version="1"><cpu numaid="0"><pci busid="0000:10:00.0" class="0x060400" link_speed="5.0 GT/s PCIe" '
    text += 'link_width="16"><pci busid="0000:11:00.0" class="0x030200" vendor="0x10de" device="0x2330" link_speed="32.0 '
    text += 'GT/s PCIe" link_width="16"><gpu dev="0"/></pci></pci></cpu></system>'
    for under_load in (False, True):
        (finding,) = report(machine(text), under_load=under_load).findings
        assert finding.code == "link-suspect"
        assert finding.fix == "read it while a copy runs (lspci -vvv or hwloc, and --under-load), or measure"
