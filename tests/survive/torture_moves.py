"""What dies, and when: each move kills something at a moment of its own and leaves trainers running."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from tests.harness.job import until
from tests.survive.torture import Torture

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
