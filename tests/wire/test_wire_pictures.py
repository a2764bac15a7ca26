"""Pictures and widths: what a terminal of 100 columns, without colours or letters, is shown."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import wire_dumps as dumps
from wire_command import run

from hinan.core.errors import ConfigError


@pytest.mark.parametrize("options", [(), ("--all",), ("--paths",), ("--state", "61.2GB"), ("--gpu", "7")])
def test_sample_fits_100_columns(options: tuple[str, ...]) -> None:
    """The sample works everywhere and fits a terminal."""
    found = run("--sample", *options)
    assert found.exit_code == 0
    assert max(map(len, found.stdout.splitlines())) <= 100


def test_many_sources_fit_100_columns(tmp_path: Path) -> None:
    """What a check was read from is wrapped, however many files there are."""
    texts = (dumps.LSPCI_TV, dumps.SRAT, dumps.IOMEM, dumps.NUMACTL, dumps.TOPO, dumps.GDSIO)
    names = [tmp_path / str(order) for order, _ in enumerate(texts)]
    for name, text in zip(names, texts, strict=True):
        name.write_text(text)
    shown = run("check", *(word for name in names for word in ("--from", str(name)))).stdout
    assert shown.startswith("nothing found")
    assert max(map(len, shown.splitlines())) <= 100


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


def test_nothing_to_draw_is_an_error(tmp_path: Path) -> None:
    """Without a GPU --svg is refused; no file appears."""
    (tmp_path / "nodes").write_text(dumps.NUMACTL)
    with pytest.raises(ConfigError, match="no GPU"):
        run("--from", str(tmp_path / "nodes"), "--svg", str(tmp_path / "p.svg"))
    assert not (tmp_path / "p.svg").exists()


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
