"""Evacuations that are due while gradients wait: put off to the next boundary without them (rule D4).

Gradients are not kept. A state taken in the middle of an accumulation would lose what was accumulated so far, and the run
that resumed from it would not be the run that was interrupted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

log = logging.getLogger("hinan")

SHORTEST_PATIENCE_STEPS = 64
"""How long an optimizer is waited for at least; twice the longest gap between its steps and one more if that is longer."""

NAMED = 4
"""Optimizers that a message names; with one for each parameter there are thousands."""


@dataclass(frozen=True)
class Pending:
    """An optimizer whose parameters have gradients that its last step has not used.

    Attributes:
        optimizer: its path in the state.
        idle: iterations since it stepped, or since the attempt began if it never has; 0: in the one that just ended.
        longest_gap: most iterations from one of its steps to the next; 0 while none was seen.
        are_zero: whether all its gradients are zero. Waits for the device.
    """

    optimizer: str
    idle: int
    longest_gap: int
    are_zero: Callable[[], bool] = field(compare=False)

    @property
    def patience(self) -> int:
        """Iterations without a step after which it is no longer waited for."""
        return max(SHORTEST_PATIENCE_STEPS, 2 * self.longest_gap + 1)

    @property
    def is_in_window(self) -> bool:
        """Whether its gradients are those of an accumulation: a step in a later iteration is to be expected.

        Gradients beside a step in the very same iteration were zeroed in place, or left over by somebody else's backward:
        no later boundary will be better.
        """
        return self.idle > 0 and not self.is_given_up

    @property
    def is_given_up(self) -> bool:
        """Whether it has not stepped for so long that its gradients are taken for leavings."""
        return self.idle > self.patience


class Deferral:
    """Decides at each boundary whether to evacuate. Depends only on what the loop does, so all ranks decide alike."""

    def __init__(self) -> None:
        self.since = 0
        """Step at which the evacuation that waits was due; 0 if none waits."""
        self._in_vain = False
        """A whole patience has passed without a boundary outside all windows. Until one comes nothing is put off again."""
        self._has_told = False
        self._said: set[tuple[str, str]] = set()

    def decide(self, step: int, *, due: bool, pending: Callable[[], Sequence[Pending]]) -> bool:
        """Whether to evacuate now.

        Args:
            pending: optimizers with gradients that their last step has not used. Asked only when it matters.
        """
        if not (due or self.since or self._in_vain):
            return False
        found = pending()
        in_window = [p for p in found if p.is_in_window]
        if not in_window:
            self._in_vain = False
        if not due and not self.since:
            return False
        if in_window and not self._in_vain:
            self.since = self.since or step
            # What was spent on those that were given up meanwhile is not counted: the others have their own patience.
            began = max(self.since, *(step - (p.idle - p.patience) for p in found if p.is_given_up), 0)
            if step - began < max(p.patience for p in in_window):
                self._say_put_off(step, in_window)
                return False
            self._in_vain = True
        self.since = 0
        self.say_not_kept(step, found)
        return True

    def _say_put_off(self, step: int, pending: Sequence[Pending]) -> None:
        if not self._has_told:
            self._has_told = True
            log.info(
                "put off step=%d optimizer=%s why=its gradients wait for its next step, and gradients are not kept (%s)",
                step, _names(pending),
                f"{pending[0].idle} iterations since its last step" if pending[0].longest_gap else "none was seen yet",
            )  # fmt: skip

    def say_not_kept(self, step: int, pending: Sequence[Pending]) -> None:
        """An evacuation begins while these gradients wait: say once of each optimizer that they are not kept."""
        waiting = self._first("waiting", (p for p in pending if p.idle))
        if waiting:
            log.warning(
                "evacuating step=%d although gradients of %s have waited for a step for %d iterations; they are not kept. "
                "If they are still needed, a resumed run differs: put evac.step() behind optimizer.step(). If not, clear "
                "them with zero_grad()", step, _names(waiting), max(p.idle for p in waiting),
            )  # fmt: skip
        after = [p for p in self._first("after", (p for p in pending if not p.idle)) if not p.are_zero()]
        if after:
            log.warning(
                "evacuating step=%d with gradients of %s that have changed after its step in the same iteration; they are "
                "not kept. If the next step uses them, a resumed run differs: let that backward come after evac.step(). "
                "If not, clear them with zero_grad(set_to_none=True)", step, _names(after),
            )  # fmt: skip

    def _first(self, what: str, pending: Iterable[Pending]) -> list[Pending]:
        """Those of which this was not said yet."""
        found = [p for p in pending if (what, p.optimizer) not in self._said]
        self._said |= {(what, p.optimizer) for p in found}
        return found


def _names(pending: Sequence[Pending]) -> str:
    more = len(pending) - NAMED
    return ", ".join(sorted(p.optimizer for p in pending)[:NAMED]) + (f" and {more} more" if more > 0 else "")
