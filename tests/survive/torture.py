"""One job under kills: the launcher's part, moments to strike at, and what must hold at every moment of it."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from hinan.core.errors import HinanError
from hinan.core.ids import StepId
from hinan.core.lineage import lineage
from hinan.host.process import Process
from hinan.tiers.reading import read_file
from hinan.tiers.target import TOMBSTONE
from hinan.tiers.views import flaw_of
from tests.harness.job import Job, until
from tests.harness.zygote import Child
from tests.programs.lines import read_lines
from tests.programs.loop import losses
from tests.programs.points import VARIABLE

STEPS, STEP_S = 30, 0.01
WIDTH = 400  # 4 MB of weights and moments: copies and drains take a measurable time


class Torture:
    """One job under kills, and what must hold at every moment of it."""

    def __init__(self, job: Job, rng: random.Random) -> None:
        self.job, self.rng = job, rng
        self.points = job.root / "points"
        self.points.mkdir()
        self.children: list[Child] = []
        self.agents: set[Process] = set()
        self.floors: list[tuple[int, StepId]] = []
        """(newest claim, newest step held everywhere) at each moment when no trainer was left."""
        self.story: list[str] = []

    # -- the launcher's part -------------------------------------------------------------------------------------

    def start(self) -> None:
        self.children = self.job.start(env={VARIABLE: str(self.points)})

    def restart(self, also: Callable[[], None] = lambda: None) -> None:
        """End what is left, as a launcher does (SIGTERM first, or at once), look at what must survive, start again."""
        self.end_trainers()
        also()
        self.note_floor()
        self.check_target()
        self.start()

    def end_trainers(self) -> None:
        gentle = self.rng.random() < 0.3
        for child in self.children:
            with suppress(ProcessLookupError):
                child.kill(signal.SIGTERM if gentle else signal.SIGKILL)
        for child in self.children:
            child.wait()

    def kill(self, rank: int) -> None:
        with suppress(ProcessLookupError):
            self.children[rank].kill()
        self.children[rank].wait()

    def kill_all(self) -> None:
        for child in self.children:
            with suppress(ProcessLookupError):
                child.kill()
        for child in self.children:
            child.wait()

    def agent(self) -> Process | None:
        with suppress(HinanError):
            found = self.job.agent
            if found is not None:
                self.agents.add(found)
            return found
        return None

    def kill_agent(self) -> None:
        agent = until(lambda: self.agent() or self.over, what="an agent")
        if isinstance(agent, Process):
            with suppress(ProcessLookupError):
                os.kill(agent.pid, signal.SIGKILL)
            until(lambda: not agent.is_alive, what="the agent's end")

    def signal_agent(self, number: signal.Signals) -> None:
        if (agent := self.agent()) is not None:
            with suppress(ProcessLookupError):
                os.kill(agent.pid, number)

    # -- moments -------------------------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        return any(c.pid in self.job.zygote._ended or not runs(c.pid) for c in self.children)

    def train_a_while(self) -> None:
        """Until a seeded number of steps later, and a seeded part of a step."""
        goal = min(self.step() + self.rng.randint(1, 6), STEPS - 1)
        until(lambda: self.step() >= goal or self.over, what=f"step {goal}")
        moment = time.monotonic() + self.rng.random() * 2 * STEP_S
        until(lambda: time.monotonic() >= moment)
        self.agent()

    def step(self) -> int:
        return max(self.job.step(rank) for rank in range(self.job.ranks))

    def hold(self, name: str) -> bool:
        """Arm a point and wait until a process is held there; False if none came by before the end."""
        (self.points / name).touch()
        reached = self.points / f"{name}.reached"
        until(lambda: reached.exists() or self.over, what=f"{name} reached")
        return reached.exists()

    def release(self) -> None:
        for path in self.points.iterdir():
            path.unlink(missing_ok=True)

    # -- what must hold ------------------------------------------------------------------------------------------

    def note_floor(self) -> None:
        """The newest step that is sealed for every rank, or committed: no later attempt may fall behind it."""
        if not (self.job.target_path / "run.json").exists():
            return
        history, line = self.job.target.history(), lineage(self.job.target.history())
        arena = self.job.arena
        sealed: dict[StepId, set[int]] = {}
        worlds: dict[StepId, int] = {}
        for files in arena.scan():
            if files.sealed is not None:
                sealed.setdefault(files.sealed.step_id, set()).add(files.rank)
                worlds[files.sealed.step_id] = files.sealed.world_size
        lost = arena.lost()
        held = [s for s, ranks in sealed.items() if len(ranks) == worlds[s] and s not in lost and s in line]
        stored = [s for s, stored in self.job.target.stored().items() if stored.committed and s in line]
        floor = max([*held, *stored], default=StepId(0, 0))
        self.floors.append((history.newest_claim, floor))
        self.story.append(f"claim {history.newest_claim}, floor {floor}")

    def check_target(self) -> None:
        """Every committed step is whole, by all its digests."""
        if not (self.job.target_path / "run.json").exists():
            return
        target = self.job.target
        for step_id in target.step_ids():
            directory = target.directory(step_id)
            commit = target.commit_record(step_id)
            if commit is None or (directory / TOMBSTONE).exists():
                continue
            flaws = []
            for rank in range(commit.world_size):
                try:
                    manifest = target.manifest(step_id, rank)
                    assert manifest is not None
                    image = read_file(target.image_path(step_id, rank))
                    flaws.append(flaw_of(image, manifest.sealed, manifest.proven, f"{step_id} rank {rank}"))
                except (OSError, AssertionError) as error:
                    flaws.append(repr(error))
            gone = (directory / TOMBSTONE).exists() or not (directory / "COMMIT").exists()
            assert gone or flaws == [None] * commit.world_size, (step_id, flaws)

    def restores(self) -> list[list[dict[str, int]]]:
        """For each rank what it resumed from, in order."""
        return [read_lines(self.job.out / f"rank-{rank}.restores") for rank in range(self.job.ranks)]

    def check_restores(self) -> None:
        by_attempt: dict[int, set[tuple[int, int, str]]] = {}
        for records in self.restores():
            for r in records:
                by_attempt.setdefault(r["by"], set()).add((r["attempt"], r["step"], r["source"]))
        for attempt, found in by_attempt.items():
            assert len(found) == 1, f"attempt {attempt} resumed from several steps: {found}"
            step = next(iter(found))[1]
            floor = max((f.step for claim, f in self.floors if claim < attempt), default=0)
            assert step >= floor, f"attempt {attempt} resumed from {step}, but {floor} was held everywhere"

    def finish(self, reference: Job) -> None:
        """To the end without further kills, and everything that must be true then."""
        self.release()
        for child in self.children:
            child.ok(90)
        self.check_target()
        self.check_restores()
        for rank in range(self.job.ranks):
            mine, theirs = losses(self.job.out, rank), losses(reference.out, rank)
            assert {s: mine[s] for s in mine if mine[s] != theirs[s]} == {}
            # Killed inside evac.step(), after the seal, the loop never wrote that step's line; it must be one resumed from.
            assert set(theirs) - set(mine) <= {r["step"] for r in self.restores()[rank]}
            final = f"rank-{rank}.final"
            assert (self.job.out / final).read_text() == (reference.out / final).read_text()
        until(lambda: self.agent() is None, what="the agent's end")
        until(lambda: not self.job.arena.exists, what="the arena's end")
        until(lambda: not any(agent.is_alive for agent in self.agents), what="the ends of all agents")
        until(lambda: not mentioning(str(self.job.target_path)), what="the ends of all processes")


def runs(pid: int) -> bool:
    """Whether a process has not ended yet, whoever its parent is."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def mentioning(text: str) -> list[str]:
    """Command lines of other processes that have this text in them."""
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit() and int(directory.name) != os.getpid():
            with suppress(OSError):
                command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if text in command:
                    found.append(command)
    return found
