"""Dumps as people send them: cut, shuffled, coloured, renumbered. Never a crash, never a new number."""

import random
import re

import pytest
import wire_dumps as dumps
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_captured import shared_folder

from hinan.wire.checks.case import Question
from hinan.wire.checks.check import check_machine
from hinan.wire.facts import text
from hinan.wire.facts.model import Function, Link, Machine
from hinan.wire.machine import sources
from hinan.wire.show import render
from hinan.wire.show.answer import to_builtins
from hinan.wire.show.report import report_gpu, report_without_gpu

TEXTS = st.sampled_from(dumps.ALL_TEXTS)


def read(raw: str) -> Machine:
    """Text as a machine; what nothing recognises is an empty one."""
    return sources.read_texts([raw])


def answer_everything(machine: Machine) -> None:
    """Every report, as JSON and as lines of at most 100 columns."""
    question = Question(state_bytes=10**9)
    for gpu in machine.gpus:
        report = report_gpu(machine, gpu, question)
        figures = (
            "numa_node",
            "ceiling_bytes_per_s",
            "all_ranks_ceiling_bytes_per_s",
            "measured_bytes_per_s",
            "seconds",
        )
        for name in figures:
            assert (getattr(report, name) is None) == (report.labels[name] == "unknown"), name
        to_builtins(report)
        assert max(map(len, render.render(report, machine))) <= 100
    if not machine.gpus:
        render.render_without_gpu(report_without_gpu(machine, question), machine)
    check_machine(machine, question)


def known(function: Function) -> dict[str, object]:
    """Facts of one function that stand in its own lines."""
    facts: dict[str, object] = {
        name: getattr(function, name)
        for name in (
            "numa_node",
            "mps_bytes",
            "mps_cap_bytes",
            "mrrs_bytes",
            "acs",
            "buses",
            "iommu_group",
            "device_id",
        )
    }
    facts |= {f"link.{name}": getattr(function.link, name) for name in Link.__struct_fields__ if name != "suspect"}
    facts |= {f"window {w}": w for w in (*function.windows, *function.bars)}
    return {name: value for name, value in facts.items() if value is not None}


def assert_nothing_new(part: Machine, whole: Machine) -> None:
    """Every fact of `part` is a fact of `whole`."""
    for address, function in part.functions.items():
        assert address in whole.functions
        assert known(function).items() <= known(whole.functions[address]).items()
    nodes = {node.index: node for node in whole.nodes}
    for node in part.nodes:
        mine = nodes[node.index]
        assert node.cpus in (None, mine.cpus)
        assert node.size_bytes in (None, mine.size_bytes)
        assert node.free_bytes in (None, mine.free_bytes)
        assert node.distances.items() <= mine.distances.items()
        assert set(node.ranges) <= set(mine.ranges)
    gpus = {gpu.index: gpu for gpu in whole.gpus}
    for gpu in part.gpus:
        if gpu.index in gpus and gpu.address in (None, gpus[gpu.index].address):
            assert gpu.numa_node in (None, gpus[gpu.index].numa_node)
            for other, label in gpu.relations.items():  # without the legend NICs keep their column names
                assert other.startswith("NIC") or gpus[gpu.index].relations[other] == label
    assert {m.bytes_per_s for m in part.measurements} <= {m.bytes_per_s for m in whole.measurements}
    assert set(part.iomem) <= set(whole.iomem)


@settings(max_examples=150, deadline=None)
@given(TEXTS, st.floats(0, 1), st.booleans())
def test_cut_anywhere(raw: str, where: float, tail: bool) -> None:
    """The first or the last part of a dump tells less, never something else."""
    at = int(len(raw) * where)
    if tail:
        at = raw.find("\n", at) + 1  # a lost beginning starts at a line; half a line in front is the next test
        part = raw[at:]
    else:
        part = raw[:at]
    machine = read(part)
    if not (tail and raw in (dumps.LSPCI_TV, dumps.LSPCI_VVV, dumps.BANDWIDTH_TEST, dumps.GDSIO)):
        assert_nothing_new(machine, read(raw))
    answer_everything(machine)


@settings(max_examples=60, deadline=None)
@given(TEXTS, st.floats(0, 1), st.floats(0, 1))
def test_a_hole_in_the_middle(raw: str, one: float, other: float) -> None:
    """Lines lost in the middle never crash a reader or a report."""
    lines = raw.splitlines(keepends=True)
    first, last = sorted((int(len(lines) * one), int(len(lines) * other)))
    answer_everything(read("".join(lines[:first] + lines[last:])))


@settings(max_examples=60, deadline=None)
@given(TEXTS, st.randoms(use_true_random=False))
def test_lines_in_any_order(raw: str, rng: random.Random) -> None:
    """Shuffled lines: no crash, and each speed and width that is told stands somewhere in the text."""
    lines = raw.splitlines(keepends=True)
    rng.shuffle(lines)
    machine = read("".join(lines))
    answer_everything(machine)
    numbers = set(map(float, re.findall(r"[0-9]+(?:\.[0-9]+)?", raw)))
    for function in machine.functions.values():
        for value in (function.link.cap_gt_s, function.link.cap_width, function.mps_bytes, function.numa_node):
            assert value is None or float(value) in numbers


@settings(max_examples=30, deadline=None)
@given(st.randoms(use_true_random=False))
def test_blocks_in_any_order(rng: random.Random) -> None:
    """lspci -vvv blocks shuffled are the same machine."""
    blocks = [block + "\n" for block in dumps.LSPCI_VVV.split("\n\n")]
    rng.shuffle(blocks)
    assert read("\n".join(blocks)) == read(dumps.LSPCI_VVV)


def coloured(raw: str) -> str:
    return "".join(f"\x1b[1;3{i % 8}m{line}\x1b[0m\n" for i, line in enumerate(raw.splitlines()))


@pytest.mark.parametrize(
    "change",
    [
        coloured,
        lambda raw: raw.replace("\n", "\r\n"),
        lambda raw: "```\n" + raw + "```\n",
        lambda raw: text.decode(raw.encode("utf-16")),
        lambda raw: text.decode(b"\xef\xbb\xbf" + raw.encode()),
        lambda raw: raw.replace("\x1b[4m", "").replace("\x1b[0m", ""),
    ],
    ids=["colours", "crlf", "fences", "utf-16", "bom", "no-underline"],
)
def test_dress_changes_nothing(change) -> None:
    """Colours, line ends, fences and encodings give the same machine."""
    for raw in dumps.ALL_TEXTS:
        if not raw.lstrip().startswith(("<", "{")):
            assert read(change(raw)) == read(raw)


def test_decimal_commas() -> None:
    """Other locales write 2,5 GT/s, 15,753846 and 26,3."""
    for raw, point, comma in (
        (dumps.LSPCI_VVV, "2.5GT/s", "2,5GT/s"),
        (dumps.HWLOC, "15.753846", "15,753846"),
        (dumps.NCCL, "16.0 GT/s", "16,0 GT/s"),
        (dumps.BANDWIDTH_TEST, "26.3", "26,3"),
        (dumps.SUPERBENCH, "25.85", "25,85"),
    ):
        assert point in raw
        assert read(raw.replace(point, comma)) == read(raw)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 0xFFFF), st.integers(-0x20, 0x40))
def test_renumbered(domain: int, shift: int) -> None:
    """Other domains and bus numbers: the same path, figures and findings, at other addresses."""

    def moved(match: re.Match[str]) -> str:
        return f"{int(match[1], 16) + shift:02x}"

    raw = re.sub(r"^(4[0-9])(?=:)", lambda m: f"{domain:04x}:{moved(m)}", dumps.LSPCI_VVV, flags=re.M)
    raw = re.sub(r"(?<=primary=)([0-9a-f]{2})|(?<=secondary=)([0-9a-f]{2})|(?<=subordinate=)([0-9a-f]{2})",
                 lambda m: f"{int(m[0], 16) + shift:02x}", raw)  # fmt: skip
    one, other = read(dumps.LSPCI_VVV), read(raw)
    for gpu in (0, 1):
        here, there = (report_gpu(m, m.gpus[gpu], Question(state_bytes=10**9)) for m in (one, other))
        assert [h.kind for h in here.hops] == [h.kind for h in there.hops]
        assert here.all_ranks_seconds == there.all_ranks_seconds
        assert [f.code for f in here.findings] == [f.code for f in there.findings]


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=300), TEXTS, st.integers(0, 1000))
def test_any_text(junk: str, raw: str, where: int) -> None:
    """Junk alone or inside a dump is read or refused, never a crash."""
    answer_everything(read(junk))
    answer_everything(read(raw[:where] + junk + raw[where:]))


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([dumps.HWLOC, dumps.NCCL]), st.randoms(use_true_random=False))
def test_xml_with_attributes_lost_or_wrong(raw: str, rng: random.Random) -> None:
    """Any attribute may be missing, empty or nonsense."""
    values = ("", "-1", "x", "999999999999999999999", "0000:ff:1f.7", "0x", "NaN")
    broken = re.sub(r'"[^"]*"', lambda m: f'"{rng.choice(values)}"' if rng.random() < 0.2 else m[0], raw)
    answer_everything(read(broken))


def test_bridges_in_a_ring_are_cut() -> None:
    """Damaged bus numbers that make a loop end somewhere."""
    raw = (
        "10:00.0 PCI bridge: A\n\tBus: primary=10, secondary=11, subordinate=20\n\n"
        "11:00.0 PCI bridge: B\n\tBus: primary=05, secondary=10, subordinate=20\n\n"
        "11:01.0 3D controller: NVIDIA Corporation X\n\tNUMA node: 0\n\n"
    )
    answer_everything(read(raw))


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.data())
def test_captured_files_cut_anywhere(data: st.DataObject) -> None:
    """The captured machines, cut at any byte."""
    folder = shared_folder()
    if folder is None:
        pytest.skip("the captured machines are not here (set HINAN_SHARED)")
    files = sorted(p for p in folder.iterdir() if p.suffix in (".txt", ".xml", ".json", ".log"))
    raw = data.draw(st.sampled_from(files)).read_text()
    part = read(raw[: data.draw(st.integers(0, len(raw)))])
    assert_nothing_new(part, read(raw))
    answer_everything(part)
