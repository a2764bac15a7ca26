"""The command, run in the test's own process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from hinan.cli import main as cli

Verb = Callable[..., tuple[int, Any]]


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Verb:
    """Runs the command in this process; (exit code, parsed JSON or text)."""

    def run(*arguments: object) -> tuple[int, Any]:
        monkeypatch.setattr(sys, "argv", ["hinan", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out = capsys.readouterr()
        text = out.out or out.err
        return int(ended.value.code or 0), json.loads(text) if "--json" in arguments and out.out else text

    return run
