"""Ten thousand tensors of one element that no optimizer owns: nothing but overhead, and no gate to hide behind."""

from __future__ import annotations

import time

from bench.child import Settings, call
from bench.row import Goal, Row, sampled
from bench.statistics import first_costs, median

FIRST = Goal("tiny_first", "10,000 one-element tensors: first evacuation, getting ready included", 1.0, "s")
READY = Goal("tiny_ready", "of it: before the step at which it is due", None, "s")
LATER = Goal("tiny_blocked", "10,000 one-element tensors: later ones, blocked", 50.0, "ms")
GOALS = (FIRST, READY, LATER)
TENSORS = 10_000
RUNS = 6


def rows(settings: Settings) -> list[Row]:
    """Several runs, for there is one first evacuation in each."""
    runs = [call(f"{__name__}:run", settings) for _ in range(min(RUNS, settings.evacuations))]
    return [
        sampled(FIRST, [found["first_s"] for found in runs]),
        sampled(READY, [found["ready_s"] for found in runs]),
        sampled(LATER, [ms for found in runs for ms in found["later_ms"]]),
    ]


def run(settings: Settings) -> dict[str, object]:
    """Evacuations of the tensors, with a step between them in which they change."""
    import torch

    torch.set_num_threads(1)
    import hinan

    tensors = [torch.full((1,), float(i)) for i in range(TENSORS)]
    idle_s: list[float] = []
    due_s: list[float] = []
    with settings.place() as (target, ram):
        evac = hinan.Evacuator(target / "run", {"tensors": tensors}, every=2, commit_every=2, ram=ram)
        evac.restore()
        for _ in range(max(2, settings.evacuations // 4) + 1):
            for took_s in (idle_s, due_s):  # every second one is due
                torch._foreach_add_(tensors, 1.0)
                began = time.perf_counter()
                evac.step()
                took_s.append(time.perf_counter() - began)
            assert evac.last is not None
            evac.last.wait("committed", 60.0)
        evac.close()
    # No optimizer, and so no hooks: everything is paid in evac.step().
    ready_s, first_s = first_costs([(0.0, idle_s[0]), (0.0, due_s[0]), (0.0, 0.0)], (0.0, median(idle_s[1:])))
    return {"ready_s": ready_s, "first_s": first_s, "later_ms": [s * 1e3 for s in due_s[1:]]}
