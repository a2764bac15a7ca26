"""Caveats: they stand beside every view and finding, each once; and no picture claims what the text does not."""

import json

import msgspec
import pytest
import wire_dumps as dumps
from typer.testing import CliRunner

from hinan.cli.main import app
from hinan.wire.checks.case import Question
from hinan.wire.checks.notes import notes_of_machine, union
from hinan.wire.machine import sample, sources
from hinan.wire.show.answer import to_builtins
from hinan.wire.show.explain import Told, explain
from hinan.wire.show.picture import html, svg
from hinan.wire.show.report import report_gpu

VIRTUAL = dumps.NCCL.replace("0000:30:00.0", "ffff:ff:01.0").replace("0000:33:00.0", "0000:34:00.0").replace(
    "0x15b3", "0x10de").replace("0x020700", "0x030200").replace("0x101b", "0x20b2").replace(
    '<nic><net name="mlx5_3" dev="0" speed="200000" port="1" guid="0x1" gdr="1"/></nic>', '<gpu dev="9"/>')  # fmt: skip


def shown(tmp_path, raw: str, *options: str) -> tuple[int, str]:
    """Exit code and output of `hinan wire` on a text, on one line."""
    (tmp_path / "dump").write_text(raw)
    before, after = ([], list(options)) if options[:1] != ("check",) else (["check"], list(options[1:]))
    done = CliRunner().invoke(app, ["wire", *before, "--from", str(tmp_path / "dump"), *after])
    return done.exit_code, " ".join(done.output.split())


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (VIRTUAL, "as told by the VM (bridges ffff:ff:* do not exist in hardware)"),
        (VIRTUAL, "MPS is not told: the ceiling assumes 256 B"),
        (dumps.HWLOC, "hwloc tells the present speed of links, not their capability"),
        (dumps.HWLOC.replace("10de:1db8", "10de:2342"), "no ceiling is claimed"),
        (dumps.TOPO, "the path is not known up to the root complex"),
    ],
)
def test_every_view_has_the_caveats(tmp_path, raw: str, words: str) -> None:
    """`--all`, and `check` with and without findings, as text and as JSON."""
    assert words in shown(tmp_path, raw, "--all")[1]
    code, text = shown(tmp_path, raw, "check")
    assert words in text
    assert text.count(words) == 1
    assert code == ("shared-uplink" in text or "link-suspect" in text)
    assert any(words in note for note in json.loads(shown(tmp_path, raw, "check", "--json")[1])["notes"])


def test_a_sentence_on_several_gpus_is_said_once() -> None:
    """With the addresses of all; the other sentences stay as they are."""
    idle = "runs at 2.5 of 16 GT/s now, idle"
    each = [("alike", f"{idle}: {bus:02x}:00.0") for bus in range(1, 7)]
    assert union([*each, ("alike: not an address",)]) == (
        "alike", f"{idle}: 01:00.0 02:00.0 03:00.0 04:00.0 and 2 more", "alike: not an address",
    )  # fmt: skip


def test_idle_gpus_are_listed_together(tmp_path) -> None:
    """Both GPUs' links at rest are one line."""
    raw = dumps.LSPCI_VVV.replace("LnkSta:\tSpeed 16GT/s (ok), Width x16", "LnkSta:\tSpeed 2.5GT/s (ok), Width x16")
    assert "runs at 2.5 of 16 GT/s now, idle: 43:00.0 44:00.0" in shown(tmp_path, raw, "--all")[1]


@pytest.mark.parametrize(
    "raw", [dumps.HWLOC.replace("10de:1db8", "10de:2342"), dumps.LSPCI_VVV.replace("10de:20b2", "10de:2342"),
            dumps.NCCL.replace('rank="1" gdr="1">', 'rank="1" gdr="1"><c2c bw="10" count="1"/>')]
)  # fmt: skip
def test_no_picture_claims_a_ceiling_for_another_wire(raw: str) -> None:
    """NVLink-C2C: no hop, bar, leg or packet stream of the GPU carries a PCIe figure."""
    machine = sources.read_texts([raw])
    gpu = next(g for g in machine.gpus if report_gpu(machine, g, Question()).coherent_link)
    report = report_gpu(machine, gpu, Question())
    assert report.hops
    assert {hop["ceiling_bytes_per_s"] for hop in to_builtins(report)["hops"]} == {None}
    for picture in (svg(report), html(report)):
        assert " GB/s" not in picture
    told = Told(words="given", label="illustration")
    assert explain(machine, gpu, 0x4012345000, size_bytes=16, told=told).ceiling_bytes_per_s is None


def test_a_gpu_on_another_node_than_its_ports_gets_a_word() -> None:
    """Node 1 below ports that all say 0: one of them is wrong, and only a measurement tells which."""
    found = sample.machine()
    assert not any("ports above" in note for note in notes_of_machine(found, Question()))
    gpu = found.functions["0000:12:00.0"]
    moved = msgspec.structs.replace(
        found, functions={**found.functions, gpu.address: msgspec.structs.replace(gpu, numa_node=1)}
    )
    (note,) = [note for note in notes_of_machine(moved, Question()) if "ports above" in note]
    assert note.startswith("told to be on node 1, and ports above it on node 0")
    assert note.endswith(": 12:00.0")
