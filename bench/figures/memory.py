"""What evacuating needs above the arena: the trainer's peak against the same loop before, and the agent's.

Counted are private pages and mapped files without the tmpfs (RssAnon, and for the agent RssFile too), at their peak between
the request and the commit. The same loop before hinan has a peak for each step too, and their median is what is taken off:
the largest of several would hide as much as steps differ.
"""

from __future__ import annotations

from bench.child import Settings, call
from bench.row import Goal, Row, sampled
from bench.statistics import median

TRAINER = Goal("trainer_memory", "trainer memory above the arena", 64.0, "MiB")
AGENT = Goal("agent_memory", "agent RSS without the arena", 150.0, "MiB")
GOALS = (TRAINER, AGENT)
STEPS_BEFORE = 4
"""Not counted: moments and gradients exist before them, and the allocator's heap has its size after them."""


def rows(settings: Settings) -> list[Row]:
    """One run for both."""
    found = call(f"{__name__}:run", settings)
    control_mib = median(found["control_mib"])
    return [
        sampled(TRAINER, [mib - control_mib for mib in found["trainer_mib"]]),
        sampled(AGENT, found["agent_mib"]),
    ]


def run(settings: Settings) -> dict[str, list[float]]:
    """As many steps without hinan as evacuations afterwards, each with a peak of its own."""
    import torch

    torch.set_num_threads(1)
    from bench.proc import Peak, agents
    from bench.state import Training

    training = Training(settings.state_bytes)
    if not training.optimizer.state:
        raise RuntimeError("the moments must exist before the control, or making them hides as much of hinan's memory")
    found: dict[str, list[float]] = {"control_mib": [], "trainer_mib": [], "agent_mib": []}
    mine = Peak("self", "RssAnon")
    for step in range(STEPS_BEFORE + settings.evacuations):
        training.compute()
        training.optimizer.step()
        peak_mib = mine.take()
        if step >= STEPS_BEFORE:
            found["control_mib"].append(peak_mib)

    import hinan

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
            found["trainer_mib"].append(mine.take())
            found["agent_mib"].append(others.take())
        mine.stop()
        evac.close()
    return found
