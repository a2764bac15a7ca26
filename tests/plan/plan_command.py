"""`hinan plan ... --json`, asked as a designer does. The same question is planned once for all tests: it has one answer."""

import functools
import json
from typing import Any

from typer.testing import CliRunner

from hinan.cli.main import app

LLAMA = ["--gpus", "16384", "--params", "405B", "--step", "5s"]


def ask(*words: str) -> dict[str, Any]:
    """`hinan plan ... --json`; what comes back is the caller's own."""
    answer: dict[str, Any] = json.loads(said(*words, "--json"))
    return answer


@functools.cache
def said(*words: str) -> str:
    """What `hinan plan ...` prints."""
    result = CliRunner().invoke(app, ["plan", *words])
    assert result.exit_code == 0, result.output
    return result.output
