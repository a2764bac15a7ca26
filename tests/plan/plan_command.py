"""`hinan plan ... --json`, asked as a designer does."""

import json
from typing import Any

from typer.testing import CliRunner

from hinan.cli.main import app

LLAMA = ["--gpus", "16384", "--params", "405B", "--step", "5s"]


def ask(*words: str) -> dict[str, Any]:
    """`hinan plan ... --json`."""
    result = CliRunner().invoke(app, ["plan", *words, "--json"])
    assert result.exit_code == 0, result.output
    answer: dict[str, Any] = json.loads(result.output)
    return answer
