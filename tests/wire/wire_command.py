"""The command as a user calls it, in this process."""

import json
from typing import Any

from typer.testing import CliRunner, Result

from hinan.cli.main import app


def run(*arguments: str) -> Result:
    """`hinan wire ...`; errors of usage are raised as ConfigError, which `main` turns into exit code 2."""
    return CliRunner().invoke(app, ["wire", *arguments], catch_exceptions=False)


def as_json(*arguments: str) -> Any:
    found = run(*arguments, "--json")
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)
