"""A thousand evacuations of a small state against a loop that saves nothing: what has grown over the second half."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

from bench.child import Settings, call
from bench.row import Goal, Row, counted

RSS = Goal("growth_rss", "RSS over the last half of a run, trainer or agent, above a control run", 4.0, "MiB")
THINGS = Goal("growth_things", "descriptors, threads and names in tmpfs over the last half of a run", 0.0, "things")
GOALS = (RSS, THINGS)
EVACUATIONS = 1000
"""Of them the goals speak. A shorter run is measured too, and says nothing about them."""
STATE_BYTES = 1 << 20


def rows(settings: Settings) -> list[Row]:
    """One run of each kind: growth adds up, it does not scatter."""
    small = Settings(STATE_BYTES, settings.evacuations, settings.directory, settings.ram)
    count = EVACUATIONS if settings.evacuations >= 20 else 10 * settings.evacuations
    saving, control = (call(f"{__name__}:run", small, saving=saving, count=count) for saving in (True, False))
    rss_kib = max(saving["trainer_kib"] - control["trainer_kib"], saving["agent_kib"])
    things = saving["things"] - control["things"]
    return [
        counted(_of(RSS, count), max(0.0, rss_kib / 1024), enough=count >= EVACUATIONS),
        counted(_of(THINGS, count), max(0, things), enough=count >= EVACUATIONS),
    ]


def _of(goal: Goal, count: int) -> Goal:
    """The unit says how many evacuations there were: it is in every form of the table."""
    return replace(goal, unit=f"{goal.unit} in {count:,} evacuations")


def run(settings: Settings, *, saving: bool, count: int) -> dict[str, float]:
    """Train and evacuate at every step; the second half's growth."""
    import torch

    torch.set_num_threads(1)
    import hinan
    from bench.state import Training

    training = Training(settings.state_bytes)
    with settings.place() as (target, ram):
        evac = hinan.Evacuator(target / "run", training.state, every=1, commit_every=1, ram=ram) if saving else None
        if evac is not None:
            evac.restore()
        seen = []
        for half in (count // 2, count - count // 2):
            for _ in range(half):
                training.compute()
                training.optimizer.step()
                if evac is not None:
                    evac.step()
            if evac is not None:
                evac.evacuate(wait="committed")
            seen.append(settled(target, ram))
        if evac is not None:
            evac.close()
    before, after = seen
    return {
        "trainer_kib": after["trainer_kib"] - before["trainer_kib"],
        "agent_kib": after["agent_kib"] - before["agent_kib"],
        "things": sum(max(0, after[name] - before[name]) for name in ("descriptors", "threads", "names")),
    }


def settled(target: Path, ram: Path) -> dict[str, int]:
    """The least of several looks: facts of a slot that is being given out come and go; what leaks stays."""
    looks = []
    for _ in range(20):
        looks.append(look(target, ram))
        time.sleep(0.02)
    return {name: min(each[name] for each in looks) for name in looks[0]}


def look(target: Path, ram: Path) -> dict[str, int]:
    """Memory of the trainer and of the agent; what both have open, and what lies in the arena."""
    from bench.proc import agents, descriptors, names_below, own_kib, status

    me, others = os.getpid(), agents(target)
    return {
        "trainer_kib": own_kib(me),
        "agent_kib": sum(own_kib(pid) for pid in others),
        "descriptors": sum(descriptors(pid) for pid in (me, *others)),
        "threads": sum(status(pid)["Threads"] for pid in (me, *others)),
        "names": names_below(ram),
    }
