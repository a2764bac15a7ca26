"""What the blocks of a training loop count: all of the first evacuation, and all of a drain that is waited for."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from bench.clock import Clock
from bench.figures import training
from bench.figures.training import QUESTIONS, Blocks
from bench.statistics import first_costs

BUSY, QUIET = 4, 3
DUE = BUSY + QUIET
USUAL_HOOKS_S, USUAL_SAVING_S, COMPUTE_S = 0.001, 0.002, 1.0
QUESTION_S, LEFT_S = 0.004, 0.030


class Loop:
    """A loop by a clock of its own: what each step pays is written down, and nothing else takes time.

    The first evac.step() walks and plans (0.5 s). At the boundary before the first evacuation the gate is tried out
    (0.25 s), and looked at again in the next optimizer.step() (0.125 s). Each evacuation takes 0.01 s, its gate 0.005 s.
    """

    def __init__(self) -> None:
        self.now_s, self.steps = 100.0, 0
        self.hooks_s = self.saving_s = 0.0
        self.left_s = 0.0
        self._liaison = SimpleNamespace(_lease=object())
        self.last = self

    def perf_counter(self) -> float:
        return self.now_s

    def step(self) -> float:
        self.steps += 1
        at = self.steps % DUE
        self.hooks_s = (
            USUAL_HOOKS_S + (0.125 if self.steps == DUE else 0.0) + (0.005 if at == 1 and self.steps > 1 else 0.0)
        )
        self.saving_s = USUAL_SAVING_S + {1: 0.5, DUE - 1: 0.25}.get(self.steps, 0.0) + (0.01 if at == 0 else 0.0)
        self.left_s = LEFT_S if at == 0 else self.left_s
        return COMPUTE_S + self.hooks_s + self.saving_s

    def wait(self, moment: str, timeout_s: float) -> None:
        assert moment == "committed"
        self.now_s += QUESTION_S + self.left_s
        self.left_s = 0.0

    def ram_s(self) -> float:
        return 0.1


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[float]]:
    loop: Any = Loop()
    monkeypatch.setattr(training, "time", loop)
    return Blocks(loop, loop, BUSY, QUIET).run(2, loop)


def test_the_first_evacuation_is_all_that_the_loop_pays(found: dict[str, list[float]]) -> None:
    """Walk, plan and both looks of trying the gate out lie in steps at which nothing is due; they are counted."""
    assert found["ready_s"] == pytest.approx([0.5 + 0.25 + 0.125])
    assert found["first_s"] == pytest.approx([0.5 + 0.25 + 0.125 + 0.01 + 0.005])
    assert found["blocked_s"] == pytest.approx([0.015] * 2)


def test_what_is_left_of_a_drain_is_counted_however_little_it_is(found: dict[str, list[float]]) -> None:
    """30 ms of drain behind the block are 30 ms of wall time; the 4 ms that asking takes are the bench's own."""
    step_s = COMPUTE_S + USUAL_HOOKS_S + USUAL_SAVING_S
    # The evac.step() with which a busy block begins is in it, and its last step ends with one with nothing due.
    extra_s = 0.01 + USUAL_SAVING_S + 0.005 + LEFT_S
    assert found["with_s"] == pytest.approx([BUSY * step_s + extra_s] * 2)
    assert len(found["without_s"]) == 3
    assert QUESTIONS * QUESTION_S < LEFT_S  # they are no part of it


def test_nothing_before_the_first_step_or_behind_the_gate_is_counted() -> None:
    """The hooks of the first step lie before the first evac.step(), and the last evac.step() behind the gate."""
    usual_s = (0.5, 0.25)
    assert first_costs([(9.0, 1.25), (1.5, 2.25), (4.5, 9.0)], usual_s) == (1.0 + 1.0, 1.0 + 1.0 + 2.0 + 4.0)


def test_the_clock_sees_hooks_on_both_sides_of_the_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """What hooks common to all optimizers take is theirs, before the update and behind it; the update itself is not."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    from bench import clock

    now_s = [0.0]

    def takes(seconds: float) -> Callable[..., None]:
        def take(*_: object) -> None:
            now_s[0] += seconds

        return take

    class Slow(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            takes(8.0)()

    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter=lambda: now_s[0]))
    optimizer = Slow([torch.nn.Parameter(torch.zeros(1))])
    watch = Clock(SimpleNamespace(optimizer=optimizer, compute=takes(16.0)), lambda: takes(4.0)() or 1)
    handles = [register_optimizer_step_pre_hook(takes(1.0)), register_optimizer_step_post_hook(takes(2.0))]
    try:
        assert watch.step() == 31.0
        assert (watch.hooks_s, watch.saving_s) == (3.0, 4.0)
    finally:
        for handle in handles:
            handle.remove()
