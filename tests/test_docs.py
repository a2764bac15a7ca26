"""The documentation tells the truth: its code runs, its commands exist, its links lead somewhere, its tables are whole."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer.main

from hinan.cli.main import app
from hinan.formats import records
from hinan.tiers.target import Target
from tests.harness.zygote import Zygote

ROOT = Path(__file__).parents[1]
PAGES = [p for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")] if p.is_file()]
BLOCK = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)

pytestmark = pytest.mark.skipif(
    not (ROOT / "docs").is_dir(), reason="the documentation is not beside the tests (wheel alone)"
)


def blocks(page: Path, language: str) -> list[str]:
    return [body for found, body in BLOCK.findall(page.read_text()) if found == language]


@pytest.mark.parametrize("page", ["README.md", "README.ja.md"])
def test_the_five_lines_run(zygote: Zygote, tmp_path: Path, page: str) -> None:
    """The first code block of the README runs as it stands; so do those of a hand-written update and a job that leaves."""
    by_hand, code, *others = blocks(ROOT / page, "python")
    target = tmp_path / "gpt"
    zygote.spawn("docs:main", tmp_path / "log", code=code.replace("/shared/runs/gpt", str(target)), steps=100).ok()
    assert max(s.step for s, stored in Target(target).stored().items() if stored.committed) == 100
    for number, block in enumerate([by_hand, *others]):
        other = tmp_path / str(number)
        zygote.spawn("docs:main", tmp_path / "log", code=block, steps=100, target=str(other)).ok()
        assert max(s.step for s, stored in Target(other).stored().items() if stored.committed) == 100


def test_commands_in_the_documentation_exist() -> None:
    """Every line of a code block that begins with `hinan` names a verb, and its options are that verb's."""
    group = typer.main.get_command(app)
    lines = [line for page in PAGES for _, body in BLOCK.findall(page.read_text()) for line in body.splitlines()]
    commands = [shlex.split(line.split("  #")[0]) for line in lines if line.startswith("hinan ")]
    assert commands
    for words in commands:
        command = group
        for word in words[1:]:
            if hasattr(command, "commands") and not word.startswith("-"):
                assert word in command.commands, words
                command = command.commands[word]
        options = {name for parameter in command.params for name in parameter.opts}
        assert {w.split("=")[0] for w in words if w.startswith("--")} <= options | {"--json"}, words


def test_links_lead_somewhere() -> None:
    """Every relative link in the documentation points to a file that is there."""
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            assert link.startswith("http") or (page.parent / link).exists(), f"{page.name}: {link}"


def test_every_kind_of_fact_is_specified() -> None:
    """docs/formats/facts.md lists each kind of record with each of its fields."""
    rows = [row for row in (ROOT / "docs/formats/facts.md").read_text().splitlines() if row.startswith("| ")]
    for kind, name in records._KINDS.items():
        (row,) = [row for row in rows if name in row.split("|")[1].replace(",", " ").split()]
        if "see [" not in row:
            assert [field for field in kind.__dataclass_fields__ if field not in row] == [], name
