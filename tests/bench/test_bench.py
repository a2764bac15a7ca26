"""`python -m bench` on a tiny state: the shape of what it prints, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bench.__main__ import table
from bench.child import Settings, call
from bench.figures import MODULES
from bench.proc import agents
from bench.row import sampled

from bench import device
from tests.harness.job import until

ROOT = Path(__file__).resolve().parent.parent.parent


def run(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", "--state-bytes", "1000000", "--evacuations", "3", "--dir", str(tmp_path)]
    return subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=100)


@pytest.mark.slow
def test_json_has_exactly_the_promised_keys_and_nothing_is_left(tmp_path: Path) -> None:
    """Two figures of one state: keys, types, an open verdict (three samples say nothing); no file, no agent stays."""
    before = set(os.listdir("/dev/shm"))
    done = run(tmp_path, "--only", "persisted", "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert set(row) == {"figure", "ratio", "unit", "goal", "ok", "interval", "floor_s"}
    assert (row["figure"], row["unit"], row["goal"]) == ("persisted", "× (floor_ram + floor_disk)", 1.2)
    assert row["ok"] is None
    low, high = row["interval"]
    assert 0 < low <= row["ratio"] <= high
    assert row["floor_s"] > 0
    assert list(tmp_path.iterdir()) == []
    assert agents(tmp_path) == []
    assert [n for n in set(os.listdir("/dev/shm")) - before if n.startswith("hinan-bench-")] == []


@pytest.mark.slow
def test_figures_of_training_are_measured(tmp_path: Path) -> None:
    """Blocks with and without evacuations, whose slots are waited for: what else looks into the trainer's own objects."""
    done = run(tmp_path, "--only", "blocked", "tiny_blocked", "--json")
    assert done.returncode == 0, done.stderr
    assert [row["figure"] for row in json.loads(done.stdout)] == ["blocked", "tiny_blocked"]


@pytest.mark.slow
def test_one_that_is_asked_to_end_leaves_nothing(tmp_path: Path) -> None:
    """SIGTERM while a child evacuates: the child and its agent end, and both directories go."""
    before = set(os.listdir("/dev/shm"))
    command = [sys.executable, "-m", "bench", "--only", "growth_rss", "--state-bytes", "1000000", "--dir", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as bench:
        until(lambda: agents(tmp_path) != [], what="an agent")
        bench.terminate()
        assert bench.wait(60) == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []
    assert agents(tmp_path) == []
    assert [n for n in set(os.listdir("/dev/shm")) - before if n.startswith("hinan-bench-")] == []


def test_a_function_that_fails_is_told_with_its_last_words(tmp_path: Path) -> None:
    """A figure that cannot be measured is an error with the child's own message, never a number."""
    with pytest.raises(RuntimeError, match="no attribute 'nothing'"):
        call("bench.proc:nothing", Settings(1, 1, str(tmp_path), str(tmp_path)))


def test_an_unknown_figure_is_refused(tmp_path: Path) -> None:
    """A misspelt name does not give an empty table; the message lists the names."""
    done = run(tmp_path, "--only", "blocket")
    assert done.returncode == 2
    assert "extra_wall" in done.stderr


def test_every_figure_has_a_name_of_its_own_and_a_row() -> None:
    """Names are unique, and the table prints each with its goal."""
    goals = [goal for module in MODULES for goal in module.GOALS]
    assert len({goal.figure for goal in goals}) == len(goals) >= 11
    text = "\n".join(table([sampled(goal, [1.0] * 6) for goal in goals]))
    assert all(goal.figure in text and f"≤ {goal.most:g}" in text for goal in goals)


@pytest.mark.slow
def test_the_device_script_says_that_there_is_no_device() -> None:
    """Without an accelerator it measures nothing, says so in one line, and ends with 2."""
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "bench.device"], cwd=ROOT, capture_output=True, text=True, timeout=100)
    if done.returncode == 0:
        pytest.skip("this machine has an accelerator")
    assert done.returncode == 2
    assert done.stderr == device.NO_DEVICE + "\n"
    assert done.stdout == ""
    assert time.monotonic() - began < 60
