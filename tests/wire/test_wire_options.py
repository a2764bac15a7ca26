"""Options: each has an effect, or is refused by name with the way out."""

import json
from pathlib import Path

import pytest
import wire_dumps as dumps
from typer.testing import CliRunner

from hinan.cli.main import app
from hinan.core.errors import ConfigError


def run(*arguments: str) -> str:
    """Output of `hinan wire`."""
    return CliRunner().invoke(app, ["wire", *arguments], catch_exceptions=False).output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--sample", "--from", "x"), "--sample is a machine of its own"),
        (("--sample", "check", "--from", "x"), "--sample is a machine of its own"),
        (("--sample", "--all", "--gpu", "3"), "--gpu would have no effect with --all"),
        (("--sample", "--paths", "--state", "1GB"), "--state would have no effect with --paths"),
        (("--sample", "--paths", "--under-load"), "--under-load would have no effect with --paths"),
        (("--sample", "--legs", "--buffer-node", "0"), "--buffer-node would have no effect with --legs"),
        (("--gpu", "3", "check", "--sample"), "--gpu before `check` would have no effect"),
        (("--json", "check", "--sample"), "--json before `check` would have no effect"),
        (("--state", "1GB", "explain", "0x1000"), "--state before `explain`"),
        (("explain", "0x1000", "--sample", "--gpu", "1", "--device", "13:00.0"), "leave one of them out"),
        (("explain", "0x1000", "--sample", "--size", "0"), "--size 0 carries nothing"),
        (("--sample", "capture"), "--sample before `capture`"),
        (("--sample", "dma", "0x1000"), "--sample before `dma`"),
        (("--under-load", "--all", "check"), "--all and --under-load before `check`"),
    ],
)
def test_what_would_have_no_effect_is_refused(arguments: tuple[str, ...], words: str) -> None:
    """Nothing that was asked for is passed over in silence."""
    with pytest.raises(ConfigError, match=words):
        run(*arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--sample", "--state", "1GB", "check"),
        ("--sample", "--gpu", "1", "explain", "0x4012345000"),
        ("--sample", "--legs", "--json", "--buffer-node", "0"),
        ("--sample", "--legs", "--state", "1GB", "--gpu", "2"),
        ("--sample", "--legs", "--under-load"),
        ("--sample", "--paths", "--gpu", "2"),
        ("--sample", "--all", "--state", "1GB", "--under-load"),
    ],
)
def test_what_has_an_effect_is_taken(arguments: tuple[str, ...]) -> None:
    """In front of a verb that uses it, too."""
    assert run(*arguments)


def test_all_as_json_is_a_list_of_gpus_even_of_none(tmp_path: Path) -> None:
    """A program reads the same key on every machine."""
    (tmp_path / "dump").write_text(dumps.NUMACTL)
    assert json.loads(run("--from", str(tmp_path / "dump"), "--all", "--json")) == {"gpus": []}
    assert len(json.loads(run("--sample", "--all", "--json"))["gpus"]) == 8


def test_a_file_may_be_called_like_standard_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`./-` is a file, as for every other tool; `-` alone is where the answer goes."""
    monkeypatch.chdir(tmp_path)
    run("--sample", "--svg", "./-")
    assert (tmp_path / "-").read_text().startswith("<svg")
    dump = tmp_path / "dump"
    dump.write_text(dumps.LSPCI_VVV)
    run("capture", "--from", str(dump), "-o", "./-")
    assert "hinan_wire" in (tmp_path / "-").read_text()
    with pytest.raises(ConfigError, match="standard output"):
        run("--sample", "--svg", "-")
