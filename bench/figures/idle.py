"""A step at which nothing is due: `evac.step()` and hinan's hooks on the optimizer, between real training steps.

What is called in a tight loop finds everything in the caches; behind a forward and a backward it does not, and takes about
ten times as long. So both are timed in a loop that trains. The hooks are there in one step and not in the next; what a
step spends in hooks with them is taken against the steps without them on both sides. Whether the training thread ever waits
in `evac.step()` (as a round trip would make it) is counted over many calls, for which there is no time to train.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.child import Settings, call
from bench.row import Goal, Row, counted, sampled
from bench.statistics import extras

STEP = Goal("idle_step", "evac.step() with nothing due, between training steps", 50.0, "µs")
HOOKS = Goal("idle_hooks", "hinan's hooks in an optimizer.step() with nothing due", 50.0, "µs")
WAITS = Goal("idle_step_waits", "waits in evac.step() with nothing due, per call", 0.001, "waits")
GOALS = (STEP, HOOKS, WAITS)
PAIRS_OVER_SAMPLES = 2
CALLS = 10_000


def rows(settings: Settings) -> list[Row]:
    """One run."""
    found = call(f"{__name__}:run", settings)
    return [
        sampled(STEP, found["step_us"]),
        sampled(HOOKS, extras(found["with_us"], found["without_us"])),
        counted(WAITS, found["waits"] / CALLS),
    ]


def run(settings: Settings) -> dict[str, object]:
    """Training steps and many calls, on the whole state."""
    import torch

    torch.set_num_threads(1)
    import hinan
    from bench.clock import Clock
    from bench.proc import status
    from bench.state import Training

    training = Training(settings.state_bytes)
    step_us: list[float] = []
    with_us: list[float] = []
    without_us: list[float] = []
    with settings.place() as (target, ram):
        evac = hinan.Evacuator(target / "run", training.state, every=10**9, commit_every=10**9, ram=ram)
        evac.restore()
        clock = Clock(training, evac.step)
        for _ in range(3):
            clock.step()
        evac.evacuate(wait="committed")  # structure known, slots mapped, gate tried: as it is in the middle of a run
        clock.step()
        for pair in range(PAIRS_OVER_SAMPLES * settings.evacuations + 1):
            with without_hooks():
                clock.step()
            without_us.append(clock.hooks_s * 1e6)
            if pair < PAIRS_OVER_SAMPLES * settings.evacuations:
                clock.step()
                with_us.append(clock.hooks_s * 1e6)
                step_us.append(clock.saving_s * 1e6)
        before = status("thread-self")["voluntary_ctxt_switches"]
        for _ in range(CALLS):
            evac.step()
        waits = status("thread-self")["voluntary_ctxt_switches"] - before
        evac.close()
    return {"step_us": step_us, "with_us": with_us, "without_us": without_us, "waits": waits}


@contextmanager
def without_hooks() -> Iterator[None]:
    """No hook that is common to all optimizers: in this process hinan's are the only ones."""
    from torch.optim import optimizer

    both: tuple[dict[int, Any], ...] = (optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks)
    kept = [dict(hooks) for hooks in both]
    if not all(kept):
        raise RuntimeError("hinan listens to no optimizer here, so there is nothing to compare with")
    for hooks in both:
        hooks.clear()
    try:
        yield
    finally:
        for hooks, before in zip(both, kept, strict=True):
            hooks.update(before)
