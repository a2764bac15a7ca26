"""Bytes of one write that go to different places: each part has its ends, and what is said of it holds of all its bytes."""

from __future__ import annotations

import json

import msgspec
import pytest
import wire_dumps as dumps
from test_wire_explain import GIVEN, coherent, with_mode
from typer.testing import CliRunner

from hinan.cli.main import app
from hinan.wire.facts.model import IomemRange, IommuMode, Machine, NumaNode, Window
from hinan.wire.machine import sample, sources
from hinan.wire.paths.decode import route_write
from hinan.wire.paths.parts import parts_of
from hinan.wire.readers.iomem import claimants
from hinan.wire.readers.pages import Page
from hinan.wire.show.explain import Explanation, Told, explain
from hinan.wire.show.explain_words import lines

GPU = "0000:12:00.0"
PAGE = 4096


def explained(machine: Machine, address: int, size_bytes: int = 2 * PAGE, told: Told = GIVEN) -> Explanation:
    """A write by GPU 0."""
    return explain(machine, machine.gpus[0], address, size_bytes=size_bytes, told=told)


def ends(found: Explanation) -> list[tuple[int | None, int, str | None, int | None]]:
    """Where each part begins, how long it is, and where it goes."""
    return [(part.first, part.size_bytes, part.destination, part.node) for part in found.parts]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((0xFFFFFFF000, "system memory", 0), (0x10000000000, "system memory", 1)),  # the other node's memory
        ((0x1FFFFFFF000, "system memory", 1), (0x20000000000, "unknown", None)),  # beyond the last range of RAM
        ((0x90003000, "BAR 0 of 13:00.0", None), (0x90004000, "nowhere", None)),  # beyond the drive's BAR
    ],
)
def test_each_part_has_its_own_end(first: tuple[int, str, int | None], second: tuple[int, str, int | None]) -> None:
    """The first byte's answer is that of the bytes up to its range's end, in text and in JSON."""
    found = explained(sample.machine(), first[0])
    assert ends(found) == [(at, PAGE, where, node) for at, where, node in (first, second)]
    shown = "\n".join(lines(found))
    assert f"-> {first[0]:#x}-{second[0] - 1:#x}  {first[1]}: 4096 of 8192 bytes" in shown
    assert f"-> {second[0]:#x}-{second[0] + PAGE - 1:#x}  {second[1]}: 4096 bytes" in shown
    assert "not all go to one place, see 2" in " ".join(shown.split())
    assert max(map(len, shown.splitlines())) <= 100
    answer = CliRunner().invoke(
        app, ["wire", "--sample", "explain", f"{first[0]:#x}", "--gpu", "0", "--size", "8KiB", "--json"]
    )
    told = json.loads(answer.stdout)
    assert told["route"]["destination"] == first[1]
    assert [(p["first"], p["last"] - p["first"] + 1, p["destination"], p["node"]) for p in told["parts"]] == ends(found)


def test_one_part_reads_as_before() -> None:
    """Bytes that all go to one place need no list of them."""
    found = explained(sample.machine(), 0x4012345000)
    assert ends(found) == [(0x4012345000, 2 * PAGE, "system memory", 0)]
    shown = lines(found)
    assert "   -> system memory" in shown
    assert not any("see 2" in line for line in shown)


def scattered() -> Machine:
    """The sample machine with ranges of RAM, nodes and holes that begin and end within a few pages."""
    whole = sample.machine()
    ranges = (
        IomemRange(0xFEDFE000, 0xFEE00FFF, "System RAM"),
        IomemRange(0x90004800, 0x90004FFF, "a gap"),
        IomemRange(0x90001800, 0x900027FF, "in a BAR"),
    )
    nodes = (
        NumaNode(index=0, ranges=(Window(0xFEBFE000, 0xFEDFE7FF),)),
        NumaNode(index=1, ranges=(Window(0xFEDFE800, 1 << 40),)),
    )
    return msgspec.structs.replace(whole, iomem=(*whole.iomem, *ranges), nodes=nodes)


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("mode", [IommuMode.PASSTHROUGH, IommuMode.TRANSLATED, None])
@pytest.mark.parametrize(
    "start", [0x90000000, 0x900FE000, 0x904FE000, 0xFEBFE000, 0xFEDFD000, 0xFFFFFFF000, 0x2027FFFFE000]
)
def test_a_part_says_what_is_said_of_each_of_its_bytes(mode: IommuMode | None, start: int, ranges: bool) -> None:
    """Asked byte by byte (every 256th), a write of 24 KiB gives the same answers, whatever the IOMMU does.

    Also where /proc/iomem is not told, whose ranges are mostly those of bridges and BARs again.
    """
    machine = with_mode(scattered() if ranges else msgspec.structs.replace(scattered(), iomem=()), mode)
    parts = parts_of(machine, GPU, start, 6 * PAGE, machine.iomem)
    assert sum(part.size_bytes for part in parts) == 6 * PAGE
    for address in range(start, start + 6 * PAGE, 256):
        (part,) = [p for p in parts if p.first is not None and p.first <= address < p.first + p.size_bytes]
        route = route_write(machine, GPU, address)
        assert (part.destination, part.node, part.decided) == (route.destination, route.node, route.steps[-1])
        assert part.iomem == claimants(machine.iomem, address)


def test_what_is_translated_has_one_end_but_for_interrupts() -> None:
    """Two nodes' numbers are two IOVAs, of which nobody tells anything; interrupt messages are no DMA addresses."""
    machine = with_mode(scattered(), IommuMode.TRANSLATED)
    assert [end[2:] for end in ends(explained(machine, 0xFFFFFFF000))] == [("unknown", None)]
    shown = lines(explained(machine, 0xFFFFFFF000))
    assert "   The walk is the first byte's; 2 pages of 4 KiB are written to, each with its own entry." in shown
    assert not any("its own entry" in line for line in lines(explained(machine, 0xFFFFFFF000, PAGE)))
    (before, interrupts) = explained(machine, 0xFEDFF000).parts
    assert before.decided is not None
    assert interrupts.decided is not None
    assert (before.decided.action, interrupts.decided.action == "walk", interrupts.first) == ("walk", False, 0xFEE00000)


def test_ranges_of_memory_are_told_of_all_bytes() -> None:
    """Part 3 names the claimant of each part, also where the way crosses no port and where the first byte has none."""
    machine = coherent(sample.machine(), "NVLink between GPU and CPU (a test)")
    for found in (explained(machine, 0x1FFFFFFF000), explained(sample.machine(), 0x1FFFFFFF000)):
        shown = lines(found)
        at = shown.index("   0x20000000000-0x20000000fff:")
        assert shown[at + 1] == "     unknown: no range holds it"
    below = explained(sample.machine(), 0xFFFFF000)
    assert below.iomem == ()
    assert below.labels["iomem"] == "reported"
    shown = lines(below)
    assert "System RAM" in shown[shown.index("   0x100000000-0x100000fff:") + 1]


def test_pages_of_a_mapping_need_not_follow_one_another() -> None:
    """Of a file's first page the frame is known; where the next bytes are, and the headers of their packets, are not."""
    page = Page(offset_bytes=0, virtual=0x7F0000000000, physical=0x4012345000, node=0, label="read")
    told = Told(words="first byte of a file", label="read", pages=(page,), contiguous_bytes=PAGE)
    found = explained(sample.machine(), 0x4012345000, told=told)
    assert ends(found) == [(0x4012345000, PAGE, "system memory", 0), (None, PAGE, "unknown", None)]
    shown = " ".join(" ".join(lines(found)).split())
    assert "-> what follows unknown: 4096 bytes; the mapping: on other pages, which need not follow" in shown
    wide = msgspec.structs.replace(
        sample.machine(),
        functions={a: msgspec.structs.replace(f, mps_bytes=4096) for a, f in sample.machine().functions.items()},
    )
    found = explained(wide, 0x4012345000, 3 * PAGE, told)
    assert ([packet.address for packet in found.packets], found.packet_count) == ([0x4012345000], 3)
    assert "... 2 more" in "\n".join(lines(found))
    assert [end[2] for end in ends(explained(sources.read_texts([dumps.TOPO]), 0x1000, told=told))] == [None, None]


def test_many_parts_are_counted() -> None:
    """A screen has eight; JSON has all."""
    ranges = tuple(IomemRange(0x100000000 + 512 * n, 0x100000000 + 512 * n + 255, "System RAM") for n in range(16))
    found = explained(msgspec.structs.replace(sample.machine(), iomem=ranges), 0x100000000)
    assert len(found.parts) == 32
    assert sum("24 parts more, see --json" in line for line in lines(found)) == 2
