"""Legs beside the evacuation: ACS is known only where a source told it, and a redirected leg crosses the root complex."""

from itertools import pairwise

import pytest
import wire_dumps as dumps
from wire_machines import machine as machine_of
from wire_machines import report

from hinan.wire.checks.case import Question
from hinan.wire.facts.model import Machine
from hinan.wire.machine import sources
from hinan.wire.paths.hotpath import paths_of
from hinan.wire.paths.legs import Leg, devices_of, direct
from hinan.wire.paths.peer import Meeting, Nearness, acs_known, distance
from hinan.wire.show.render import render_legs
from hinan.wire.show.report import report_gpu

GPU, DRIVE = "0000:43:00.0", "0000:45:00.0"


def redirecting() -> Machine:
    """dumps.LSPCI_VVV with ReqRedir+ on the drive's port."""
    port = dumps.LSPCI_VVV.index("42:02.0 PCI bridge")
    return sources.read_texts([dumps.LSPCI_VVV[:port] + dumps.LSPCI_VVV[port:].replace("ReqRedir-", "ReqRedir+", 1)])


def short(leg: Leg) -> list[str]:
    """The addresses it crosses, without their domain."""
    return [address.removeprefix("0000:") for address in leg.crossed]


def test_acs_is_known_only_where_it_was_told() -> None:
    """Told of both ports: off. Of one only, or of none (NCCL writes a switch as one line): unknown."""
    told = sources.read_texts([dumps.LSPCI_VVV])
    assert acs_known(told, GPU, DRIVE)
    assert "(ACS redirect off)" in direct(told, GPU, DRIVE).why
    port = dumps.LSPCI_VVV.index("42:02.0 PCI bridge")
    lines = dumps.LSPCI_VVV[port:].replace("\t\tACSCtl:\tSrcValid- TransBlk- ReqRedir-", "\t\tACSCap:\tReqRedir-", 1)
    half = sources.read_texts([dumps.LSPCI_VVV[:port] + lines])
    nccl = sources.read_texts([dumps.NCCL])
    for machine, one, other in ((half, GPU, DRIVE), (nccl, "0000:32:00.0", "0000:33:00.0")):
        assert not acs_known(machine, one, other)
        assert "which is unknown" in direct(machine, one, other).why


def test_a_switch_in_one_line_has_no_kernel_distance() -> None:
    """The kernel counts both ports of a switch; NCCL writes one line."""
    assert direct(sources.read_texts([dumps.NCCL]), "0000:32:00.0", "0000:33:00.0").distance is None
    assert direct(sources.read_texts([dumps.LSPCI_VVV]), GPU, DRIVE).distance == 4


def test_a_port_that_the_source_leaves_out_is_unknown() -> None:
    """Devices drawn directly below the switch's upper end: the ports between, and their ACS, are missing."""
    text = "\n".join(
        block for block in dumps.LSPCI_VVV.split("\n\n") if not block.startswith(("42:00.0", "42:01.0", "42:02.0"))
    )
    assert not acs_known(sources.read_texts([text]), GPU, DRIVE)


def test_a_redirected_leg_goes_over_the_root_complex() -> None:
    """Up to the root port and down again; without redirect it turns in the switch."""
    assert short(direct(sources.read_texts([dumps.LSPCI_VVV]), GPU, DRIVE)) == [
        "43:00.0",
        "42:00.0",
        "41:00.0",
        "42:02.0",
        "45:00.0",
    ]
    leg = direct(redirecting(), GPU, DRIVE)
    up = ["43:00.0", "42:00.0", "41:00.0", "40:01.0"]
    assert short(leg) == [*up, "40:01.0", "41:00.0", "42:02.0", "45:00.0"]
    assert (leg.at_root, leg.distance) == (4, -2)


def test_both_ends_bound_a_leg_whose_middle_is_unknown() -> None:
    """Without any bridge in the list the slower of the two links counts, be it the GPU's or the drive's."""
    blocks = [b for b in dumps.LSPCI_VVV.split("\n\n") if "PCI bridge" not in b.splitlines()[0]]
    slow_gpu = [b.replace("Speed 16GT/s, Width x16", "Speed 8GT/s, Width x1") if b.startswith("43") else b for b in blocks]
    for texts, narrow in ((blocks, DRIVE), (slow_gpu, GPU)):
        leg = direct(sources.read_texts(["\n\n".join(texts)]), GPU, DRIVE)
        assert (leg.narrowest, leg.at_root) == (narrow, None)


@pytest.mark.parametrize("machine", [redirecting(), sources.read_texts([dumps.LSPCI_VVV])])
def test_nobody_shares_with_itself(machine: Machine) -> None:
    """Neither end of a leg is listed as a sharer of it; the other GPU is."""
    legs = report_gpu(machine, machine.gpus[0], Question()).legs
    assert legs
    shared = {(hop.address, other) for leg in legs for hop in leg.hops for other in hop.shared_with}
    assert not [pair for pair in shared if pair[1] in ("43:00.0", "45:00.0")]
    assert ("41:00.0", "44:00.0") in shared


def test_the_root_complex_stands_between_the_hops() -> None:
    """On screen: between the two passes of the root port, for the redirected leg and for the one over RAM."""
    machine = redirecting()
    shown = [line.split()[0:2] for line in render_legs(report_gpu(machine, machine.gpus[0], Question())) if line[:1] == " "]
    at = [order for order, words in enumerate(shown) if words[0] == "root"]
    assert len(at) == 2
    for order in at:
        assert shown[order + 1][0] == "40:01.0"


def test_the_hot_path_crosses_the_root_complex_too() -> None:
    """GPU and NIC without a switch in common: the row says where they meet."""
    machine = sources.read_texts([dumps.NCCL])
    cell = paths_of(machine, machine.gpus[0]).ways[0].cells[1]
    assert "42:00.0" in cell
    assert "> root complex >" in cell


def test_a_redirect_makes_a_drive_the_farther_one() -> None:
    """Two drives behind one switch, ACS redirect at the first: the kernel's -2 is no nearness."""
    start, end = (dumps.LSPCI_VVV.index(f"\n{block}") for block in ("42:02.0 ", "43:00.0 "))
    port = dumps.LSPCI_VVV[start:end].replace("42:02.0", "42:03.0").replace("secondary=45, subordinate=45", "secondary=46, subordinate=46").replace("a0000000-a00fffff", "a0100000-a01fffff")  # fmt: skip  # noqa: E501
    start, last = (dumps.LSPCI_VVV.index(f"\n{block}") for block in ("45:00.0 ", "02:00.0 "))
    drive = dumps.LSPCI_VVV[start:last].replace("45:00.0", "46:00.0").replace("a0000000", "a0100000")
    text = dumps.LSPCI_VVV[:end] + port + dumps.LSPCI_VVV[end:last] + drive + dumps.LSPCI_VVV[last:]
    for redirecting, near in (("42:02.0", "0000:46:00.0"), ("42:03.0", "0000:45:00.0")):
        at = text.index(f"\n{redirecting} ")
        found = sources.read_texts([text[:at] + text[at:].replace("ReqRedir-", "ReqRedir+", 1)])
        assert getattr(devices_of(found, found.gpus[0]).drive, "address", None) == near
    both = sources.read_texts([text.replace("ReqRedir-", "ReqRedir+")])
    assert getattr(devices_of(both, both.gpus[0]).drive, "address", None) == "0000:45:00.0"
    assert distance(both, GPU, "0000:45:00.0") == -2


def test_the_order_of_nearness() -> None:
    """Fewer bridges, then more, then redirected, then over the root, then nobody knows."""
    order = [Nearness(Meeting.BELOW_ROOT, 4), Nearness(Meeting.BELOW_ROOT, 6), Nearness(Meeting.REDIRECTED, 4)]
    order += [Nearness(Meeting.AT_ROOT, 0), Nearness(Meeting.UNKNOWN, 0)]
    assert all(near < far for near, far in pairwise(order))
    assert [each.kernel_distance for each in order] == [4, 6, -2, -1, None]


@pytest.mark.parametrize(
    ("missing", "steps", "words"),
    [
        (("41:00.0",), None, "they meet at 40:01.0 or below it"),
        (("40:01.0",), 4, "stays below 41:00.0"),
        (("40:01.0", "41:00.0"), None, "unknown: a path is not told"),
    ],
)
def test_a_path_that_is_not_told_meets_nowhere(missing: tuple[str, ...], steps: int | None, words: str) -> None:
    """Without the switch's uplink they meet below the root port; without that too nobody knows where."""
    text = "\n\n".join(block for block in dumps.LSPCI_VVV.split("\n\n") if block.split(" ")[0] not in missing)
    leg = direct(sources.read_texts([text]), GPU, DRIVE)
    assert leg.distance == steps
    assert words in leg.why
    assert "only at the root complex" not in leg.why


def test_a_list_without_bridges_claims_no_root_complex() -> None:
    """`lspci -nn` tells devices only: no distance, no meeting at the root, and hops that are missing show as such."""
    text = (
        "05:00.0 Ethernet controller [0200]: Mellanox Technologies MT2892 Family [ConnectX-6 Dx] [15b3:101d]\n"
        "06:00.0 3D controller [0302]: NVIDIA Corporation GA102GL [A10] [10de:2236] (rev a1)\n"
    )
    found = sources.read_texts([text])
    assert distance(found, "0000:06:00.0", "0000:05:00.0") is None
    paths = paths_of(found, found.gpus[0])
    assert "meet only at the root complex" not in paths.rdma
    assert "no source tells where GPU and 05:00.0 meet" in paths.rdma
    assert paths.ways[1].cells[1] == "06:00.0* > ? > root complex > RAM"
    assert "root complex > ? > 05:00.0" in paths.ways[2].cells[1]


NO_LANES_TOLD = """\
01:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 PCIe] [10de:2331]
\tLnkCap:\tPort #0, Speed 32GT/s, Width x{gpu}
\tLnkSta:\tSpeed 32GT/s, Width x16
02:00.0 Non-Volatile memory controller [0108]: Example Drive [144d:a824] (prog-if 02 [NVM Express])
\tLnkCap:\tPort #0, Speed 32GT/s, Width x{drive}
\tLnkSta:\tSpeed 32GT/s, Width x4
"""


@pytest.mark.parametrize(("gpu", "drive"), [(16, 0), (0, 4), (0, 0)])
def test_a_width_of_no_lanes_is_no_capability(gpu: int, drive: int) -> None:
    """The lanes in use make the ceiling; by capability nothing is known of the legs that cross such a link."""
    found = report(machine_of(NO_LANES_TOLD.format(gpu=gpu, drive=drive)))
    assert all(leg.ceiling_bytes_per_s is not None and not leg.runs_below_capability for leg in found.legs)
    assert found.legs[-1].as_built_bytes_per_s is None
    assert found.findings == ()
