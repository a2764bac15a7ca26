"""Where the command reads from and writes to: files, standard input and output, captures."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import wire_dumps as dumps
from typer.testing import CliRunner
from wire_command import as_json, run

from hinan.cli.main import app
from hinan.core.errors import ConfigError


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
