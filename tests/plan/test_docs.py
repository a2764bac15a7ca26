"""The tutorial runs: every command of docs/plan.md, with the output it shows."""

import os
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hinan.cli.main import app

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "plan.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```console\n\$ hinan (.+)\n((?:.|\n)*?)```", PAGE)


def pattern_of(shown: str) -> re.Pattern[str]:
    """`...` on its own line stands for any lines, at the end of a line for the rest of it."""
    parts = []
    for line in shown.splitlines():
        if line.strip() == "...":
            parts.append(r"(?:.*\n)*?")
        elif line.endswith("..."):
            parts.append(re.escape(line[:-3].rstrip()) + r".*\n")
        else:
            parts.append(re.escape(line.rstrip()) + r"[ ]*\n")
    return re.compile("".join(parts))


@pytest.mark.parametrize(("command", "shown"), EXAMPLES, ids=[command[:60] for command, _ in EXAMPLES])
def test_example(command: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command answers, or refuses with exit code 1, and shows what the page shows."""
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(app, shlex.split(command))
    assert result.exit_code == (1 if "impossible:" in shown else 0), result.output
    output = result.output if result.output.endswith("\n") else result.output + os.linesep
    assert pattern_of(shown).search(output), f"shown:\n{shown}\ngot:\n{output}"


def test_the_page_has_examples() -> None:
    """A changed fence must not silently drop the tutorial from the tests."""
    assert len(EXAMPLES) >= 9
