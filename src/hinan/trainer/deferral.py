"""Evacuations that are due while gradients wait: put off to the next boundary without them (rule D4).

Gradients are not kept. A state taken in the middle of an accumulation would lose what was accumulated so far, and the run
that resumed from it would not be the run that was interrupted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger("hinan")

UNKNOWN_GAP_STEPS = 64
"""How long to wait for the first optimizer step of all."""


class Deferral:
    """Decides at each boundary whether to evacuate. Depends only on what the loop does, so all ranks decide alike."""

    def __init__(self) -> None:
        self.since = 0
        """Step at which the evacuation that waits was due; 0 if none waits."""
        self._gave_up = False

    def decide(self, step: int, *, due: bool, has_pending: Callable[[], bool], longest_gap: int) -> bool:
        """Whether to evacuate now.

        Args:
            has_pending: whether gradients wait that no optimizer has consumed. Asked only when it matters.
            longest_gap: most iterations from one optimizer step to the next so far; 0 if unknown.
        """
        if not due and not self.since:
            return False
        if not self._gave_up and has_pending():
            self.since = self.since or step
            if step - self.since < (2 * longest_gap or UNKNOWN_GAP_STEPS):
                return False
            # Why: gradients that are left lying about (no zero_grad, a step that no hook sees) must not stop evacuations.
            self._gave_up = True
            log.warning(
                "evacuating step=%d with gradients that no optimizer has consumed; they are not kept. If they are still "
                "needed, evacuate after optimizer.step(); if not, clear them with zero_grad()", step,
            )  # fmt: skip
        self.since = 0
        return True
