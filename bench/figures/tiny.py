"""Ten thousand tensors of one element that no optimizer owns: nothing but overhead, and no gate to hide behind."""

from __future__ import annotations

import time

from bench.child import Settings, call
from bench.row import Goal, Row, sampled

FIRST = Goal("tiny_first", "10,000 one-element tensors: first evacuation", 1.0, "s")
LATER = Goal("tiny_blocked", "10,000 one-element tensors: later ones, blocked", 50.0, "ms")
GOALS = (FIRST, LATER)
TENSORS = 10_000
RUNS = 6


def rows(settings: Settings) -> list[Row]:
    """Several runs, for there is one first evacuation in each."""
    runs = [call(f"{__name__}:run", settings) for _ in range(min(RUNS, settings.evacuations))]
    return [
        sampled(FIRST, [found["first_s"] for found in runs]),
        sampled(LATER, [ms for found in runs for ms in found["later_ms"]]),
    ]


def run(settings: Settings) -> dict[str, object]:
    """Evacuations of the tensors, with a step between them in which they change."""
    import torch

    torch.set_num_threads(1)
    import hinan

    tensors = [torch.full((1,), float(i)) for i in range(TENSORS)]
    took: list[float] = []
    with settings.place() as (target, ram):
        evac = hinan.Evacuator(target / "run", {"tensors": tensors}, every=2, commit_every=2, ram=ram)
        evac.restore()
        for _ in range(max(2, settings.evacuations // 4) + 1):
            evac.step()
            torch._foreach_add_(tensors, 1.0)
            began = time.perf_counter()
            evac.step()  # every second one is due
            took.append(time.perf_counter() - began)
            assert evac.last is not None
            evac.last.wait("committed", 60.0)
        evac.close()
    return {"first_s": took[0], "later_ms": [s * 1e3 for s in took[1:]]}
