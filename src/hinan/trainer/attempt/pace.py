"""What a job knows about itself while it runs: medians of its own measurements, and what became of earlier attempts."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from hinan.core.cadence import WARM_UP_STEPS
from hinan.core.ids import StepId
from hinan.plan.observed.attempts import Attempt, Image, Save, failures, lives_s, restarts_s
from hinan.plan.observed.running import RunningJob
from hinan.trainer.attempt.past import Past

SEEN = 64
LEAST_STALLS = 3
"""Fewer are not taken for the rule: the first evacuation pays for what happens once, and a change lasts for three more."""


class Pace:
    """What this rank has seen of its steps, evacuations and drains: medians over the last `SEEN` of each."""

    def __init__(self, past: Past = Past(), nodes: int = 1) -> None:  # noqa: B008 - a value that cannot change
        self._past, self._nodes = past, nodes
        self._boundaries: deque[float] = deque(maxlen=SEEN)
        self._stalls: deque[float] = deque(maxlen=SEEN)
        self._drains: deque[float] = deque(maxlen=SEEN)
        self._began_at = time.monotonic()
        self._first_at: float | None = None

    def resumed(self, parent: StepId | None, source: str) -> None:
        """This attempt, the last of the past, goes on from here."""
        if self._past.attempts:
            *earlier, own = self._past.attempts
            self._past = replace(self._past, attempts=(*earlier, replace(own, parent=parent, source=source)))

    def boundary(self, now_s: float) -> None:
        """A step ended at this monotonic time."""
        if self._first_at is None:
            self._first_at = now_s
        self._boundaries.append(now_s)

    def stall(self, stall_s: float) -> None:
        """An evacuation cost this much training time."""
        self._stalls.append(stall_s)

    def drained(self, drain_s: float | None) -> None:
        """The last drain that is known of took so long; told again until there is another."""
        if drain_s is not None and (not self._drains or self._drains[-1] != drain_s):
            self._drains.append(drain_s)

    def job(self) -> RunningJob:
        """The medians; no step time before the warm-up is over, so that a slow start is not taken for the pace."""
        steps = [b - a for a, b in itertools.pairwise(self._boundaries)]
        step_s = median(steps) if len(steps) >= WARM_UP_STEPS - 1 else None
        *earlier, own = self._past.attempts or (Attempt(0),)
        restarts = [] if step_s is None else self._restarts_s(own, step_s)
        lives = lives_s([*earlier, own], self._past.saves, step_s)
        earlier_s = sum(lives[attempt.number] or 0.0 for attempt in earlier)
        return RunningJob(
            step_s=step_s,
            stall_s=_median(self._stalls) if len(self._stalls) >= LEAST_STALLS else None,
            drain_s=_median(self._drains),
            restart_s=_median(restarts),
            failures=failures(self._past.attempts),
            observed_s=earlier_s + time.monotonic() - self._began_at,
            nodes=self._nodes,
            samples={
                "step_s": len(steps),
                "stall_s": len(self._stalls),
                "drain_s": len(self._drains),
                "restart_s": len(restarts),
            },
        )

    def _restarts_s(self, own: Attempt, step_s: float) -> list[float]:
        """Also this attempt's own: its first finished step counts like a save, on the clock that saves are dated by."""
        assert self._first_at is not None
        first_at_s = time.time() - (time.monotonic() - self._first_at)
        first = Save(StepId(own.number, own.first_step + 1), (Image(0, None, first_at_s),))
        saves = [save for save in self._past.saves if save.step_id.attempt < own.number]
        return [s for s in restarts_s(self._past.attempts, [*saves, first], step_s) if s >= 0]


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None
