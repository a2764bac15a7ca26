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
from bench.__main__ import measure, table
from bench.child import Settings, call
from bench.figures import MODULES, growth
from bench.proc import agents, processes
from bench.row import Goal, Row, sampled

from bench import __main__, child, device
from tests.bench.hanging import MARK
from tests.harness.job import until

ROOT = Path(__file__).resolve().parent.parent.parent


def run(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", "--state-bytes", "1000000", "--evacuations", "3", "--dir", str(tmp_path)]
    return subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=400)


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
    done = run(tmp_path, "--only", "blocked", "getting_ready", "tiny_blocked", "--json")
    assert done.returncode in (0, 1), done.stderr  # a busy machine may miss a goal
    assert [row["figure"] for row in json.loads(done.stdout)] == ["blocked", "getting_ready", "tiny_blocked"]


@pytest.mark.slow
def test_what_hinan_costs_with_nothing_due_is_measured(tmp_path: Path) -> None:
    """evac.step() and the hooks between training steps: both are there, and the hooks' is not the difference of nothing."""
    done = run(tmp_path, "--only", "idle_step", "idle_hooks", "trainer_memory", "--json")
    assert done.returncode in (0, 1), done.stderr
    found = {row["figure"]: row["value"] for row in json.loads(done.stdout)}
    assert list(found) == ["idle_step", "idle_hooks", "trainer_memory"]
    assert found["idle_step"] > 0
    assert found["idle_hooks"] > 1


@pytest.mark.slow
def test_restores_are_measured(tmp_path: Path) -> None:
    """From RAM, into live tensors and into a loop that was just started, and from the disk."""
    done = run(tmp_path, "--only", "restore_ram", "restore_ram_fresh", "restore_disk", "--json", "--evacuations", "1")
    assert done.returncode == 0, done.stderr
    assert [row["figure"] for row in json.loads(done.stdout)] == ["restore_ram", "restore_ram_fresh", "restore_disk"]


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


class Hanging:
    """A module whose child evacuates nothing and never ends."""

    __name__ = "hanging"
    GOALS = (Goal("hangs", "never ends", 1.0, "s"), Goal("hangs_too", "of the same child", 1.0, "s"))

    @staticmethod
    def rows(settings: Settings) -> list[Row]:
        call("tests.bench.hanging:hang", settings)
        return []


class Quick:
    """A module that measures one figure."""

    __name__ = "quick"
    GOALS = (Goal("quick", "at once", 1.0, "s"),)

    @staticmethod
    def rows(settings: Settings) -> list[Row]:
        return [sampled(Quick.GOALS[0], [0.5] * 6)]


def test_a_child_that_runs_out_of_time_costs_its_own_rows_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was measured before and comes after is told; the rows that are missing are named, and the exit code says so.
    Nothing that the killed child had started or made is left beside the next figure."""
    left: list[object] = []

    class Afterwards(Quick):
        @staticmethod
        def rows(settings: Settings) -> list[Row]:
            left.extend([*processes(Path(settings.directory)), *Path(settings.ram).iterdir()])
            return Quick.rows(settings)

    monkeypatch.setattr(__main__, "MODULES", (Quick, Hanging, Afterwards))
    monkeypatch.setattr(child, "TIMEOUT_S", 5.0)
    code = __main__.main(["--dir", str(tmp_path), "--markdown"])
    out, err = capsys.readouterr()
    assert code == 2
    assert out.count("(`quick`)") == 2
    assert "Not measured: hangs, hangs_too." in out
    assert "not measured: hangs, hangs_too: RuntimeError: tests.bench.hanging:hang: it took longer than 5 s" in err
    assert (tmp_path / MARK).exists()
    assert left == []


def test_any_other_failure_costs_its_own_rows_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that cannot be read, say: a KeyError is no reason to lose what was measured before."""

    class Broken(Hanging):
        @staticmethod
        def rows(settings: Settings) -> list[Row]:
            raise KeyError("new")

    monkeypatch.setattr(__main__, "MODULES", (Quick, Broken))
    rows, missing = measure(Settings(1, 1, str(tmp_path), str(tmp_path)), ["quick", "hangs"])
    assert ([row.goal.figure for row in rows], missing) == (["quick"], ["hangs"])


@pytest.mark.parametrize(("evacuations", "count", "ok"), [(1, "10", None), (19, "190", None), (20, "1,000", True)])
def test_growth_says_of_how_many_evacuations_it_speaks(
    evacuations: int, count: str, ok: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The goals are those of a thousand. Every form of a row says how many there were; fewer get no verdict."""
    found = {"trainer_kib": 0.0, "agent_kib": 0.0, "things": 0}
    monkeypatch.setattr(growth, "call", lambda *_, **__: found)
    for row in growth.rows(Settings(1, evacuations, "", "")):
        assert row.as_json()["ok"] is ok
        assert row.as_json()["unit"].endswith(f" in {count} evacuations")
        assert f" in {count} evacuations" in "\n".join(table([row]))


def test_an_unknown_figure_is_refused(tmp_path: Path) -> None:
    """A misspelt name does not give an empty table; the message lists the names."""
    done = run(tmp_path, "--only", "blocket")
    assert done.returncode == 2
    assert "extra_wall" in done.stderr


def test_every_figure_has_a_name_of_its_own_and_a_row() -> None:
    """Names are unique, and the table prints each with its goal, if it has one."""
    goals = [goal for module in MODULES for goal in module.GOALS]
    assert len({goal.figure for goal in goals}) == len(goals) >= 11
    text = "\n".join(table([sampled(goal, [1.0] * 6) for goal in goals]))
    assert all(goal.figure in text and (goal.most is None or f"≤ {goal.most:g}" in text) for goal in goals)


@pytest.mark.slow
def test_the_device_script_says_that_there_is_no_device() -> None:
    """Without an accelerator it measures nothing, says so in one line, and ends with 2."""
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "bench.device"], cwd=ROOT, capture_output=True, text=True, timeout=400)
    if done.returncode == 0:
        pytest.skip("this machine has an accelerator")
    assert done.returncode == 2
    assert done.stderr == device.NO_DEVICE + "\n"
    assert done.stdout == ""
    assert time.monotonic() - began < 60
