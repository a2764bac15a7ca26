"""What evacuating needs above the arena: the trainer's peak against the same loop before, and the agent's.

Counted are private pages and mapped files without the tmpfs (RssAnon, and for the agent RssFile too), at their peak between
the request and the commit.
"""

from __future__ import annotations

from bench.child import Settings, call
from bench.row import Goal, Row, sampled

TRAINER = Goal("trainer_memory", "trainer memory above the arena", 64.0, "MiB")
AGENT = Goal("agent_memory", "agent RSS without the arena", 150.0, "MiB")
GOALS = (TRAINER, AGENT)
CONTROL_STEPS = 4


def rows(settings: Settings) -> list[Row]:
    """One run for both."""
    found = call(f"{__name__}:run", settings)
    return [sampled(TRAINER, found["trainer_mib"]), sampled(AGENT, found["agent_mib"])]


def run(settings: Settings) -> dict[str, list[float]]:
    """Steps without hinan, then as many evacuations as asked for."""
    import torch

    torch.set_num_threads(1)
    from bench.proc import Peak, agents
    from bench.state import Training

    training = Training(settings.state_bytes)
    mine = Peak("self", "RssAnon")
    for _ in range(CONTROL_STEPS):
        training.compute()
        training.optimizer.step()
    control_mib = mine.take()

    import hinan

    found: dict[str, list[float]] = {"trainer_mib": [], "agent_mib": []}
    with settings.place() as (target, ram):
        evac = hinan.Evacuator(target / "run", training.state, every=1, commit_every=1, ram=ram)
        evac.restore()
        others: Peak | None = None
        for _ in range(settings.evacuations):
            training.compute()
            training.optimizer.step()
            evac.step()
            if others is None:
                others = Peak(agents(target)[0])
            evac.evacuate(wait="committed")
            found["trainer_mib"].append(mine.take() - control_mib)
            found["agent_mib"].append(others.take())
        mine.stop()
        evac.close()
    return found
