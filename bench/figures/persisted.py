"""From the request of an evacuation to its bytes being safe on the target (and named by the commit record)."""

from __future__ import annotations

import time

from bench.child import Settings, call
from bench.row import Goal, Row, sampled

PERSISTED = Goal("persisted", "request to persisted", 1.2, "× (floor_ram + floor_disk)")
GOALS = (PERSISTED,)


def rows(settings: Settings) -> list[Row]:
    """One run."""
    found = call(f"{__name__}:run", settings)
    return [sampled(PERSISTED, found["seconds"], found["floors_s"])]


def run(settings: Settings) -> dict[str, list[float]]:
    """Evacuations that are waited for, each beside its floors."""
    import torch

    torch.set_num_threads(1)
    import hinan
    from bench.floors import Floors
    from bench.state import Training

    training = Training(settings.state_bytes)
    found: dict[str, list[float]] = {"seconds": [], "floors_s": []}
    with settings.place() as (target, ram):
        floors = Floors(training.ranges, target)
        evac = hinan.Evacuator(target / "run", training.state, every=10**9, commit_every=10**9, ram=ram)
        evac.restore()
        for evacuation in range(settings.evacuations + 1):
            training.optimizer.step()
            evac.step()
            began = time.perf_counter()
            evac.evacuate(wait="committed")
            if evacuation > 0:  # the first one also reserves the slot
                found["seconds"].append(time.perf_counter() - began)
                found["floors_s"].append(floors.ram_s() + floors.disk_s())
        evac.close()
    return found
