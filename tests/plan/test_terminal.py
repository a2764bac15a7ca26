"""What a terminal shows: every input with its source, in 80 columns, without a word cut."""

import json
import re
from dataclasses import replace

from plan_command import LLAMA, ask, said
from typer.testing import CliRunner

from hinan.cli.main import app
from hinan.plan.decision.answer import answer
from hinan.plan.decision.nearest import solve_settings
from hinan.plan.show.terminal import table


def test_explain_lists_every_input_with_value_kind_and_source() -> None:
    """Given ones too, and demands; what a given figure replaces does not enter, and is not listed."""
    words = [*LLAMA, "--stall", "20ms", "--nic", "123GB/s", "--max-redo", "5min", "--restart", "2min"]
    text = CliRunner().invoke(app, ["plan", *words, "--explain"]).output
    listed = text[text.index("Inputs that are guesses") :]
    for name, each in ask(*words)["inputs"].items():
        (line,) = [line for line in listed.splitlines() if line.startswith(f"  {name} = ")]
        assert line.endswith(f"({each['kind']}: {each['source']})")
    for shown in (
        "job.stall_s = 20.0 ms (given",
        "machine.nic_bytes_per_s = 123 GB/s (given",
        "max_redo_s = 5 min 0 s (given",
    ):
        assert shown in listed
    assert "floor_s" not in listed
    assert "restart.parts" not in listed


def test_the_terminal_fits_80_columns() -> None:
    """Table and curve in 80 columns; --explain has formula, sources and what would flip it."""
    result = CliRunner().invoke(app, ["plan", *LLAMA, "--explain"])
    table = result.output.split("ram: every")[0]
    assert max(len(line) for line in table.splitlines()) <= 80
    for word in ("Young: sqrt(2 x", "arXiv 2407.21783", "What would flip it", "guesses, to be replaced"):
        assert word in result.output


def test_many_generations_keep_their_column() -> None:
    """606,062 generations, as months of latency ask for, stand apart from the drain, in 80 columns."""
    found = answer(*solve_settings({"drain": "5.6s", "stall": "1ms", "tiers": "shared"}))
    many = replace(found, tiers=(replace(found.tiers[0], generations=606_062, limited_by="storage bandwidth"),))
    (row,) = [line for line in table(many).splitlines() if line.startswith("shared ")]
    assert re.search(r"5\.6 s +606062  storage bandwidth$", row), row
    assert len(row) <= 80


def test_no_two_columns_run_together() -> None:
    """A stall of ten minutes, drains and intervals of hours: each figure stands apart, in 80 columns."""
    found = answer(*solve_settings({"stall": "10min", "tiers": "ram,shared"}))
    assert re.search(r"^ram +\d+ h \d+ min +\d+ +10 min 0 s +0 µs ", table(found), re.M)
    wide = replace(found.tiers[0], stall_s=7199, drain_s=7198, interval_s=3.6e6 * 9 + 3540, interval_steps=6_480_000)
    text = table(replace(found, tiers=(replace(wide, limited_by="storage bandwidth"),)))
    (row,) = [line for line in text.splitlines() if line.startswith("ram ")]
    assert re.search(r"^ram +9000 h 59 min +6480000 +119 min 59 s +119 min 58 s +1  storage bandwidth$", row), row
    assert len(row) <= 80


def test_the_sweep_fits_80_columns_without_cutting_words() -> None:
    """Regimes and reasons go on in the next line, below themselves; nothing is lost."""
    words = ["plan", "--scale", "--params", "405B", "--step", "5s"]
    text = CliRunner().invoke(app, words).output
    points = json.loads(CliRunner().invoke(app, [*words, "--json"]).output)["points"]
    assert max(len(line) for line in text.splitlines()) <= 80
    whole = " ".join(text.split())
    assert points[0]["impossible"] in re.sub(r"\s+", " ", whole)
    assert whole.count("restart>save") == sum(point["restart_overtakes"] for point in points) > 0


def test_a_small_state_is_said_in_small_units() -> None:
    """A run of one rank holds megabytes: not millionths of a terabyte."""
    assert "state 1.9 MB, 1.9 MB per GPU" in said("--gpus", "1", "--state-bytes", "1.9MB")
