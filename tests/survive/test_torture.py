"""Seeded schedules of kills from outside: whatever dies, and whenever, the run goes on bit-exactly.

A schedule is a list of moves drawn from a seed. Between moves the test plays the launcher: the other ranks are ended and
all are started again. A failure names its seed; `pytest -k "schedule and <ranks>-<seed>"` plays the same schedule again.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from hinan.core.errors import HinanError
from hinan.core.ids import StepId
from hinan.core.lineage import lineage
from hinan.host.process import Process
from hinan.tiers.reading import read_file
from hinan.tiers.target import TOMBSTONE
from hinan.tiers.views import flaw_of
from tests.harness.job import Job, until
from tests.harness.zygote import ROOT, Child, Zygote
from tests.programs.loop import losses
from tests.programs.points import VARIABLE

MakeJob = Callable[..., Job]
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
        return any(c.pid in self.job.zygote._ended or not _runs(c.pid) for c in self.children)

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
        found = []
        for rank in range(self.job.ranks):
            path = self.job.out / f"rank-{rank}.restores"
            found.append([json.loads(line) for line in path.read_text().splitlines()])
        return found

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
        until(lambda: not _mentioning(str(self.job.target_path)), what="the ends of all processes")


def _runs(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def _mentioning(text: str) -> list[str]:
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit() and int(directory.name) != os.getpid():
            with suppress(OSError):
                command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if text in command:
                    found.append(command)
    return found


# -- moves: each leaves trainers running -----------------------------------------------------------------------------

Move = Callable[[Torture], None]


def one_rank(t: Torture) -> None:
    t.train_a_while()
    t.kill(t.rng.randrange(t.job.ranks))
    t.restart()


def all_ranks(t: Torture) -> None:
    t.train_a_while()
    t.kill_all()
    t.restart()


def agent_alone(t: Torture) -> None:
    """Training goes on; a trainer starts a new agent."""
    t.train_a_while()
    t.kill_agent()
    t.train_a_while()


def agent_and_all(t: Torture) -> None:
    t.train_a_while()
    agent = t.agent()
    if t.rng.random() < 0.5 and agent is not None:
        with suppress(ProcessLookupError):
            os.kill(agent.pid, signal.SIGKILL)
    t.kill_all()
    t.restart(also=t.kill_agent if agent is not None and agent.is_alive else lambda: None)


def in_restore(t: Torture) -> None:
    """A rank dies before the vote, between vote and install, or in the middle of the install."""
    t.train_a_while()
    t.kill_all()
    rank = t.rng.randrange(t.job.ranks)
    point = t.rng.choice(["looking", "looked", "decided", "prepared", "voted", "resumed", "installing"])
    name = point if point.startswith("look") else f"{point}-{rank}"
    (t.points / name).touch()
    t.restart()
    if t.hold(name):
        if t.rng.random() < 0.3:
            t.kill_agent()
        t.kill(rank if "-" in name else 0)
    t.release()
    t.restart()


def in_claim(t: Torture) -> None:
    t.train_a_while()
    t.kill_all()
    name = t.rng.choice(["claiming", "claimed"])
    (t.points / name).touch()
    t.restart()
    if t.hold(name):
        t.kill(0)
    t.release()
    t.restart()


def agent_in_restore(t: Torture) -> None:
    """The agent dies while a restore looks, reads or installs; the restore itself goes on."""
    t.train_a_while()
    t.kill_all()
    name = t.rng.choice(["looking", "looked", "decided-0", "prepared-0", "resumed-0"])
    (t.points / name).touch()
    t.restart()
    if t.hold(name):
        t.kill_agent()
    t.release()


def two_quick(t: Torture) -> None:
    t.train_a_while()
    t.kill_all()
    t.restart()
    moment = time.monotonic() + t.rng.random()
    until(lambda: time.monotonic() >= moment)
    t.kill(t.rng.randrange(t.job.ranks))
    t.restart()


def mid_copy(t: Torture) -> None:
    """One rank in the middle of a copy, or between copy and seal, or just after its seal; the others as they are."""
    t.train_a_while()
    rank = t.rng.randrange(t.job.ranks)
    if t.hold(f"{t.rng.choice(['copying', 'copied', 'sealed'])}-{rank}"):
        if t.rng.random() < 0.3:
            t.kill_agent()
        t.kill(rank)
    t.release()
    t.restart()


AGENT_POINTS = [
    "after-NAME",
    "after-WRITE_ASIDE",
    "after-PUBLISH_MANIFEST",
    "before-PUBLISH_COMMIT",
    "after-PUBLISH_COMMIT",
    "proving",
    "leased",
]


def agent_at_work(t: Torture) -> None:
    """The agent dies at a point of its work, between image and manifest among them; alone, or with everybody."""
    t.train_a_while()
    if t.hold(f"agent-{t.rng.choice(AGENT_POINTS)}"):
        t.kill_agent()
    t.release()
    if t.rng.random() < 0.6:
        t.kill_all()
        t.restart()


def frozen_agent(t: Torture) -> None:
    """The agent is stopped, trainers die, new ones start, and only then it goes on."""
    t.train_a_while()
    t.signal_agent(signal.SIGSTOP)
    t.kill(t.rng.randrange(t.job.ranks))
    t.restart()
    moment = time.monotonic() + t.rng.random()
    until(lambda: time.monotonic() >= moment)
    t.signal_agent(signal.SIGCONT)


def draining_at_restart(t: Torture) -> None:
    """The agent drains what dead trainers left while the next attempt starts, or dies in it."""
    t.train_a_while()
    name = f"agent-{t.rng.choice(['before-PUBLISH_COMMIT', 'after-NAME', 'before-WRITE_ASIDE'])}"
    held = t.hold(name)
    t.kill_all()
    if held and t.rng.random() < 0.5:
        t.kill_agent()
    t.restart()
    until(lambda: (t.job.target.history().newest_claim > t.floors[-1][0]) or t.over, what="the next claim")
    t.release()


MOVES: list[Move] = [one_rank, all_ranks, agent_alone, agent_and_all, in_restore, in_claim, agent_in_restore, two_quick,
                     mid_copy, agent_at_work, frozen_agent, draining_at_restart]  # fmt: skip


# -- the tests -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def reference(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> object:
    """The uninterrupted run, by number of ranks; made once."""
    made: dict[int, Job] = {}

    def of(ranks: int) -> Job:
        if ranks not in made:
            made[ranks] = Job(zygote, tmp_path_factory.mktemp("reference") / "run", ranks, steps=STEPS, width=WIDTH)
            made[ranks].run()
            until(lambda: not made[ranks].arena.exists, what="the reference's arena to be freed")
        return made[ranks]

    return of


def play(
    make_job: MakeJob, reference: Callable[[int], Job], ranks: int, seed: int, moves: list[Move] | None = None
) -> Torture:
    """One schedule, from the first start to the end."""
    rng = random.Random(f"{ranks}-{seed}")
    every, multiple = rng.randint(1, 3), rng.randint(1, 3)
    job = make_job("run", ranks=ranks, steps=STEPS, width=WIDTH, every=every, commit_every=every * multiple)
    job.arguments["step_s"] = STEP_S
    torture = Torture(job, rng)
    chosen = moves or rng.choices(MOVES, k=rng.randint(2, 4))
    torture.story.append(f"ranks {ranks} seed {seed} every {every} commit {every * multiple}: "
                         f"{[m.__name__ for m in chosen]}")  # fmt: skip
    began = time.monotonic()
    try:
        torture.start()
        for move in chosen:
            if torture.over:
                break
            torture.story.append(f"{time.monotonic() - began:.2f} {move.__name__} at step {torture.step()}")
            move(torture)
        if torture.over and any(c.wait() != 0 for c in torture.children if not _runs(c.pid)):
            raise AssertionError("a trainer ended badly by itself")
        torture.finish(reference(ranks))
    except BaseException:
        print("\n".join(torture.story))
        for child in torture.children:
            print(f"--- {child.log.name}\n{child.output[-6000:]}")
        with suppress(HinanError, OSError):
            print("--- agent\n" + (job.arena.root / "agent.log").read_text()[-6000:])
        raise
    return torture


@pytest.fixture(autouse=True)
def held_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs here run the loop with points, and agents that can import the tests."""
    start = Job.start

    def patched(
        self: Job, env: dict[str, str] | None = None, program: str = "torture:main", **arguments: object
    ) -> list[Child]:
        return start(self, env, program, **arguments)

    monkeypatch.setattr(Job, "start", patched)


EVERYDAY = [(1, 1, [one_rank, agent_at_work]), (1, 2, [mid_copy, agent_in_restore]), (2, 1, [one_rank, agent_and_all])]


@pytest.mark.parametrize(("ranks", "seed", "moves"), EVERYDAY, ids=[f"{r}-{s}" for r, s, _ in EVERYDAY])
def test_a_few_kills(make_job: MakeJob, reference: Callable[[int], Job], ranks: int, seed: int, moves: list[Move]) -> None:
    """The everyday sample."""
    play(make_job, reference, ranks, seed, moves)


@pytest.mark.slow
@pytest.mark.parametrize("move", MOVES, ids=[m.__name__ for m in MOVES])
@pytest.mark.parametrize("ranks", [1, 2])
def test_each_move(make_job: MakeJob, reference: Callable[[int], Job], ranks: int, move: Move) -> None:
    """Every kind of kill at least once with one and two ranks."""
    play(make_job, reference, ranks, 1000, [move])


FIRST_SEED = int(os.environ.get("HINAN_TORTURE_SEED", "0"))
"""Set it to play other schedules than those of every day's run."""
SEEDS = [(ranks, seed) for seed in range(FIRST_SEED, FIRST_SEED + 10) for ranks in (1, 2)]


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "seed"), SEEDS, ids=[f"{r}-{s}" for r, s in SEEDS])
def test_schedule(make_job: MakeJob, reference: Callable[[int], Job], ranks: int, seed: int) -> None:
    """Twenty seeded schedules."""
    play(make_job, reference, ranks, seed)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [3, 8])
def test_more_ranks(make_job: MakeJob, reference: Callable[[int], Job], ranks: int) -> None:
    """Larger jobs, one schedule each."""
    play(make_job, reference, ranks, 0, [one_rank, agent_and_all] if ranks == 3 else [one_rank])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_under_torchrun(tmp_path: Path, reference: Callable[[int], Job], zygote: Zygote, seed: int) -> None:
    """The real launcher: ranks, and once the agent too, are SIGKILLed; torchrun starts all again, and the run ends well."""
    rng = random.Random(seed)
    job = Job(zygote, tmp_path / "run", 2)
    arguments = {
        "target": str(job.target_path), "out": str(job.out), "steps": STEPS, "width": WIDTH, "step_s": 0.05,
        "every": rng.randint(1, 3), "commit_every": "auto",
    }  # fmt: skip
    environment = os.environ | {
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1", "HINAN_AGENT_IDLE_S": "30",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
    }  # fmt: skip
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "3"]
    with (tmp_path / "log").open("wb") as log:
        launcher = subprocess.Popen(
            [sys.executable, *command, "-m", "tests.programs.torture", json.dumps(arguments)],
            cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        for goal in sorted(rng.sample(range(4, STEPS - 4), 2 + seed)):
            until(lambda goal=goal: max(job.step(0), job.step(1)) >= goal or launcher.poll() is not None, 100)
            if seed and rng.random() < 0.7 and (agent := job.agent) is not None:
                os.kill(agent.pid, signal.SIGKILL)
            os.kill(rng.choice(_ranks_of(launcher.pid)), signal.SIGKILL)
        assert launcher.wait(150) == 0, (tmp_path / "log").read_text()[-8000:]
        for rank in (0, 1):
            theirs, mine = losses(reference(2).out, rank), losses(job.out, rank)
            assert {s: mine[s] for s in mine if mine[s] != theirs[s]} == {}
            final = f"rank-{rank}.final"
            assert (job.out / final).read_text() == (reference(2).out / final).read_text()
        until(lambda: not job.arena.exists, what="the arena's end")
        until(lambda: not _mentioning(str(job.target_path)), what="the ends of all processes")
    finally:
        if launcher.poll() is None:
            launcher.kill()
            for pid in _ranks_of(launcher.pid):
                os.kill(pid, signal.SIGKILL)
            launcher.wait()
        job.clean()


def _ranks_of(launcher: int) -> list[int]:
    """The training processes that a launcher has started."""
    text = Path(f"/proc/{launcher}/task/{launcher}/children").read_text()
    return [int(pid) for pid in text.split() if b"tests.programs" in Path(f"/proc/{pid}/cmdline").read_bytes()]
