"""Odd input: files that nest too deep, numbers that cannot be, widths that mean unknown, lines in disorder."""

import json
from pathlib import Path

import pytest
import wire_dumps as dumps
from test_wire_families import bridge, device

from hinan.cli.wire_options import show_json
from hinan.core.errors import FormatError
from hinan.wire.checks.case import Question
from hinan.wire.machine import capture, sample, sources
from hinan.wire.packets.tlp import completions, reads
from hinan.wire.show import render
from hinan.wire.show.explain import Told, explain
from hinan.wire.show.explain_words import lines
from hinan.wire.show.report import report_gpu

DEEP = 1100


def nested(opening: str, closing: str, inner: str = "") -> str:
    """An element in an element, DEEP times."""
    return (
        "".join(opening.format(bus=f"{order >> 8:04x}:{order & 0xFF:02x}:00.0") for order in range(DEEP))
        + inner
        + closing * DEEP
    )


def test_xml_may_nest_as_deep_as_it_likes() -> None:
    """Groups in hwloc, bridges in hwloc and NCCL: read and answered, with no limit of the interpreter in between."""
    gpu = '<object type="PCIDev" pci_busid="00ff:01:00.0" pci_type="0302 [10de:2330]" pci_link_speed="63.0"/>'
    groups = nested('<object type="Group" nodeset="0x1">', "</object>", gpu)
    bridges = nested('<object type="Bridge" pci_busid="{bus}" pci_type="0604 [8086:352a]">', "</object>", gpu)
    ports = nested('<pci busid="{bus}" class="0x060400" vendor="0x1000">', "</pci>")
    for text, count in (
        (f'<topology version="2.0">{groups}</topology>', 1),
        (f'<topology version="2.0">{bridges}</topology>', DEEP + 1),
        (f'<system version="1"><cpu numaid="0">{ports}</cpu></system>', DEEP),
    ):
        machine = sources.read_texts([text])
        assert len(machine.functions) == count
        if count == 1:
            answer = report_gpu(machine, machine.gpus[0], Question())
            assert (len(answer.hops), answer.path_complete) == (1, False)  # no port is drawn: what is above is not told


@pytest.mark.parametrize(
    ("field", "value"),
    [("link", '{"cap_gt_s": 1e400}'), ("link", '{"cap_gt_s": -1e999}'), ("mps_bytes", "1" + "0" * 400),
     ("iommu_group", str(1 << 64)), ("link", '{"now_bytes_per_s": Infinity}'), ("link", '{"cap_width": NaN}')],
)  # fmt: skip
def test_a_capture_with_numbers_that_are_none(field: str, value: str) -> None:
    """What JSON can write and no machine can be is refused by name, and never printed."""
    place = '"0000:01:00.0": {"address": "0000:01:00.0", "role": "gpu", "%s": %s}'
    text = '{"hinan_wire": 1, "machine": {"functions": {' + place % (field, value) + "}}}"
    with pytest.raises(FormatError, match="damaged"):
        capture.read(text)


def test_what_is_printed_is_json() -> None:
    """No Infinity and no NaN leaves the program; and true is no version of the format."""
    with pytest.raises(ValueError, match="JSON"):
        show_json({"rate": float("inf")})
    with pytest.raises(FormatError):
        capture.read('{"hinan_wire": true, "machine": {}}')


def test_a_width_that_means_unknown(tmp_path: Path) -> None:
    """The kernel says 255 where it does not know: null, in sysfs, NCCL and lspci; the port's end is named as such."""
    entry = tmp_path / "sys/bus/pci/devices/0000:41:00.0"
    entry.mkdir(parents=True)
    words = {"class": "0x030200", "vendor": "0x10de", "device": "0x2330", "max_link_width": "255",
             "max_link_speed": "Unknown", "current_link_width": "255", "current_link_speed": "32.0 GT/s PCIe"}  # fmt: skip
    for name, text in words.items():
        (entry / name).write_text(text)
    machine = sources.read_live(tmp_path)
    assert [(h.width, h.cap_width) for h in report_gpu(machine, machine.gpus[0], Question()).hops] == [(None, None)]
    nccl = sources.read_texts([dumps.NCCL.replace('link_width="16"', 'link_width="255"')])
    assert {f.link.cap_width for f in nccl.functions.values()} == {None}
    text = (
        bridge("00:01.0", "Example Root [8086:352a]", "00 01 01", "Root Port (Slot+)", "Speed 32GT/s, Width x16")
        + device("01:00.0", "NVIDIA Corporation Example [10de:2330]", "Speed unknown, Width x63")
    )  # fmt: skip
    found = sources.read_texts([text])
    shown = render.render(report_gpu(found, found.gpus[0], Question()), found)
    assert found.functions["0000:01:00.0"].link.cap_width is None
    assert any("told by the port's end only" in line and "57.6 GB/s" in line for line in shown)
    assert not any("bandwidth reported" in line for line in shown)


@pytest.mark.parametrize("field", ["LnkCap", "LnkSta", "NUMA node", "Bus", "ACSCtl", "DevCap", "MaxPayload"])
def test_a_block_with_lines_of_another(field: str) -> None:
    """A function says each of these once. A block that has it twice with different values tells no more than its head."""
    blocks = {block[:7]: block for block in dumps.LSPCI_VVV.split("\n\n")}
    line = next(
        ln for ln in blocks["45:00.0" if field == "LnkCap" else "40:01.0"].splitlines() if ln.strip().startswith(field)
    )
    other = {"LnkCap": "Speed 16GT/s", "LnkSta": "Speed 16GT/s", "NUMA node": ": 1", "Bus": "primary=40",
             "ACSCtl": "SrcValid+", "DevCap": "512", "MaxPayload": "256"}[field]  # fmt: skip
    foreign = line.replace(other, {"NUMA node": ": 0"}.get(field, other.replace("6", "4").replace("512", "128")))
    text = dumps.LSPCI_VVV.replace(
        blocks["43:00.0"], f"{blocks['43:00.0']}\n{line}\n{foreign.replace('+', '-').replace('=40', '=41')}"
    )
    machine = sources.read_texts([text])
    gpu = machine.functions["0000:43:00.0"]
    assert (gpu.device_id, gpu.link.cap_gt_s, gpu.mps_bytes, gpu.numa_node, gpu.bars) == (0x20B2, None, None, None, ())
    assert any("lines of several functions are in one block" in note and "43:00.0" in note for note in machine.notes)
    assert machine.functions["0000:44:00.0"].link.cap_gt_s == 16.0


def test_a_read_of_nothing_is_answered() -> None:
    """A flush: one completion of one DW that counts as one byte, at the DW's address."""
    (request,) = reads(0x1006, 0, requester=0, mrrs_bytes=512)
    (answer,) = completions(request, b"", completer=0, mps_bytes=256)
    assert request.byte_enables == (0, 0)
    assert (answer.byte_count, answer.lower_address, len(answer.data)) == (1, 0x4, 4)


@pytest.mark.parametrize("raw", [*dumps.ALL_TEXTS, capture.write(sample.machine())])
def test_an_explanation_is_at_most_100_columns_wide(raw: str) -> None:
    """Also where every word of it is long: a virtual machine, an IOMMU of unknown mode, a range with a long name."""
    texts = [raw, "a0000000-a0ffffff : " + "a range with a very long name " * 5 + "\n", json.dumps(
        {"hinan_wire": 1, "machine": {"virtual": ["a sign"], "iommu_mode": None}})]  # fmt: skip
    machine = sources.read_texts(texts)
    for gpu in machine.gpus or (None,):
        for address in (0x4012345000, 0xA0000000, None):
            found = explain(
                machine, gpu, address, size_bytes=16, told=Told(words="address given " * 9, label="illustration")
            )
            assert max(map(len, lines(found))) <= 100
