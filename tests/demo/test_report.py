"""The report's JSON is an interface; what must hold after a kill decides the exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hinan.core.errors import ConfigError
from hinan.demo.acts import Options, Outcome
from hinan.demo.judge import Act
from hinan.demo.place import place
from hinan.demo.proof import Comparison
from hinan.demo.report import to_json, to_text
from hinan.demo.settings import cadence
from tests.harness.job import TMPFS, until

EQUAL = Comparison(60, 2000, ())
ACT = Act("rank", EQUAL, 12, 9, True, ("ram", "ram"), 2, 8.5, {"launcher": 1.0, "read": 0.2}, {"ram": 240})
NONE = Act("none", EQUAL)
OUTCOME = Outcome(
    options=Options(), every=3, commit_every=9, acts=(ACT, NONE), can_fail=True, steps_s=(0.4,), stalls_s=(0.03, 0.05),
    save_s=(0.6,), image_bytes=120, ram_bytes=720, evacuated_bytes=2400, drained_bytes=960, drain_s=(1.0,),
)  # fmt: skip


def check_schema(report: dict[str, Any]) -> None:
    """Names and types that other programs rely on."""
    assert isinstance(report["ok"], bool)
    assert isinstance(report["stall_s_median"], float)
    assert isinstance(report["image_bytes"], int)
    assert set(report["tiers"]) == {"ram", "target"}
    for act in report["acts"]:
        assert act["kill"] in ("rank", "all", "agent", "host", "none")
        assert isinstance(act["bit_equal"], bool)
        assert isinstance(act["redo_steps"], int)
        if act["kill"] != "none":
            assert isinstance(act["resumed_step"], int)
            assert isinstance(act["newest_committed_step"], int)
            assert isinstance(act["kill_to_first_step_s"], float)
            assert all(source in ("ram", "target", "mixed") for source in act["source"])


def test_the_json() -> None:
    """It has what is promised, and survives json."""
    report = json.loads(json.dumps(to_json(OUTCOME, 100.0)))
    check_schema(report)
    assert report["ok"] is True
    assert report["stall_s_median"] == pytest.approx(0.04)


def test_the_tables() -> None:
    """A column an act; a missing number is a dash."""
    text = "\n".join(to_text(OUTCOME, 100.0))
    assert "killed                      rank       none" in text
    assert "resumed at step             12         -" in text
    assert "a changed bit is noticed" in text
    assert text.endswith("bit for bit (100.0 s)")


@pytest.mark.parametrize(
    "worse",
    [
        replace(OUTCOME, acts=(replace(ACT, why=("resumed at step 9",)),)),
        replace(OUTCOME, can_fail=False),
    ],
)
def test_what_does_not_hold_is_said(worse: Outcome) -> None:
    """`ok` is false, and the text says so."""
    assert to_json(worse, 1.0)["ok"] is False
    assert "FAILED" in to_text(worse, 1.0)[-1]


def test_cadence_leaves_room_for_a_kill() -> None:
    """Between two commits there are evacuations, and a commit comes well before the end."""
    for steps in range(9, 200):
        every, commit_every = cadence(steps)
        assert commit_every == 3 * every
        assert 2 * commit_every + every <= steps
    with pytest.raises(ConfigError):
        cadence(8)


def test_the_place(tmp_path: Path) -> None:
    """A temporary directory goes, whatever happens; the user's own stays, and must be new or empty."""
    with pytest.raises(RuntimeError), place(None) as root:
        (root / "big").write_text("x")
        raise RuntimeError
    assert not root.exists()
    with place(tmp_path / "mine") as root:
        (root / "x").write_text("x")
    assert root.exists()
    with pytest.raises(ConfigError, match="not empty"), place(tmp_path / "mine"):
        pass


def demo(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "hinan.cli.main", "demo", *arguments]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_demo_itself(tmp_path: Path) -> None:
    """The whole of it, as a user runs it: it holds, in the time it promises on a free machine, and leaves nothing."""
    ended = subprocess.run(demo("--json"), capture_output=True, text=True, env=environment(tmp_path), check=False)
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)
    check_schema(report)
    assert report["ok"], ended.stderr
    assert [act["kill"] for act in report["acts"]] == ["rank", "all"]
    for act in report["acts"]:
        assert act["resumed_step"] > act["newest_committed_step"]
        assert act["source"] == ["ram", "ram"]
        assert act["bit_equal"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C while it trains and holds RAM: no process, no arena, no temporary file afterwards."""
    started = subprocess.Popen(
        demo("--steps", "200", "--ranks", "1"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=environment(tmp_path), start_new_session=True,
    )  # fmt: skip
    assert started.stdout is not None
    for line in started.stdout:
        if "held" in line:
            break
    (run,) = tmp_path.glob("hinan-demo-*/*/target/run.json")
    run_id = json.loads(run.read_text())["body"]["run_id"]
    (arena,) = TMPFS.glob(f"hinan-*/{run_id}")
    began = time.monotonic()
    started.send_signal(number)
    output = started.stdout.read()
    assert started.wait(60) == 130, output
    assert time.monotonic() - began < 30
    assert "nothing was left behind" in output
    assert not arena.exists()
    assert list(tmp_path.iterdir()) == []
    until(lambda: not children_in(tmp_path), what="the end of all its processes")


def environment(temporary: Path) -> dict[str, str]:
    return os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(sys.path)}


def children_in(temporary: Path) -> list[str]:
    """Processes whose environment says that they work below a directory."""
    found = []
    for name in os.listdir("/proc"):
        try:
            environ = Path(f"/proc/{name}/environ").read_bytes() if name.isdigit() else b""
        except OSError:
            continue
        if any(part.startswith(f"TMPDIR={temporary}".encode()) for part in environ.split(b"\0")):
            found.append(name)
    return found
