"""Who is above whom is a fact like others: what sources contradict each other on is unknown, in any order."""

from __future__ import annotations

import pytest
from wire_machines import GB, near, report, reports
from wire_trees import TWO, lspci

from hinan.wire.facts.model import Machine
from hinan.wire.machine import capture, sources
from hinan.wire.paths.path import path_up
from hinan.wire.show.rates import rate_of


def nccl(*switches: str) -> str:
    """Switches with the buses of their GPUs: "20 01 02"."""
    link = 'link_speed="32.0 GT/s PCIe" link_width="16"'
    body = ""
    for switch, *gpus in map(str.split, switches):
        kind = f'class="0x030200" vendor="0x10de" device="0x2330" {link}'
        inner = "".join(f'<pci busid="0000:{bus}:00.0" {kind}><gpu dev="{int(bus)}"/></pci>' for bus in gpus)
        body += f'<pci busid="0000:{switch}:00.0" class="0x060400" {link}>{inner}</pci>'
    return f'<system version="1"><cpu numaid="0">{body}</cpu></system>'


APART = ("00:01.0 root 01-01", "01:00.0 gpu", "00:02.0 root 02-02", "02:00.0 gpu")


def joined(*texts: str) -> Machine:
    """The texts as one machine: the same in both orders, after a capture, and beside its own capture."""
    found = sources.read_texts(texts)
    assert sources.read_texts(texts[::-1]) == found
    assert sources.read_texts([capture.write(found)]) == found
    assert sources.read_texts([capture.write(found), *texts]).functions == found.functions
    return found


def places(machine: Machine) -> dict[str, tuple[str, ...]]:
    """What is told of each disputed place."""
    return {a[5:7]: f.disputed["parent"] for a, f in machine.functions.items() if "parent" in f.disputed}


@pytest.mark.parametrize(("second", "first"), [("20 01", {}), ("1f 01", {"01": ("0000:1f:00.0", "0000:20:00.0")})])
def test_two_files_of_nccl(second: str, first: dict[str, tuple[str, ...]]) -> None:
    """Both GPUs on one switch, or each on its own: an address of a switch decides nothing, and nobody has a share."""
    found = joined(nccl("20 01 02"), nccl(second, "21 02"))
    assert places(found) == {**first, "02": ("0000:20:00.0", "0000:21:00.0")}
    for answer in reports(found):
        assert answer.all_ranks_ceiling_bytes_per_s is None
        assert near(answer.ceiling_bytes_per_s, 57.614)
    assert "place below 0000:20:00.0 or 0000:21:00.0 at 02:00.0" in " ".join(found.notes)
    assert "sources contradict each other on what is above: 02:00.0" in " ".join(report(found, 2).notes)


def test_nothing_is_above_a_root_port() -> None:
    """lspci has each GPU on a root port of its own, NCCL's file draws a switch above both: not above the root ports."""
    found = joined(lspci(*APART), nccl("20 01 02"))
    assert path_up(found, "0000:00:01.0").hops == (found.functions["0000:00:01.0"],)
    assert path_up(found, "0000:00:01.0").complete
    assert places(found) == {"01": ("0000:00:01.0", "0000:20:00.0"), "02": ("0000:00:02.0", "0000:20:00.0")}
    assert all("shared-uplink" not in {f.code for f in answer.findings} for answer in reports(found))
    rate = rate_of(report(found, 1))
    assert rate is not None
    assert (near(rate.bytes_per_s, 57.614), "who shares its links is not known" in rate.source) == (True, True)


def test_nothing_is_above_a_root_port_of_a_gpu_that_one_source_lacks() -> None:
    """The same where lspci does not list the GPU, whose bus is behind a root port."""
    found = joined(lspci(*APART[:3], "02:00.1 gpu"), nccl("20 02"))
    assert places(found) == {"02": ("0000:00:02.0", "0000:20:00.0")}


@pytest.mark.parametrize("in_one_text", [True, False])
def test_two_ports_that_claim_one_bus(in_one_text: bool) -> None:
    """Root ports of 8 and of 32 GT/s: neither is taken, also where both blocks are in one file."""
    texts = [lspci(f"00:0{port}.0 root 01-01 {speed} 16", "01:00.0 gpu") for port, speed in ((1, 8), (3, 32))]
    found = joined("\n".join(texts)) if in_one_text else joined(*texts)
    assert places(found) == {"01": ("0000:00:01.0", "0000:00:03.0")}
    answer = report(found)
    assert (answer.path_complete, answer.all_ranks_ceiling_bytes_per_s) == (False, None)


def test_two_switches_each_above_the_other() -> None:
    """Neither is."""
    link = 'class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16"'
    gpu = '<pci busid="0000:01:00.0" class="0x030200" vendor="0x10de" device="0x2330"><gpu dev="0"/></pci>'
    texts = [
        f'<system version="1"><cpu numaid="0"><pci busid="0000:{a}:00.0" {link}><pci busid="0000:{b}:00.0" {link}>{gpu}'
        "</pci></pci></cpu></system>"
        for a, b in (("20", "21"), ("21", "20"))
    ]
    found = joined(*texts)
    assert set(places(found)) == {"01", "20", "21"}


def test_who_may_cross_a_link_makes_its_share_unknown() -> None:
    """A third GPU elsewhere keeps its share; the one on the switch that a moved GPU may be on has none."""
    found = joined(nccl("20 01 02", "30 03"), nccl("20 01", "21 02", "30 03"))
    shares = [answer.all_ranks_ceiling_bytes_per_s for answer in reports(found)]
    assert (shares[:2], near(shares[2], 57.614)) == ([None, None], True)


def test_a_source_that_draws_less_contradicts_nobody() -> None:
    """NCCL's one line per switch, a dump without a port, and a hypervisor's root port below the true switch."""
    switch = nccl("01 03 04")
    assert places(joined(lspci(*TWO), switch)) == {}
    assert places(joined(lspci(*TWO[2:]), lspci(*TWO), switch)) == {}
    emulated = lspci(*APART).replace("Example Root Port [8086:352a]", "QEMU PCIe Root port [1b36:000c]")
    found = sources.read_texts([emulated, nccl("20 01 02")])
    assert places(found) == {}
    assert report(found, 1).ceiling_bytes_per_s == pytest.approx(57.614 * GB, rel=1e-3)
