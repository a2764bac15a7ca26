"""Keeps the cadence of this rank: proposes changes on rank 0, acknowledges them, follows the verdict (rule M2).

All of it through facts in the arena, at evacuations and at the steps that proposals name; never by a message or a clock.
Facts do not pile up: rank 0 removes those of a number that was decided, when no rank can depend on them any more.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections import deque
from contextlib import suppress
from statistics import median

from hinan.core.cadence import (
    WARM_UP_STEPS,
    Asked,
    Cadence,
    Measured,
    effective_step,
    is_worth_changing,
    may_acknowledge,
    verdict,
    wanted_cadence,
)
from hinan.core.interval import auto_commit_s, auto_interval_s
from hinan.formats.records import AckRecord, CadenceRecord, VerdictRecord
from hinan.tiers.arena import Arena
from hinan.tiers.publish import AlreadyPublished
from hinan.trainer.ranks import Ranks

log = logging.getLogger("hinan")

SEEN = 64
_PREFIX = "cadence-"
_NUMBERS = re.compile(r"\d+")


class Pace:
    """What this rank has seen of its steps and evacuations: medians over the last `SEEN` of each."""

    def __init__(self) -> None:
        self._boundaries: deque[float] = deque(maxlen=SEEN)
        self._stalls: deque[float] = deque(maxlen=SEEN)

    def boundary(self, now_s: float) -> None:
        """A step ended at this monotonic time."""
        self._boundaries.append(now_s)

    def stall(self, stall_s: float) -> None:
        """An evacuation cost this much training time."""
        self._stalls.append(stall_s)

    def measured(self, drain_s: float | None) -> Measured:
        """The medians; no step time before the warm-up is over."""
        steps = [b - a for a, b in itertools.pairwise(self._boundaries)]
        return Measured(
            step_s=median(steps) if len(steps) >= WARM_UP_STEPS - 1 else None,
            stall_s=median(self._stalls) if self._stalls else None,
            drain_s=drain_s,
        )


def first_cadence(every: Asked, commit_every: Asked, ranks: Ranks) -> Cadence:
    """The cadence to start with, before anything was measured: rank 0's, on every rank. Collective."""
    automatic = {"auto_interval_s": auto_interval_s(None), "auto_commit_s": auto_commit_s(None)}
    told = ranks.from_first(list(wanted_cadence(every, commit_every, Measured(), **automatic)), "telling the cadence")
    assert isinstance(told, list)
    return Cadence(0, int(told[0]), int(told[1]))


class CadenceKeeper:
    """The cadence in force, and at most one change under way."""

    def __init__(
        self, arena: Arena, rank: int, world_size: int, attempt: int, asked: tuple[Asked, Asked], now: Cadence
    ) -> None:
        self._arena, self._rank, self._world_size, self._attempt = arena, rank, world_size, attempt
        self._every, self._commit = asked
        self.now = now
        self._number = 0
        self._accepted = -1
        self._pending: CadenceRecord | None = None
        self.next_look = 0
        """Step at which a pending change takes effect; 0 when there is none."""
        self._tidy()

    def at_evacuation(self, step: int, measured: Measured) -> None:
        """Called at each evacuation of this rank, after its seal."""
        if self._pending is None:
            if self._rank == 0:
                self._propose(step, measured)
            self._acknowledge(step)
        if self._pending is not None and self._rank == 0:
            acked = [r for r in range(self._world_size) if self._arena.fact(self._name(f"ack-{r}"), AckRecord)]
            if verdict(self._world_size, acked):
                self._publish_verdict(accepted=True)

    def at_step(self, step: int) -> None:
        """Called at each step from `next_look` on: the verdict binds; a missing one is a rejection, published here."""
        proposed = self._pending
        if proposed is None or step < proposed.from_step:
            return
        self._publish_verdict(accepted=False)
        found = self._arena.fact(self._name("verdict"), VerdictRecord)
        if found is not None and found.accepted:
            self.now, self._accepted = _cadence(proposed), self._number
            log.info("cadence.changed from_step=%d every=%d commit_multiple=%d why=%s", proposed.from_step,
                     proposed.every_steps, proposed.commit_multiple, proposed.reason)  # fmt: skip
        self._pending, self.next_look = None, 0
        self._number += 1
        self._tidy()

    def _tidy(self) -> None:
        """Remove what is over: facts of older attempts, and of decided numbers but the last accepted one.

        Why not that: a rank that acknowledged it may not have reached its step yet, and must find the verdict. By the time
        the next one is accepted, every rank has acknowledged that, and so is past this one. A rejected number needs no
        facts: whoever still waits for its verdict finds none and publishes the same rejection.
        """
        self._arena.forget(_PREFIX)
        if self._rank != 0:
            return
        for name in self._arena.names(_PREFIX):
            attempt, number = (int(part) for part in _NUMBERS.findall(name)[:2])
            decided = attempt == self._attempt and number < self._number and number != self._accepted
            if attempt < self._attempt or decided:
                with suppress(OSError):
                    self._arena.root.joinpath(name).unlink()

    def _propose(self, step: int, measured: Measured) -> None:
        every_steps, multiple = wanted_cadence(
            self._every,
            self._commit,
            measured,
            auto_interval_s=auto_interval_s(measured.stall_s),
            auto_commit_s=auto_commit_s(measured.drain_s),
        )
        if is_worth_changing(self.now, every_steps, multiple):
            parts = {"step": measured.step_s, "stall": measured.stall_s, "drain": measured.drain_s}
            reason = ", ".join(f"{name} {value:.3g} s" for name, value in parts.items() if value is not None)
            record = CadenceRecord(
                self._attempt, self._number, effective_step(self.now, step), every_steps, multiple, reason
            )
            self._publish("json", record)

    def _acknowledge(self, step: int) -> None:
        mine = f"{_PREFIX}{self._attempt:06d}-"
        standing = [int(name[len(mine) : -len(".json")]) for name in self._arena.names(mine) if name.endswith(".json")]
        newest = max((number for number in standing if number >= self._number), default=None)
        if newest is None:
            return
        self._number = newest  # those in between were decided without this rank, and so rejected
        proposed = self._arena.fact(self._name("json"), CadenceRecord)
        if proposed is None:
            return
        if not may_acknowledge(_cadence(proposed), step):
            self._number += 1  # seen too late to promise anything, so it cannot have been accepted
            return
        self._publish(f"ack-{self._rank}", AckRecord(self._attempt, self._number, self._rank))
        self._pending, self.next_look = proposed, proposed.from_step

    def _publish_verdict(self, *, accepted: bool) -> None:
        self._publish("verdict", VerdictRecord(self._attempt, self._number, accepted))

    def _publish(self, suffix: str, record: object) -> None:
        with suppress(AlreadyPublished):
            self._arena.publish(self._name(suffix), record)

    def _name(self, suffix: str) -> str:
        return f"{_PREFIX}{self._attempt:06d}-{self._number:04d}.{suffix}"


def _cadence(record: CadenceRecord) -> Cadence:
    return Cadence(record.from_step, record.every_steps, record.commit_multiple)
