"""A training job as a test sees it: start its ranks, kill some, start it again, look at what stands where."""

from __future__ import annotations

import json
import os
import secrets
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hinan.core.errors import AgentError
from hinan.formats import messages
from hinan.formats.records import AgentRecord
from hinan.host.node import node_name
from hinan.host.process import Process, open_pidfd
from hinan.host.rpc import AgentClient
from hinan.tiers.arena import AGENT, Arena, arena_path
from hinan.tiers.target import Target
from tests.harness.zygote import Child, Zygote
from tests.programs.lines import read_lines
from tests.programs.loop import losses, resumes

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
        self.agents: list[Child] = []

    def start(self, env: dict[str, str] | None = None, program: str = "loop:main", **arguments: Any) -> list[Child]:
        """Start all ranks of an attempt."""
        init_file = self.root / f"init-{secrets.token_hex(4)}"
        settings = self.arguments | arguments
        if self.tmpfs != TMPFS:
            settings["options"] = {"ram": str(self.tmpfs), **(settings.get("options") or {})}
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
                **settings,
            )
            for rank in range(self.ranks)
        ]
        self.children += started
        return started

    def start_agent(self, **faults: Any) -> Child:
        """Fork an agent (in milliseconds, not seconds), with faults if any are named (`tests.programs.agent`).

        An agent of another test beside this one may look at the arena at that moment, by its lock: the new one ends at once
        then, as it does where another serves already, and is forked again, as a trainer would.
        """
        self.target.open_or_create()
        self.arena.create()
        log = self.root / f"agent-{len(self.agents)}.log"
        arguments = {"target": str(self.target_path), "arena": str(self.arena.root), "node": node_name()}
        try:
            agent = self.zygote.spawn("agent:main", log, **arguments, **faults)
            until(self.connects, 5.0, what="an answering agent")
        except AssertionError:
            agent = self.zygote.spawn("agent:main", log, **arguments, **faults)
            until(self.connects, what="an answering agent")
        self.agents.append(agent)
        return agent

    def connects(self) -> bool:
        """Whether an agent answers."""
        try:
            AgentClient(self.arena.root / "agent.sock", 1.0).close()
        except AgentError:
            return False
        return True

    def ask(self, request: messages.Request, timeout_s: float = 10.0) -> messages.Answer:
        """One question to the agent, as a visitor."""
        client = AgentClient(self.arena.root / "agent.sock", timeout_s)
        try:
            return client.ask(request, timeout_s)
        finally:
            client.close()

    def status(self) -> dict[str, Any]:
        """What `hinan agent status` would show."""
        answer = self.ask(messages.Status())
        assert isinstance(answer, messages.Done), answer
        return answer.detail

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
        lines = read_lines(self.out / f"rank-{rank}.jsonl")
        return int(lines[-1]["step"]) if lines else 0

    def result(self, rank: int = 0) -> dict[str, Any]:
        """What a rank of a program of `tests.programs.small` told."""
        return dict(json.loads((self.out / f"result-{rank}.json").read_text()))

    def clean(self) -> None:
        """End everything this job started and free its RAM."""
        self.kill_all()
        if not (self.target_path / "run.json").exists():
            return
        if self.arena.exists:
            self.end_agent()
            self.arena.wipe()

    def end_agent(self) -> None:
        """SIGKILL the agent if one is alive, stopped or not."""
        agent = self.agent
        if agent is None:
            return
        for number in (signal.SIGCONT, signal.SIGKILL):
            with suppress(ProcessLookupError):  # it may end by itself at any moment
                os.kill(agent.pid, number)
        until(lambda: not agent.is_alive, what="end of the agent")


def assert_same_run(job: Job, reference: Job) -> None:
    """Every step's loss and the final state of every rank are those of the run without a failure.

    A step that was resumed from may lack its line: its trainer was killed after the seal and before it wrote.
    """
    for rank in range(job.ranks):
        found, resumed = losses(job.out, rank), {step for _, step, _ in resumes(job.out, rank)}
        wanted = losses(reference.out, rank)
        assert found == {step: loss for step, loss in wanted.items() if step in found or step not in resumed}
        final = f"rank-{rank}.final"
        assert (job.out / final).read_text() == (reference.out / final).read_text()


def _running() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


MakeJob = Callable[..., Job]
"""The fixture `make_job`: makes a job of a test's own, ended with it."""
