"""`hinan plan --wire`: which figure of a machine's links the planner takes, under which label, and what wins over it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import wire_dumps as dumps
from typer.testing import CliRunner

from hinan.cli.main import app
from hinan.core.errors import ConfigError

MEASURED = {
    "nvbandwidth": {
        "GPU Device list": ["0: Example (00000000:43:00)", "1: Example (00000000:44:00)"],
        "testcases": [
            {
                "name": "device_to_host_memcpy_ce",
                "status": "Passed",
                "bandwidth_matrix": [["5.00", "26.10"]],
            }
        ],
    }
}


def d2h(*words: object) -> dict[str, Any]:
    """The input that the planner puts in for HBM to RAM."""
    result = CliRunner().invoke(app, ["plan", "--json", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found["inputs"]["machine.d2h_bytes_per_s"] | {"warnings": found["warnings"]}


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Two GPUs behind one gen 4 x16 uplink: 28.8 GB/s alone, half of it together."""
    path = tmp_path / "lspci"
    path.write_text(dumps.LSPCI_VVV)
    return path


@pytest.fixture
def nvbandwidth(tmp_path: Path) -> Path:
    path = tmp_path / "nvbandwidth"
    path.write_text(json.dumps(MEASURED))
    return path


def alone(machine: Path) -> float:
    found = CliRunner().invoke(app, ["wire", "--from", str(machine), "--gpu", "0", "--json"])
    return float(json.loads(found.stdout)["ceiling_bytes_per_s"])


def test_the_share_of_a_shared_uplink_is_a_ceiling(machine: Path) -> None:
    """All ranks evacuate at once: half of what one GPU has alone. The answer warns that a ceiling is no measurement."""
    found = d2h("--wire", machine)
    assert found["value"] == pytest.approx(alone(machine) / 2)
    assert found["kind"] == "ceiling"
    assert "GPU 0 (43:00.0)" in found["source"]
    assert "all 2 GPUs" in found["source"]
    assert any("91 to 97 %" in each for each in found["warnings"])


def test_what_was_measured_counts_where_the_links_allow_it(machine: Path, nvbandwidth: Path) -> None:
    """5 GB/s of GPU 0 is measured; 26.1 GB/s of GPU 1 alone is more than its share, which then bounds it."""
    found = d2h("--wire", machine, "--wire", nvbandwidth)
    assert (found["value"], found["kind"]) == (5e9, "measured")
    assert found["source"].endswith("GPU 0 (43:00.0): nvbandwidth")
    other = d2h("--wire", machine, "--wire", nvbandwidth, "--gpu", "44:00.0")
    assert other["value"] == pytest.approx(alone(machine) / 2)
    assert other["kind"] == "ceiling"
    assert "26.1 GB/s were measured" in other["source"]


def test_measurements_alone_are_enough(nvbandwidth: Path) -> None:
    """No description of the bus beside them: the slowest GPU's."""
    assert d2h("--wire", nvbandwidth)["value"] == 5e9
    assert d2h("--wire", nvbandwidth, "--gpu", 1)["value"] == pytest.approx(26.1e9)


def together(tmp_path: Path, *cells: str, alone: bool = False) -> Path:
    """A report of `all_to_host_memcpy_ce`, perhaps beside the figures of GPUs that copied alone."""
    case = {"name": "all_to_host_memcpy_ce", "status": "Passed", "bandwidth_matrix": [list(cells)]}
    cases = [case, *(MEASURED["nvbandwidth"]["testcases"] if alone else [])]
    path = tmp_path / "together"
    path.write_text(json.dumps({"nvbandwidth": MEASURED["nvbandwidth"] | {"testcases": cases}}))
    return path


def test_what_was_measured_of_all_at_once_goes_before_all(machine: Path, tmp_path: Path) -> None:
    """It saw the memory and the sockets too: the slowest GPU's rate, for which all wait, even where it is alone."""
    for alone_too in (False, True):
        found = d2h("--wire", machine, "--wire", together(tmp_path, "4.20", "4.10", alone=alone_too))
        assert (found["value"], found["kind"]) == (pytest.approx(4.1e9), "measured")
        assert found["source"].endswith("GPU 1 (44:00.0): nvbandwidth all_to_host_memcpy_ce, all 2 GPUs at once")
    assert d2h("--wire", together(tmp_path, "4.20", "4.10"))["value"] == pytest.approx(4.1e9)


def test_all_at_once_is_shown_and_is_not_the_figure_of_one_alone(machine: Path, tmp_path: Path) -> None:
    """The advice to measure it goes away with it; `measured_bytes_per_s` stays what a GPU measures alone."""
    words = ["wire", "--from", str(machine), "--from", str(together(tmp_path, "4.20", "4.10"))]
    run = CliRunner()
    shown = run.invoke(app, [*words, "--gpu", "0", "--state", "42GB"]).stdout
    assert "measured    4.20 GB/s    10.00 s  each: nvbandwidth all_to_host_memcpy_ce" in shown
    assert "measured      unknown" in shown
    assert "measure all_to_host_memcpy_ce" not in shown
    assert "no measurement" not in shown
    every = run.invoke(app, [*words, "--all"]).stdout
    assert "measured, all at once: together 8.30 GB/s, slowest 4.10 GB/s (nvbandwidth all_to_host_memcpy_ce)" in every
    plain = json.loads(run.invoke(app, [*words, "--gpu", "0", "--legs", "--json"]).stdout)
    assert (plain["measured_bytes_per_s"], plain["all_ranks_measured_bytes_per_s"]) == (None, 4.2e9)


def test_some_at_once_are_not_all(machine: Path, tmp_path: Path) -> None:
    """One of two GPUs ran alone under that name: it says nothing of both."""
    part = together(tmp_path, "4.20", "N/A")
    assert d2h("--wire", machine, "--wire", part)["kind"] == "ceiling"
    shown = CliRunner().invoke(app, ["wire", "--from", str(machine), "--from", str(part), "--gpu", "0"]).stdout
    assert "copies of 1 of 2 GPUs at once were measured" in shown
    assert "measure all_to_host_memcpy_ce" in shown


def test_a_typed_bandwidth_wins(machine: Path) -> None:
    """And then nothing is warned about a ceiling that is not used."""
    found = d2h("--wire", machine, "--d2h", "10GB/s")
    assert (found["value"], found["kind"]) == (10e9, "given")
    assert not any("ceiling" in each for each in found["warnings"])


def test_the_sample_needs_no_file() -> None:
    """57.6 GB/s, in every kind of answer."""
    assert d2h("--wire", "sample")["value"] == pytest.approx(57.614e9, rel=1e-4)
    for more in ([], ["--scale"]):
        result = CliRunner().invoke(app, ["plan", "--wire", "sample", *more])
        assert "taken from wire of the sample machine: d2h 57.61 GB/s (ceiling)" in result.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--gpu", "0"), "needs --wire"),
        (("--wire", "sample", "--gpu", "8"), "there is no GPU '8'"),
        (("--wire", "/nonexistent"), "cannot read"),
    ],
)
def test_refusals(words: tuple[str, ...], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        CliRunner().invoke(app, ["plan", *words], catch_exceptions=False)


def test_a_source_that_does_not_tell_is_refused(tmp_path: Path) -> None:
    """A list of devices has no speeds, a list of nodes no GPU: no preset's figure slips in under their name."""
    path = tmp_path / "list"
    path.write_text("06:00.0 3D controller [0302]: NVIDIA Corporation GA102GL [A10] [10de:2236] (rev a1)\n")
    with pytest.raises(ConfigError, match="does not tell how fast every GPU is; give --d2h"):
        CliRunner().invoke(app, ["plan", "--wire", str(path)], catch_exceptions=False)
    path.write_text(dumps.NUMACTL)
    with pytest.raises(ConfigError, match="no GPU is known"):
        CliRunner().invoke(app, ["plan", "--wire", str(path)], catch_exceptions=False)
