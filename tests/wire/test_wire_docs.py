"""The tutorial prints what it shows. HINAN_WRITE_DOCS=1 writes the present output into it, for review as a diff."""

import os
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hinan.cli.main import app

PAGE = Path(__file__).parents[2] / "docs/wire.md"
_BLOCK = re.compile(r"(?<=```console\n)\$ hinan (wire[^\n]*)\n(.*?)(?=```)", re.S)


def output(command: str) -> str:
    """What a command of the tutorial prints."""
    return CliRunner().invoke(app, shlex.split(command)).stdout


@pytest.mark.parametrize("block", range(len(_BLOCK.findall(PAGE.read_text()))))
def test_tutorial_block(block: int) -> None:
    """One console block of docs/wire.md, byte for byte."""
    if os.environ.get("HINAN_WRITE_DOCS"):
        PAGE.write_text(_BLOCK.sub(lambda m: f"$ hinan {m[1]}\n{output(m[1])}", PAGE.read_text()))
    command, shown = _BLOCK.findall(PAGE.read_text())[block]
    assert output(command) == shown


def test_tutorial_fits_a_terminal() -> None:
    """No shown line is wider than 100 columns."""
    shown = [line for _, text in _BLOCK.findall(PAGE.read_text()) for line in text.splitlines()]
    assert len(shown) > 50
    assert max(map(len, shown)) <= 100
