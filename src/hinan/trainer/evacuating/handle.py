"""What `evac.evacuate()` returns: one evacuation, and the moments it passes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from hinan.core.errors import AgentError, ConfigError, SavingError
from hinan.core.ids import StepId
from hinan.trainer.attempt.refusals import refuse_after_end
from hinan.trainer.evacuating.flight import Flight

MOMENTS = ("held", "committed")
Watch = Callable[[StepId, str, float], None]


class Handle:
    """One evacuation.

    Attributes:
        step: finished steps that the evacuated state stands for.
        attempt: number of this incarnation of the run.
        image_bytes: length of the image.
        asked_at, held_at: when it was asked for and when it was held, on the monotonic clock; None before.
        ungated_bytes: what was copied before training went on; the rest was copied beside it.
        lost: why it was given up before it was held; None if it was not.

    *held*: this rank's copy is whole and the trainer may overwrite its state. *committed*: one record on the target names
    every rank's image, and all survive power loss there.
    """

    def __init__(self, step_id: StepId, watch: Watch, refuse: Callable[[], None] = lambda: None) -> None:
        """
        Args:
            refuse: raises where waiting would never end.
        """
        self.step, self.attempt = step_id.step, step_id.attempt
        self.blocked_s = 0.0
        self.image_bytes = 0
        self.ungated_bytes = 0
        self.flight: Flight | None = None
        self.asked_at = time.monotonic()
        self.held_at: float | None = None
        self.lost: str | None = None
        self._step_id, self._watch, self._refuse, self._pid = step_id, watch, refuse, os.getpid()

    def __repr__(self) -> str:
        state = f"lost: {self.lost}" if self.lost else "held" if self.held else "copying"
        return f"<Handle step {self.step} attempt {self.attempt} {state}>"

    @property
    def stall_s(self) -> float:
        """Training time it has cost so far, in seconds: in the call that started it, and at the gate."""
        return self.blocked_s + (self.flight.waited_s if self.flight is not None else 0.0)

    @property
    def held(self) -> bool:
        """Whether this rank's copy is whole."""
        return self.held_at is not None

    def settle(self, timeout_s: float | None = None) -> None:
        """Wait until this rank's copy is whole. A trainer changes nothing while it waits; beside another thread it may.

        Raises:
            SavingError: it was lost; the reason is the message.
            AgentError: not in time.
            ConfigError: this is a forked child, or a signal's handler that has interrupted a call of the Evacuator.
        """
        refuse_after_end(ended=False, pid=self._pid)  # in a forked child no thread ends what was under way
        self._refuse()
        if self.flight is not None:
            if not self.flight.settle(timeout_s):
                raise AgentError(f"step {self.step} was not held within {timeout_s} s; it may be later")
            if not self.held and self.lost is None:
                self.lost = "it could not be sealed or given up; the log has the reason"
        if self.lost is not None:
            raise SavingError(f"step {self.step} was not evacuated: {self.lost}")

    def mark_held(self) -> None:
        """Called once, by the evacuator, after the seal stands."""
        self.held_at = time.monotonic()

    def wait(self, moment: str = "committed", timeout_s: float | None = None) -> None:
        """Wait for a moment of this evacuation.

        Args:
            moment: "held" (on all ranks) or "committed" (on the target).
            timeout_s: give up after this long; None waits until it happens or has failed.
        Raises:
            SavingError: it was lost, or could not be committed; the reason is the message.
            AgentError: not in time.
            ConfigError: as in `settle`, or there is no such moment (*mirrored* needs a second host; not supported yet).
        """
        if moment not in MOMENTS:
            raise ConfigError(f"wait({moment!r}): the moments of an evacuation are {' and '.join(MOMENTS)}")
        until = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        self.settle(timeout_s)
        self._watch(self._step_id, moment, max(0.0, until - time.monotonic()))
