"""Evacuations that are due while gradients wait: put off to the next boundary without them (rule D4).

Gradients are not kept. A state taken in the middle of an accumulation would lose what was accumulated so far, and the run
that resumed from it would not be the run that was interrupted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger("hinan")

SHORTEST_PATIENCE_STEPS = 64
"""How long to wait at least; twice the longest gap between optimizer steps if that is more."""


class Deferral:
    """Decides at each boundary whether to evacuate. Depends only on what the loop does, so all ranks decide alike."""

    def __init__(self) -> None:
        self.since = 0
        """Step at which the evacuation that waits was due; 0 if none waits."""
        self._ignored: frozenset[str] = frozenset()
        """Optimizers whose gradients lay there for so long that they are taken for leavings, until they are gone once."""

    def decide(self, step: int, *, due: bool, pending: Callable[[], frozenset[str]], longest_gap: int) -> bool:
        """Whether to evacuate now.

        Args:
            pending: optimizers with gradients that their last step has not used. Asked only when it matters.
            longest_gap: most iterations from one optimizer step to the next so far; 0 if unknown.
        """
        if not (due or self.since or self._ignored):
            return False
        found = pending()
        self._ignored &= found
        if not due and not self.since:
            return False
        if found - self._ignored:
            self.since = self.since or step
            if step - self.since < max(2 * longest_gap, SHORTEST_PATIENCE_STEPS):
                return False
            # Why: gradients that are left lying about at every boundary must not stop evacuations.
            log.warning(
                "evacuating step=%d although gradients of %s have not been used by a step; they are not kept. If they are "
                "still needed, put evac.step() behind optimizer.step(); if not, clear them with zero_grad()",
                step, ", ".join(sorted(found - self._ignored)),
            )  # fmt: skip
            self._ignored |= found
        self.since = 0
        return True
