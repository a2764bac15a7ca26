"""A step at which nothing is due: its time, and whether the training thread ever waited in it (as a round trip would)."""

from __future__ import annotations

import time

from bench.child import Settings, call
from bench.row import Goal, Row, counted, sampled

STEP = Goal("idle_step", "evac.step() with nothing due", 50.0, "µs")
WAITS = Goal("idle_step_waits", "waits in evac.step() with nothing due, per call", 0.001, "waits")
GOALS = (STEP, WAITS)
CALLS = 10_000


def rows(settings: Settings) -> list[Row]:
    """One run."""
    found = call(f"{__name__}:run", settings)
    return [sampled(STEP, found["us"]), counted(WAITS, found["waits"] / CALLS)]


def run(settings: Settings) -> dict[str, object]:
    """Many calls on the whole state."""
    import torch

    torch.set_num_threads(1)
    import hinan
    from bench.proc import status
    from bench.state import Training

    training = Training(settings.state_bytes)
    with settings.place() as (target, ram):
        evac = hinan.Evacuator(target / "run", training.state, every=10**9, commit_every=10**9, ram=ram)
        evac.restore()
        evac.step()
        evac.evacuate(wait="committed")  # structure known, slots mapped: as it is in the middle of a run
        us = [0.0] * CALLS
        before = status("thread-self")["voluntary_ctxt_switches"]
        for i in range(CALLS):
            began = time.perf_counter()
            evac.step()
            us[i] = (time.perf_counter() - began) * 1e6
        waits = status("thread-self")["voluntary_ctxt_switches"] - before
        evac.close()
    return {"us": us, "waits": waits}
