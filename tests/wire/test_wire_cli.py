"""The command: schema, exit codes, width, files."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import wire_dumps as dumps
from typer.testing import CliRunner, Result

from hinan.cli.main import app
from hinan.core.errors import ConfigError

KEYS = {
    "gpu", "numa_node", "hops", "narrowest", "ceiling_bytes_per_s", "all_ranks_ceiling_bytes_per_s",
    "measured_bytes_per_s", "seconds", "labels", "findings",
}  # fmt: skip
HOP_KEYS = {"address", "kind", "cap_gt_s", "now_gt_s", "width", "mps", "shared_with"}
WORDS = {"ceiling", "share", "measured", "reported", "unknown"}


def run(*arguments: str) -> Result:
    """`hinan wire ...`; errors of usage are raised as ConfigError, which `main` turns into exit code 2."""
    return CliRunner().invoke(app, ["wire", *arguments], catch_exceptions=False)


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "lspci"
    path.write_text(dumps.LSPCI_VVV)
    return path


def as_json(*arguments: str) -> Any:
    found = run(*arguments, "--json")
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def test_schema(dump: Path) -> None:
    """The keys of the agreed schema and no others, figures with labels of five words."""
    answer = as_json("--from", str(dump), "--gpu", "0", "--state", "61.2GB")
    assert answer.keys() == KEYS
    assert answer["gpu"].keys() == {"address", "name"}
    assert answer["gpu"]["address"] == "43:00.0"
    assert answer["gpu"]["name"]
    assert all(hop.keys() == HOP_KEYS for hop in answer["hops"])
    assert set(answer["labels"].values()) <= WORDS
    assert answer["seconds"] == pytest.approx(61.2e9 / answer["ceiling_bytes_per_s"])
    assert answer["measured_bytes_per_s"] is None
    assert answer["labels"]["measured_bytes_per_s"] == "unknown"
    assert answer["hops"][2]["shared_with"] == ["44:00.0", "45:00.0"]


def test_unknown_is_null(tmp_path: Path) -> None:
    """A list of devices: path, node, ceiling and seconds are null, not 0."""
    path = tmp_path / "list"
    path.write_text("06:00.0 3D controller [0302]: NVIDIA Corporation GA102GL [A10] [10de:2236] (rev a1)\n")
    answer = as_json("--from", str(path), "--gpu", "0", "--state", "1GB")
    for key in ("numa_node", "narrowest", "ceiling_bytes_per_s", "all_ranks_ceiling_bytes_per_s", "seconds"):
        assert answer[key] is None
    hop = answer["hops"][0]
    assert hop["cap_gt_s"] is hop["now_gt_s"] is hop["width"] is hop["mps"] is None


@pytest.mark.parametrize("options", [(), ("--all",), ("--paths",), ("--state", "61.2GB"), ("--gpu", "7")])
def test_sample_fits_100_columns(options: tuple[str, ...]) -> None:
    """The sample works everywhere and fits a terminal."""
    found = run("--sample", *options)
    assert found.exit_code == 0
    assert max(map(len, found.stdout.splitlines())) <= 100


def test_gpu_by_address(dump: Path) -> None:
    """--gpu takes an index or an address."""
    assert as_json("--from", str(dump), "--gpu", "44:00.0", "--legs")["gpu"]["index"] == 1


def test_all_gpus(dump: Path) -> None:
    """--all --json is a list of the same reports."""
    found = as_json("--from", str(dump), "--all")["gpus"]
    assert [g["gpu"]["address"] for g in found] == ["43:00.0", "44:00.0"]
    assert all(g.keys() == KEYS for g in found)


def test_no_gpu_is_told(tmp_path: Path) -> None:
    """Without a GPU: RAM, NVMe and NIC are explained, the JSON keeps its shape, exit code 0."""
    path = tmp_path / "tree"
    path.write_text(
        "".join(
            line for line in dumps.LSPCI_TV.splitlines(keepends=True) if "NVIDIA" not in line and "Instinct" not in line
        )
    )
    (tmp_path / "nodes").write_text(dumps.NUMACTL)
    found = run("--from", str(path), "--from", str(tmp_path / "nodes"))
    assert found.exit_code == 0
    for words in ("No GPU", "RAM  node 0", "RAM > root complex > 60:01.1", "NIC  64:00.0"):
        assert words in found.stdout
    answer = as_json("--from", str(path), "--gpu", "0")
    assert answer["gpu"] is None
    assert answer["hops"] == []


def test_this_machine() -> None:
    """`hinan wire` reads the machine it runs on."""
    assert run().exit_code == 0
    assert as_json().keys() == KEYS
    assert as_json("--legs").keys() > KEYS


def test_check_exit_codes(dump: Path, tmp_path: Path) -> None:
    """1 with findings, 0 without; options stand before or after the verb."""
    assert run("check", "--sample").exit_code == 0
    found = run("check", "--from", str(dump), "--state", "61.2GB")
    assert found.exit_code == 1
    assert "shared-uplink" in found.stdout
    assert "Fix:" in found.stdout
    assert run("--from", str(dump), "check").exit_code == 1
    answer = json.loads(run("check", "--from", str(dump), "--json").stdout)
    assert {f["code"] for f in answer["findings"]} == {"shared-uplink"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--sample", "--gpu", "8"), "there is no GPU '8'"),
        (("--sample", "--state", "much"), "64MiB"),
        (("--from", "/nonexistent"), "cannot read"),
        (("explain",), "0x4012345000"),
        (("explain", "12:00.0", "--sample"), "0x4012345000"),
        (("explain", "0x1000", "--file", "/x"), "not both"),
        (("explain", "--arena", "--file", "/x"), "not both"),
        (("--sample", "--svg", "/nonexistent/x.svg"), "cannot write"),
        (("--sample", "--all", "--svg", "x.svg"), "leave --all out"),
        (("--sample", "--paths", "--html", "x.html"), "leave --paths out"),
        (("--sample", "--all", "--paths"), "different views"),
        (("--sample", "--all", "--legs"), "different views"),
    ],
)
def test_usage_errors(arguments: tuple[str, ...], words: str) -> None:
    """What was asked wrongly is said with the way out."""
    with pytest.raises(ConfigError, match=words.replace("(", r"\(")):
        run(*arguments)


def test_explain(dump: Path) -> None:
    """The claimants at each hop, the walk, the header bytes and the six ideas; labels on what is not read."""
    srat = dump.with_name("srat")
    srat.write_text(dumps.SRAT)
    found = run("explain", "0x4012345000", "--from", str(dump), "--from", str(srat), "--gpu", "0")
    assert found.exit_code == 0
    assert max(map(len, found.stdout.splitlines())) <= 100
    for words in (
        "42:00.0       up", "-> system memory", "60 00 00 40 43 00 00 ff 00 00 00 40 12 34 50 00", "illustration", "NAT",
        "24 of 280", "16 memory write TLPs",
    ):  # fmt: skip
        assert words in found.stdout
    peer = run("explain", "0x380000000000", "--from", str(dump), "--gpu", "0")
    assert "turn" in peer.stdout
    assert "BAR 1 of 44:00.0" in peer.stdout


def test_explain_another_sender(dump: Path) -> None:
    """A drive that writes to a GPU's BAR turns round inside the switch."""
    found = run("explain", "0x300000000000", "--from", str(dump), "--device", "45:00.0")
    assert "41:00.0       turn" in found.stdout
    assert "-> BAR 1 of 43:00.0" in found.stdout
    with pytest.raises(ConfigError, match="no device"):
        run("explain", "0x1000", "--from", str(dump), "--device", "99:00.0")


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """`lspci -vvv | hinan wire --from -`."""
    found = CliRunner().invoke(app, ["wire", "--from", "-", "--json"], input=dumps.LSPCI_VVV, catch_exceptions=False)
    assert json.loads(found.stdout)["gpu"]["address"] == "43:00.0"


def test_standard_input_is_read_once_and_stays_open() -> None:
    """Named twice it is refused by name; read once it is left open for whoever comes after."""
    code = (
        "import sys; from pathlib import Path; from hinan.wire.machine import sources; "
        "sources.read_path(Path('-')); assert not sys.stdin.buffer.closed"
    )
    found = subprocess.run([sys.executable, "-c", code], input=dumps.LSPCI_VVV, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    with pytest.raises(ConfigError, match="can be read once"):
        CliRunner().invoke(app, ["wire", "--from", "-", "--from", "-"], input=dumps.LSPCI_VVV, catch_exceptions=False)


def test_explain_json() -> None:
    """Packets are their header bytes."""
    answer = as_json("explain", "0x7fed1234", "--sample", "--size", "4")
    assert answer["packets"] == ["40 00 00 01 12 00 00 0f 7f ed 12 34"]
    assert answer["labels"]["route"] == "reported"
    assert answer["labels"]["packets"] == answer["labels"]["address"] == "illustration"
    assert answer["route"]["destination"] == "system memory"


def test_explain_file(tmp_path: Path) -> None:
    """A file's pages: each figure is read or unknown."""
    path = tmp_path / "slot"
    path.write_bytes(bytes(8192))
    found = run("explain", "--file", str(path), "--sample")
    assert found.exit_code == 0
    assert "Some of its pages" in found.stdout
    assert "   read" in found.stdout or "unknown (root needed)" in found.stdout
    assert "windows and BARs: illustration" in found.stdout or "the physical address is not known" in found.stdout


def test_capture_and_read_back(dump: Path, tmp_path: Path) -> None:
    """Several dumps become one file that every verb reads."""
    out = tmp_path / "machine.json"
    assert run("capture", "--out", str(out), "--from", str(dump)).exit_code == 0
    assert as_json("--from", str(out), "--gpu", "0")["hops"] == as_json("--from", str(dump), "--gpu", "0")["hops"]


def test_capture_writes_over_nothing_unasked(dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """machine.json is its name where none was given; a file that is there needs to be named."""
    monkeypatch.chdir(tmp_path)
    assert run("capture", "--from", str(dump)).exit_code == 0
    (tmp_path / "machine.json").write_text("mine")
    with pytest.raises(ConfigError, match=r"machine\.json exists; name a file with -o"):
        run("capture", "--from", str(dump))
    assert (tmp_path / "machine.json").read_text() == "mine"
    assert run("capture", "--from", str(dump), "-o", "machine.json").exit_code == 0
    assert (tmp_path / "machine.json").read_text() != "mine"


def test_a_capture_to_standard_output(dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`capture -o -` is the file and nothing else; pictures, beside which an answer is printed, need a name."""
    monkeypatch.chdir(tmp_path)
    found = run("capture", "--from", str(dump), "-o", "-")
    assert "machine" in json.loads(found.stdout)
    for option in ("--svg", "--html"):
        with pytest.raises(ConfigError, match="standard output"):
            run("--from", str(dump), option, "-")
    assert not (tmp_path / "-").exists()


def test_many_sources_fit_100_columns(tmp_path: Path) -> None:
    """What a check was read from is wrapped, however many files there are."""
    texts = (dumps.LSPCI_TV, dumps.SRAT, dumps.IOMEM, dumps.NUMACTL, dumps.TOPO, dumps.GDSIO)
    names = [tmp_path / str(order) for order, _ in enumerate(texts)]
    for name, text in zip(names, texts, strict=True):
        name.write_text(text)
    shown = run("check", *(word for name in names for word in ("--from", str(name)))).stdout
    assert shown.startswith("nothing found")
    assert max(map(len, shown.splitlines())) <= 100


def test_a_check_says_how_many_gpus_it_looked_at(tmp_path: Path) -> None:
    """None, one, several."""
    path = tmp_path / "x"
    path.write_text(dumps.NUMACTL)
    assert run("check", "--from", str(path)).stdout.startswith(
        "no GPU is known, so no path was checked (read from: numactl"
    )
    path.write_text(dumps.LSPCI_TV.replace("[AMD/ATI] Instinct", "Bridge"))
    assert run("check", "--from", str(path)).stdout.startswith("nothing found on the path of 1 GPU (read from: lspci -tv)")
    assert run("check", "--sample").stdout.startswith("nothing found on the paths of 8 GPUs")


def test_distances_of_many_nodes_are_not_cut(tmp_path: Path) -> None:
    """Eight nodes and no GPU: all seven distances of each, in 100 columns."""
    path = tmp_path / "x"
    nodes = "".join(f"node {n} cpus: {n}\nnode {n} size: 100000 MB\nnode {n} free: 90000 MB\n" for n in range(8))
    head = "node " + " ".join(f"{n:>3}" for n in range(8))
    rows = "".join(f"  {n}: " + " ".join(f"{10 if n == m else 12 + m:>3}" for m in range(8)) + "\n" for n in range(8))
    path.write_text(f"available: 8 nodes (0-7)\n{nodes}node distances:\n{head}\n{rows}")
    shown = run("--from", str(path)).stdout
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 100
    assert all(f"{12 + n} to node {n}" in " ".join(shown.split()) for n in range(8))


def test_pictures(tmp_path: Path, dump: Path) -> None:
    """SVG and HTML are well-formed, load nothing, and escape what a source says."""
    from xml.etree.ElementTree import fromstring

    evil = tmp_path / "evil"
    evil.write_text(dumps.LSPCI_VVV.replace("Example A100", "<script>alert(1)</script>"))
    svg, page = tmp_path / "p.svg", tmp_path / "p.html"
    assert run("--from", str(evil), "--svg", str(svg), "--html", str(page)).exit_code == 0
    root = fromstring(svg.read_text())
    assert len([e for e in root.iter() if "bar" in (e.get("class") or "")]) == 2  # GPU to port, uplink to root port
    for text in (svg.read_text(), page.read_text()):
        assert "<script" not in text
        assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_narrow_hop_is_in_colour(tmp_path: Path) -> None:
    """The uplink that is slower than the GPU's link is drawn narrow, half as wide, in its own class."""
    nccl, svg = tmp_path / "x", tmp_path / "p.svg"
    nccl.write_text(dumps.NCCL)
    run("--from", str(nccl), "--gpu", "0", "--svg", str(svg))
    text = svg.read_text()
    assert text.count('class="bar narrow"') == 1
    assert 'width="23.0"' in text
    assert 'width="46.0"' in text


def test_equal_hops_have_no_narrow_one(tmp_path: Path) -> None:
    """Where every link is as fast as the next, none is marked, on screen or in the picture."""
    svg = tmp_path / "p.svg"
    found = run("--sample", "--svg", str(svg))
    assert "<- narrowest" not in found.stdout
    assert 'narrow"' not in svg.read_text()


def test_dma_on_paper() -> None:
    """Descriptor in, packets and times out; the semaphore is the last packet; the rate is the ceiling of the link."""
    answer = as_json("dma", "0x4012345000", "--size", "1MiB", "--device", "19:00.0")
    assert answer["packets"] == 4096
    assert answer["bytes_per_s"] == pytest.approx(57.614e9, rel=1e-5)
    assert answer["rows"][0]["header"] == "60 00 00 40 19 00 00 ff 00 00 00 40 12 34 50 00"
    assert answer["rows"][0]["end_ns"] == pytest.approx(280 / 63.015385, rel=1e-6)
    shown = run("dma", "0x4012345000", "--size", "512", "--to-device", "--semaphore", "0x1000").stdout
    assert [line.split()[3] for line in shown.splitlines()[1:-1]] == ["MRd", "CplD", "CplD", "MWr"]
    assert max(map(len, shown.splitlines())) <= 100
    for wrong in (("--gt", "7"), ("--mps", "100"), ("--device", "x"), ("--size", "1GiB")):
        with pytest.raises(ConfigError):
            run("dma", "0x1000", *wrong)


@pytest.mark.parametrize("address", ["0x4012340002", "0x4012340ffe"])
def test_a_semaphore_is_one_word(address: str) -> None:
    """Half a word in each of two packets says "done" twice: refused."""
    with pytest.raises(ConfigError, match="no aligned word"):
        run("dma", "0x4012345000", "--semaphore", address)


def test_legs_hop_by_hop(dump: Path) -> None:
    """GPU to drive: inside the switch, and via RAM; each hop with link, MPS, sharers and node; the narrow one named."""
    answer = as_json("--from", str(dump), "--gpu", "0", "--state", "39.38GB", "--legs")
    near, far = answer["legs"][:2]
    assert [h["address"] for h in near["hops"]] == ["43:00.0", "42:00.0", "41:00.0", "42:02.0", "45:00.0"]
    assert [h["address"] for h in far["hops"]] == [
        "43:00.0", "42:00.0", "41:00.0", "40:01.0", "40:01.0", "41:00.0", "42:02.0", "45:00.0"
    ]  # fmt: skip
    assert (near["distance"], near["narrowest"], far["narrowest"]) == (4, "45:00.0", "45:00.0")
    assert near["ceiling_bytes_per_s"] == pytest.approx(8e9 * 4 / 8 * 128 / 130 * 256 / 276)
    assert near["seconds"] == pytest.approx(39.38e9 / near["ceiling_bytes_per_s"])
    shown = run("--from", str(dump), "--legs").stdout
    assert "45:00.0       nvme             8 GT/s x4              MPS 256  node 1     <- narrowest" in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_nothing_to_draw_is_an_error(tmp_path: Path) -> None:
    """Without a GPU --svg is refused; no file appears."""
    (tmp_path / "nodes").write_text(dumps.NUMACTL)
    with pytest.raises(ConfigError, match="no GPU"):
        run("--from", str(tmp_path / "nodes"), "--svg", str(tmp_path / "p.svg"))
    assert not (tmp_path / "p.svg").exists()


def test_help_says_what_the_others_are_for() -> None:
    """`wire check --help` names verify, preflight and drill."""
    text = run("check", "--help").stdout
    for verb in ("verify", "preflight", "drill"):
        assert verb in text


@pytest.mark.parametrize("state", ["61.2", "61", "61.2Gb"])
def test_a_state_whose_unit_is_a_guess_is_refused(state: str) -> None:
    """No seconds from a number without a unit, or with one that may be bits."""
    with pytest.raises(ConfigError, match=r"no unit|may mean bits"):
        run("--sample", "--state", state)


def test_an_address_that_can_be_read_in_two_ways_is_refused() -> None:
    """4096 is 0x1000 or 0x4096; digits with a to f, or with 0x, are clear."""
    with pytest.raises(ConfigError, match=r"write 0x4096 if it is hexadecimal, 0x1000 if it is decimal"):
        run("--sample", "explain", "4096")
    with pytest.raises(ConfigError, match="two ways"):
        run("dma", "4012345000")
    assert run("--sample", "explain", "0x4096").exit_code == 0
    assert run("dma", "4012345f80").exit_code == 0


def test_a_terminal_without_these_letters() -> None:
    """LANG=C: microseconds are written us; nothing else changes, and nothing is raised."""
    command = [
        sys.executable,
        "-c",
        "from hinan.cli.main import main; main()",
        "wire",
        "dma",
        "0x4012345000",
        "--size",
        "4",
    ]
    ascii_, whole = (
        subprocess.run(command, env={**os.environ, "PYTHONIOENCODING": encoding}, capture_output=True, check=False)
        for encoding in ("ascii", "utf-8")
    )
    assert ascii_.returncode == 0, ascii_.stderr
    assert " µs: " in whole.stdout.decode()
    assert ascii_.stdout.decode("ascii") == whole.stdout.decode().replace("µ", "u")


@pytest.mark.parametrize("verb", [(), ("check",)])
def test_a_node_that_is_not_there(verb: tuple[str, ...]) -> None:
    """The buffer cannot lie on a node that the machine does not have; where no source tells nodes, it may."""
    with pytest.raises(ConfigError, match="no NUMA node 77; there are 0, 1"):
        run(*verb, "--sample", "--buffer-node", "77")


def test_a_node_of_a_machine_without_nodes(dump: Path) -> None:
    """lspci lists no nodes: any may be there."""
    assert run("--from", str(dump), "--buffer-node", "3").exit_code == 0


@pytest.mark.parametrize("view", [("--gpu", "0"), ("--all",), ("check",)])
def test_a_contradiction_is_told_in_every_view(dump: Path, tmp_path: Path, view: tuple[str, ...]) -> None:
    """Also where a table or "nothing found" would look as if all were well."""
    other = tmp_path / "other"
    other.write_text(dumps.LSPCI_VVV.replace("Width x16, ASPM", "Width x8, ASPM"))
    found = run(*view, "--from", str(dump), "--from", str(other))
    assert "i sources contradict each other: link width x16 or x8" in found.stdout


def test_wire_and_explain_say_the_same_of_the_iommu(dump: Path) -> None:
    """Groups in lspci: an IOMMU is on, in a mode that nobody tells. And one byte is a byte."""
    words = "on (groups exist), mode unknown"
    assert f"IOMMU: {words}" in run("--from", str(dump), "--gpu", "0").stdout
    shown = run("explain", "0x4012345000", "--from", str(dump), "--gpu", "0", "--size", "1").stdout
    assert f"IOMMU: {words}" in shown
    assert "5. 1 byte is 1 memory write TLP" in shown
