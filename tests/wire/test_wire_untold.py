"""Who shares, and what, is unknown all the way: no figure of one GPU stands for all, and no cause is made up."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_wire_parents import APART, nccl
from wire_machines import GB, machine, near, report, reports
from wire_trees import TWO, lspci

from hinan.wire.facts.model import Machine
from hinan.wire.show.rates import rate_of
from hinan.wire.show.render import render, render_all

UNTOLD = ("00:01.0 root 01-04 32 0", "01:00.0 up 02-04 32 0", *TWO[2:])
"""Two GPUs behind an uplink whose lanes neither end tells."""

QEMU = lspci(*APART).replace("Example Root Port [8086:352a]", "QEMU PCIe Root port [1b36:000c]")
BELOW_IDLE = nccl("20 01 02").replace('class="0x060400" link_speed="32.0', 'class="0x060400" link_speed="5.0')
PLACES = {
    "a domain each": ("0001:00:00.0", "0002:00:00.0", "0003:00:00.0", "0004:00:00.0"),
    "on bus 0": ("0000:00:04.0", "0000:00:05.0", "0000:00:06.0", "0000:00:07.0"),
    "on one bus": ("0000:10:1a.0", "0000:10:1b.0", "0000:10:1c.0", "0000:10:1d.0"),
}
"""Where hypervisors put GPUs: at no address that a port gives."""


def as_nccl(groups: dict[str, list[str]]) -> str:
    """NCCL's file: switch -> GPUs; those of "" are drawn on no switch."""
    link = 'link_speed="32.0 GT/s PCIe" link_width="16"'
    body = ""
    for switch, gpus in groups.items():
        inner = "".join(
            f'<pci busid="{a}" class="0x030200" vendor="0x10de" device="0x2330" {link}><gpu/></pci>' for a in gpus
        )
        body += f'<pci busid="{switch}" class="0x060400" {link}>{inner}</pci>' if switch else inner
    return f'<system version="1"><cpu numaid="0">{body}</cpu></system>'


def as_hwloc(gpus: tuple[str, ...]) -> str:
    """A host bridge with the GPU for each, as lstopo shows a VM."""
    rows = "".join(
        f'<object type="Bridge" bridge_type="0-1" depth="0" bridge_pci="{a[:4]}:[{a[5:7]}-{a[5:7]}]"><object type="PCIDev" '
        f'pci_busid="{a}" pci_type="0302 [10de:2330] [0000:0000] a1 00" pci_link_speed="63.015385"/></object>'
        for a in gpus
    )
    return f'<topology version="2.0"><object type="Machine" os_index="0">{rows}</object></topology>'


def as_tree(gpus: tuple[str, ...]) -> str:
    """lspci -tv."""
    return "".join(f"-+-[{a[:7]}]---{a[8:]}  NVIDIA Corporation GH100 [H100 SXM5 80GB]\n" for a in gpus)


def shares(found: Machine) -> dict[str | None, float | None]:
    """What each GPU gets at once, by its address."""
    return {answer.gpu.address: answer.all_ranks_ceiling_bytes_per_s for answer in reports(found) if answer.gpu}


@given(
    st.sampled_from(sorted(PLACES)),
    st.lists(st.integers(0, 3), min_size=4, max_size=4),
    st.sets(st.sampled_from(("hwloc", "tree", "lspci", "nccl")), min_size=1),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_a_flat_tree_beside_the_true_one(place: str, switches: list[int], kinds: set[str], turned: bool) -> None:
    """What a VM shows of its GPUs says nothing of sharing: alone it is unknown, and beside NCCL's switches these count."""
    gpus = PLACES[place]
    groups: dict[str, list[str]] = {}
    for gpu, switch in zip(gpus, switches, strict=True):
        groups.setdefault(f"ffff:ff:0{switch + 1}.0", []).append(gpu)
    true = as_nccl(groups)
    texts = {
        "hwloc": as_hwloc(gpus), "tree": as_tree(gpus), "lspci": lspci(*(f"{a} gpu" for a in gpus)),
        "nccl": as_nccl({"": list(gpus)}),
    }  # fmt: skip
    flat = [texts[kind] for kind in sorted(kinds, reverse=turned)]
    alone = machine(*flat)
    assert len(alone.gpus) == 4
    assert alone.virtual
    assert set(shares(alone).values()) == {None}
    joined = machine(*([*flat, true] if turned else [true, *flat]))
    expected = shares(machine(true))
    assert None not in expected.values()
    assert shares(joined) == pytest.approx(expected)


def test_an_emulated_port_is_no_root_port() -> None:
    """QEMU's ports are the guest's: what the GPUs behind them share is unknown, and no ceiling is lost."""
    for answer in reports(machine(QEMU)):
        assert near(answer.ceiling_bytes_per_s, 57.614)
        assert (answer.all_ranks_ceiling_bytes_per_s, answer.path_complete) == (None, False)
        assert any("a hypervisor's own port hides what is above" in note for note in answer.notes)


@pytest.mark.parametrize("text", [lspci(*UNTOLD), BELOW_IDLE], ids=["no lanes", "idle"])
def test_a_shared_link_of_unknown_rate(text: str) -> None:
    """Neither its users' shares nor their sum are known, and the note names it once."""
    found = machine(text)
    answers = reports(found)
    for answer in answers:
        assert near(answer.ceiling_bytes_per_s, 57.614)
        assert answer.all_ranks_ceiling_bytes_per_s is None
        assert answer.labels["all_ranks_ceiling_bytes_per_s"] == "unknown"
    shown = " ".join(render_all(answers))
    assert "together unknown: what is shared is not known" in shown
    assert shown.count("nobody tells the rate of a link that several GPUs share") == 1
    assert "each: what is shared is not known" in " ".join(render(answers[0], found))


def test_a_link_that_nobody_shares_may_be_untold() -> None:
    """A root port without lanes above one GPU: its share stays, as its ceiling does."""
    found = machine(lspci("00:01.0 root 01-01 32 0", APART[1], *APART[2:]))
    assert all(near(share, 57.614) for share in shares(found).values())
    assert "together 115.2 GB/s" in " ".join(render_all(reports(found)))


def stopwatch(what: str, rate: str, *addresses: str) -> str:
    """nvbandwidth on these GPUs, with one rate for all."""
    listed = [f"{index}: NVIDIA H100 (0000{address})" for index, address in enumerate(addresses)]
    case = {"name": what, "status": "Passed", "bandwidth_matrix": [[rate] * len(addresses)]}
    return json.dumps({"nvbandwidth": {"GPU Device list": listed, "testcases": [case]}})


@pytest.mark.parametrize(
    ("text", "gpus"),
    [(lspci(*UNTOLD), ("0000:03:00", "0000:04:00")), (BELOW_IDLE, ("0000:01:00", "0000:02:00")),
     (QEMU, ("0000:01:00", "0000:02:00")), (as_hwloc(PLACES["on bus 0"][:2]), ("0000:00:04", "0000:00:05"))],
    ids=["no lanes", "idle", "QEMU", "flat"],
)  # fmt: skip
def test_half_of_what_is_unknown_has_no_cause(text: str, gpus: tuple[str, ...]) -> None:
    """A true stopwatch at half the ceiling: no finding, and the planner takes it; else what it takes has its warning."""
    both = machine(text, stopwatch("all_to_host_memcpy_ce", "27.0", *(gpu[4:] for gpu in gpus)))
    for answer in reports(both):
        assert not {f.code for f in answer.findings} & {"below-share", "above-ceiling"}
        rate = rate_of(answer)
        assert rate is not None
        assert (rate.label, rate.bytes_per_s, rate.note) == ("measured", 27.0 * GB, "")
    alone = machine(text, stopwatch("device_to_host_memcpy_ce", "53.0", *(gpu[4:] for gpu in gpus)))
    for found, label in ((machine(text), "ceiling"), (alone, "measured")):
        rate = rate_of(report(found, found.gpus[0].index))
        assert rate is not None
        assert rate.label == label
        assert "who shares the links of GPU" in rate.note
        assert "all 2 at once may each be slower" in rate.note


def test_a_vm_names_no_cause() -> None:
    """Below the share that NCCL's switches leave: true of the VM, but what is narrow may be the physical machine's."""
    true = as_nccl({"ffff:ff:01.0": list(PLACES["a domain each"][:2])})
    log = (
        stopwatch("all_to_host_memcpy_ce", "9.0", "1:00:00", "2:00:00")
        .replace("(00001", "(00000001")
        .replace("(00002", "(00000002")
    )
    (finding,) = [f for f in report(machine(true, log)).findings if f.code == "below-share"]
    assert "DRAM" not in finding.effect
    assert "a VM cannot tell" in finding.effect


@pytest.mark.parametrize("draw", [as_hwloc, as_tree])
def test_a_tree_without_the_port(draw: Callable[[tuple[str, ...]], str]) -> None:
    """At an address that a port may have, so that nothing says VM: lstopo without its bridges, or a guest. Unknown too."""
    found = machine(draw(("0000:41:00.0", "0000:42:00.0")))
    assert (len(found.gpus), found.virtual) == (2, ())
    assert set(shares(found).values()) == {None}
    assert not any(answer.path_complete for answer in reports(found))


DPU = """\

b1:00.0 Ethernet controller [0200]: Mellanox Technologies MT43244 BlueField-3 integrated ConnectX-7 [15b3:a2dc]
b1:00.3 Ethernet controller [0200]: Red Hat, Inc. Virtio network device [1af4:1041]
"""
BELOW = """\

b0:00.0 PCI bridge [0604]: Mellanox Technologies MT43244 Family [BlueField-3 SoC PCIe Bridge] [15b3:197b]
\tBus: primary=b0, secondary=b1, subordinate=b1, sec-latency=0

b1:00.0 SCSI storage controller [0100]: Red Hat, Inc. Virtio block device [1af4:1042]
"""


@pytest.mark.parametrize(
    ("devices", "guest"),
    [
        (DPU, False),
        (BELOW, False),
        (DPU.replace("b1:00.3", "b1:01.0"), True),  # beside a NIC that is passed through, in a slot of its own
        (DPU.replace("[15b3:a2dc]", "[8086:1592]"), True),
        (DPU + "\n00:05.0 Communication controller [0780]: Red Hat, Inc. Virtio console [1af4:1043]\n", True),
    ],
)
def test_virtio_of_a_dpu_is_no_hypervisor(devices: str, guest: bool) -> None:
    """A DPU shows virtio NICs and drives to bare metal; what shares a link is known there, and in no guest."""
    assert bool(machine(lspci(*TWO) + devices).virtual) == guest
