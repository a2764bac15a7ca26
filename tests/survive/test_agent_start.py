"""An agent comes up although somebody else looks at its arena at that moment."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hinan.agent import abandoned
from hinan.formats.records import AgentRecord
from hinan.host import spawn
from hinan.host.process import Process
from hinan.tiers.arena import AGENT, Arena
from hinan.tiers.target import Target
from tests.harness.job import TMPFS, until


@pytest.fixture
def arena(tmp_path: Path) -> Iterator[Arena]:
    """An arena that has only just been made."""
    root = TMPFS / f"hinan-test-{os.getpid()}" / "run" / "node"
    arena = Arena(root)
    arena.create()
    yield arena
    record = arena.fact(AGENT, AgentRecord)
    if record is not None:
        who = Process(record.pid, record.start_ticks)
        subprocess.run(["kill", "-9", str(who.pid)], check=False)
        until(lambda: not who.is_alive, what="end of the agent")
    arena.wipe()


def test_a_fresh_arena_is_not_reclaimed(arena: Arena) -> None:
    """Another run's agent that tidies up leaves an arena alone whose own agent has not come up yet."""
    kept = abandoned.reclaim(arena.root.parent.parent / "other" / "node")
    assert arena.exists
    assert "only starting" in kept[0]
    old = time.time() - 2 * abandoned.STARTING_S
    os.utime(arena.root, (old, old))
    assert abandoned.why_needed(arena) is None


def test_an_agent_that_met_a_held_lock_is_started_again(
    arena: Arena, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock was taken by a tidier, not by an agent: `connect` does not wait for an agent that has ended."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    target = Target(tmp_path / "target")
    target.open_or_create()
    command = [sys.executable, "-m", "hinan.agent", "--target", str(target.root), "--arena", str(arena.root)]
    with abandoned.lock(arena.root) as free:
        assert free
        assert subprocess.run([*command, "--node", "node"], check=False, timeout=60).returncode == 0
    starts: list[object] = []
    real = spawn.start_agent

    def first_meets_the_lock(*where: Any) -> None:
        starts.append(where)
        if len(starts) > 1:
            real(*where)

    monkeypatch.setattr(spawn, "start_agent", first_meets_the_lock)
    monkeypatch.setattr(spawn, "START_EVERY_S", 0.5)
    spawn.connect(arena.root, 30.0, (target.root, arena.root, "node")).close()
    assert len(starts) > 1
