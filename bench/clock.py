"""Times the parts of a training step that are not training's own, from outside."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


class Clock:
    """Steps a loop, and says of the last step what it spent in hooks and in `evac.step()`.

    Relies on torch running an optimizer's own hooks inside of those that are common to all optimizers: what lies between
    the call and its own pre-hook, and between its own post-hook and the return, is what all others took or held back.

    Attributes:
        hooks_s: in hooks of `optimizer.step()`, on both sides of the update; in it lies the wait of a gate.
        saving_s: in `evac.step()`.
    """

    def __init__(self, training: Any, evacuator_step: Callable[[], int]) -> None:
        self._training, self._evacuator_step = training, evacuator_step
        self.hooks_s, self.saving_s = 0.0, 0.0
        self._entered_at = self._left_at = 0.0
        training.optimizer.register_step_pre_hook(self._entered)
        training.optimizer.register_step_post_hook(self._left)

    def step(self) -> float:
        """One step; its wall time."""
        began = time.perf_counter()
        self._training.compute()
        called_at = time.perf_counter()
        self._training.optimizer.step()
        returned_at = time.perf_counter()
        self._evacuator_step()
        ended = time.perf_counter()
        self.hooks_s = (self._entered_at - called_at) + (returned_at - self._left_at)
        self.saving_s = ended - returned_at
        return ended - began

    def _entered(self, *_: Any) -> None:
        self._entered_at = time.perf_counter()

    def _left(self, *_: Any) -> None:
        self._left_at = time.perf_counter()
