"""A training job as a test sees it: start its ranks, kill some, start it again, look at what stands where."""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hinan.formats.records import AgentRecord
from hinan.host.node import node_name
from hinan.host.process import Process, open_pidfd
from hinan.tiers.arena import AGENT, Arena, arena_path
from hinan.tiers.target import Target
from tests.harness.zygote import Child, Zygote

TMPFS = Path("/dev/shm")


def until(condition: Callable[[], Any], timeout_s: float = 30.0, what: str = "") -> Any:
    """Poll a condition with a deadline; its first true value. For the state of other processes, which have no event."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what or condition}"
        time.sleep(0.005)
    return value


class Job:
    """One run: its target is `<root>/target`, its output `<root>/out`."""

    def __init__(self, zygote: Zygote, root: Path, ranks: int = 1, tmpfs: Path = TMPFS, **arguments: Any) -> None:
        self.zygote, self.root, self.ranks, self.tmpfs, self.arguments = zygote, root, ranks, tmpfs, arguments
        self.target_path, self.out = root / "target", root / "out"
        self.out.mkdir(parents=True)
        self.children: list[Child] = []

    def start(self, env: dict[str, str] | None = None, program: str = "loop:main", **arguments: Any) -> list[Child]:
        """Start all ranks of an attempt."""
        init_file = self.root / f"init-{secrets.token_hex(4)}"
        started = [
            self.zygote.spawn(
                program,
                self.root / f"rank-{rank}.log",
                env={"HINAN_AGENT_IDLE_S": "30", **(env or {})},
                target=str(self.target_path),
                out=str(self.out),
                rank=rank,
                world_size=self.ranks,
                init_file=str(init_file),
                **(self.arguments | arguments),
            )
            for rank in range(self.ranks)
        ]
        self.children += started
        return started

    def run(self, **arguments: Any) -> None:
        """Start all ranks and wait for a good end."""
        for child in self.start(**arguments):
            child.ok()

    @property
    def target(self) -> Target:
        return Target(self.target_path)

    @property
    def arena(self) -> Arena:
        return Arena(arena_path(self.tmpfs, self.target.run().run_id, node_name()))

    @property
    def agent(self) -> Process | None:
        """The agent's process, if one is alive."""
        record = self.arena.fact(AGENT, AgentRecord)
        who = None if record is None else Process(record.pid, record.start_ticks)
        return who if who is not None and who.is_alive else None

    def kill_agent(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal the agent; after SIGKILL wait for its end."""
        agent = self.agent
        assert agent is not None, "there is no agent"
        fd = open_pidfd(agent)
        os.kill(agent.pid, number)
        if fd is not None:
            if number is signal.SIGKILL:
                until(lambda: not agent.is_alive, what="end of the agent")
            os.close(fd)

    def kill_all(self) -> None:
        """SIGKILL every trainer at once, and wait for their ends."""
        alive = [c for c in self.children if Process(c.pid, 0).pid in _running() and c.pid not in self.zygote._ended]
        for child in alive:
            child.kill()
        for child in alive:
            child.wait()

    def committed(self) -> list[int]:
        """Committed steps on the target, in order."""
        return sorted(s.step for s, stored in self.target.stored().items() if stored.committed and not stored.buried)

    def step(self, rank: int = 0) -> int:
        """The last finished step that a rank wrote down."""
        try:
            lines = (self.out / f"rank-{rank}.jsonl").read_text().splitlines()
        except FileNotFoundError:
            return 0
        import json

        return int(json.loads(lines[-1])["step"]) if lines else 0

    def clean(self) -> None:
        """End everything this job started and free its RAM."""
        self.kill_all()
        if not (self.target_path / "run.json").exists():
            return
        if self.arena.exists:
            if self.agent is not None:
                self.kill_agent(signal.SIGCONT)
                self.kill_agent()
            self.arena.wipe()


def _running() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}
