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
from tests.harness.job import Job, MakeJob, until
from tests.harness.zygote import ROOT, Child, Zygote
from tests.programs.loop import losses
from tests.survive.torture import STEP_S, STEPS, WIDTH, Torture, mentioning, runs
from tests.survive.torture_moves import MOVES, Move, agent_and_all, agent_at_work, agent_in_restore, mid_copy, one_rank


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
        if torture.over and any(c.wait() != 0 for c in torture.children if not runs(c.pid)):
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
        until(lambda: not mentioning(str(job.target_path)), what="the ends of all processes")
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
