"""One training run under torchrun, as the orchestrator sees it: start it, watch its files, kill its processes.

Owns:      the launcher, and the run's directory.
Promises:  every wait ends: with what was waited for, or with an error that names it and where the logs are.
Never:     tells the training loop anything.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from hinan.core.errors import AgentError, HinanError
from hinan.core.ids import StepId
from hinan.demo.diary import Line
from hinan.demo.processes import MARK, kill_at_once, marked, wait_for_ends
from hinan.demo.settings import Plan
from hinan.demo.trace import Kind, Moment, Trace
from hinan.formats.records import AgentRecord
from hinan.host.process import Process
from hinan.tiers.arena import AGENT, Arena, arena_path
from hinan.tiers.target import Target

LOOK_EVERY_S = 0.005
PATIENCE_S = 90.0
"""A run in which nothing happens for this long has failed. Starting torch on a busy machine takes a third of it."""

TMPFS = Path("/dev/shm")  # noqa: S108 - where `hinan.Evacuator` keeps its RAM copies by default
T = TypeVar("T")


class DemoError(HinanError):
    """The demo could not be carried through; the message says what did not happen."""


class Job:
    """A run below `directory`: its plan, diaries, target and launcher logs."""

    def __init__(self, directory: Path, plan: Plan, mark: str, show: Callable[[Trace, list[Moment]], None]) -> None:
        """
        Args:
            mark: put into the environment of every process (see `processes`).
            show: called after each look with the trace and what is new in it.
        """
        self.directory, self.plan = directory, plan
        self.target = Target(Path(plan.target))
        self.trace = Trace(Path(plan.out), self.target.root, plan.ranks)
        self.peak_ram_bytes = 0
        self._mark, self._show = mark, show
        self._launcher: subprocess.Popen[bytes] | None = None
        self._temporary = directory / "tmp"
        self._launches = 0
        self._told = 0

    # -- starting and ending -------------------------------------------------------------------------------------

    def launch(self) -> None:
        """Start torchrun in a session of its own, as a cluster's launcher would be."""
        Path(self.plan.out).mkdir(parents=True, exist_ok=True)
        self._temporary.mkdir(exist_ok=True)
        path = self.directory / "plan.json"
        self.plan.write(path)
        command = [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(self.plan.ranks),
            "--max-restarts", "3", "-m", "hinan.demo.train", str(path),
        ]  # fmt: skip
        self._launches += 1
        with open(os.devnull, "rb") as nothing, self.log.open("wb") as log:
            self._launcher = subprocess.Popen(
                command, stdin=nothing, stdout=log, stderr=log, env=self._environment(), start_new_session=True
            )
        self.trace.add(Kind.LAUNCHED, f"torchrun with {self.plan.ranks} ranks")

    def _environment(self) -> dict[str, str]:
        return os.environ | {
            MARK: self._mark,
            "TMPDIR": str(self._temporary),  # torchrun and torch's compiler leave things there when they are killed
            # Without this a restarted rank meets the addresses of the attempt before in the launcher's kept store.
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            "TORCH_CPP_LOG_LEVEL": "ERROR",
            "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
            "OMP_NUM_THREADS": "1",
            "HINAN_AGENT_IDLE_S": "60",
        }

    @property
    def log(self) -> Path:
        """Output of the newest launcher and its ranks."""
        return self.directory / f"launcher-{self._launches}.log"

    def run_to_the_end(self) -> None:
        """Wait until the launcher has ended well, and the agent has freed the RAM and ended too."""
        self.wait(lambda: self._exit_status() is not None, "the end of the run")
        self.wait(self._is_over, "the node agent to free the RAM and to end", running=False)

    def _is_over(self) -> bool:
        return not marked(self._mark) and not any(arena.exists for arena in self._arenas())

    def close(self) -> None:
        """Free what the run still has in RAM; its processes must have ended. Safe to call twice."""
        if self._launcher is not None:
            with suppress(ProcessLookupError):
                self._launcher.kill()
            self._launcher.wait()
        self.trace.close()
        shutil.rmtree(self._temporary, ignore_errors=True)
        for arena in self._arenas():
            arena.wipe()

    # -- what stands where ---------------------------------------------------------------------------------------

    @property
    def agent(self) -> Process | None:
        """The node agent, if it runs."""
        for arena in self._arenas():
            record = arena.fact(AGENT, AgentRecord)
            if record is not None and (who := Process(record.pid, record.start_ticks)).is_alive:
                return who
        return None

    def rank(self, rank: int) -> Process:
        """The newest process of a rank."""
        path = max(Path(self.plan.out).glob(f"rank-{rank}-*.jsonl"), key=lambda p: p.stat().st_ctime_ns)
        _, _, pid, start_ticks = path.stem.split("-")
        return Process(int(pid), int(start_ticks))

    def committed(self) -> list[StepId]:
        """Steps whose commit record stands on the target, by attempt and step."""
        return sorted(StepId(m.attempt, m.step) for m in self.trace.moments if m.kind is Kind.COMMITTED)

    def proven(self) -> list[StepId]:
        """Steps that stand in RAM, whole and proven, of every rank."""
        ranks: dict[StepId, set[int]] = {}
        for files in (files for arena in self._arenas() for files in arena.scan()):
            if files.sealed is not None and files.proven is not None:
                ranks.setdefault(files.sealed.step_id, set()).add(files.rank)
        return sorted(step_id for step_id, seen in ranks.items() if len(seen) == self.plan.ranks)

    def last(self, event: str, rank: int) -> Line | None:
        """The newest line of a kind in a rank's diary."""
        return next((line for line in reversed(self.trace.diary) if line["event"] == event and line["rank"] == rank), None)

    def _arenas(self) -> list[Arena]:
        try:
            run_id = self.target.run().run_id
        except HinanError:
            return []
        return [Arena(path) for path in arena_path(TMPFS, run_id, "x").parent.glob("*")]

    # -- watching ------------------------------------------------------------------------------------------------

    def look(self) -> list[Moment]:
        """Read everything once."""
        arenas = self._arenas()
        standing = sum(path.stat().st_size for arena in arenas for path in arena.root.glob("*.img") if path.exists())
        self.peak_ram_bytes = max(self.peak_ram_bytes, standing)
        self.trace.look(arenas[0].root if arenas else None)
        fresh, self._told = self.trace.moments[self._told :], len(self.trace.moments)
        self._show(self.trace, fresh)
        return fresh

    def wait(self, condition: Callable[[], T], what: str, *, running: bool = True) -> T:
        """Look until a condition holds; its value.

        Args:
            running: the launcher must be running, or end well, meanwhile.
        Raises:
            DemoError: the run failed, or nothing happened for a long time.
        """
        deadline, written = time.monotonic() + PATIENCE_S, -1
        while True:
            if self.look() or len(self.trace.diary) != written:
                deadline, written = time.monotonic() + PATIENCE_S, len(self.trace.diary)
            if value := condition():
                return value
            if running and self._exit_status():
                raise DemoError(f"the run failed while the demo waited for {what}:\n{self._tail()}")
            if running and self._exit_status() == 0:
                raise DemoError(f"the run ended before {what}; try more --steps")
            if time.monotonic() > deadline:
                raise DemoError(f"nothing happened for {PATIENCE_S:g} s while the demo waited for {what}:\n{self._tail()}")
            time.sleep(LOOK_EVERY_S)  # bounded by the deadline: files of many processes have no one event to wait for

    def _exit_status(self) -> int | None:
        return None if self._launcher is None else self._launcher.poll()

    def _tail(self, lines: int = 15) -> str:
        with suppress(OSError):
            return "\n".join("  " + line for line in self.log.read_text(errors="replace").splitlines()[-lines:])
        return ""

    # -- killing -------------------------------------------------------------------------------------------------

    def kill(self, what: str) -> Moment:
        """SIGKILL a rank, everything but the agent, everything, or everything with its RAM ("host").

        Raises:
            AgentError: the agent is not there, so "everything but the agent" means nothing.
        """
        agent = self.agent
        if agent is None:
            raise AgentError("the node agent does not run")
        if what == "rank":
            victims = [self.rank(self.plan.ranks - 1)]
        else:
            victims = [who for who in marked(self._mark) if who != agent or what != "all"]
        killed = kill_at_once(victims)
        moment = self.trace.add(Kind.KILLED, f"{what}: {killed} {'process' if killed == 1 else 'processes'}")
        if what != "rank":
            if left := wait_for_ends(victims):
                raise DemoError(f"processes that were killed still run: {[who.pid for who in left]}")
            assert self._launcher is not None
            assert self._launcher.wait() == -signal.SIGKILL
        if what == "host":
            for arena in self._arenas():
                arena.wipe()
        return moment
