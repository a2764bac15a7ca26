"""Keeps the cadence of this rank: proposes changes on rank 0, acknowledges them, follows the verdict (rule M2).

All of it through facts in the arena, at evacuations and at the steps that proposals name; never by a message or a clock.
Facts do not pile up: rank 0 removes those of a number that was decided, when no rank can depend on them any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from hinan.core.cadence import (
    WARM_UP_STEPS,
    Asked,
    Cadence,
    effective_step,
    fixed_steps,
    is_worth_changing,
    may_acknowledge,
    verdict,
    wanted_cadence,
)
from hinan.core.units import format_seconds
from hinan.formats.records import AckRecord, CadenceRecord, InputRecord, VerdictRecord
from hinan.host.signals import ours, suppress_ours
from hinan.plan.observed.running import Intervals, RunningJob, inputs, intervals, lost
from hinan.tiers.arena import Arena
from hinan.tiers.cadences import PREFIX, PROPOSAL, VERDICT, attempt_prefix, cadence_name, parse_cadence_name
from hinan.tiers.publish import AlreadyPublished

log = logging.getLogger("hinan")


def first_cadence(every: Asked, commit_every: Asked, *, is_said: bool) -> Cadence:
    """The cadence to start with, before anything was measured. All ranks have asked for the same (`agree_on_arguments`).

    Args:
        is_said: whether this rank logs what was rounded.
    """
    first = Cadence(0, *wanted_cadence(every, commit_every, None))
    commit_steps = first.every_steps * first.commit_multiple
    if is_said and every.steps and commit_every.steps and commit_every.steps != commit_steps:
        log.info(
            "commit_every=%d is no multiple of every=%d: every %d steps are committed",
            commit_every.steps, every.steps, commit_steps,
        )  # fmt: skip
    return first


class CadenceKeeper:
    """The cadence in force, and at most one change under way."""

    def __init__(
        self, arena: Arena, rank: int, world_size: int, attempt: int, asked: tuple[Asked, Asked], now: Cadence
    ) -> None:
        self._arena, self._rank, self._world_size, self._attempt = arena, rank, world_size, attempt
        self._every, self._commit = asked
        self.now = now
        self._number, self._accepted = 1, 0
        self._pending: CadenceRecord | None = None
        self.next_look = 0
        """Step at which a pending change takes effect; 0 when there is none."""
        self._standing = Intervals()
        self._proposed = Intervals()
        """What rank 0 has decided for "auto": that the cadence in force rests on, and that of the pending change."""
        self._tidy()
        if rank == 0:
            self._begin()

    def at_evacuation(self, step: int, measure: Callable[[], RunningJob]) -> None:
        """Called at each evacuation of this rank, after it was started. `measure` is called only where it is needed."""
        if self._pending is None:
            if self._rank == 0 and (self._every.steps is None or self._commit.steps is None):
                self._propose(step, measure())
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
        found = self._arena.fact(self._name(VERDICT), VerdictRecord)
        if found is not None and found.accepted:
            self.now, self._accepted, self._standing = _cadence(proposed), self._number, self._proposed
            log.info("cadence.changed from_step=%d every=%d commit_multiple=%d why=evacuations: %s; commits: %s",
                     proposed.from_step, proposed.every_steps, proposed.commit_multiple, proposed.every_why,
                     proposed.commit_why)  # fmt: skip
        self._pending, self.next_look = None, 0
        self._number += 1
        self._tidy()

    def _begin(self) -> None:
        """Write down the cadence at the start, which all ranks were told, for whoever asks what it is and why."""
        every_why, commit_why = _why_at_start(self._every), _why_at_start(self._commit)
        record = CadenceRecord(
            self._attempt, 0, self.now.from_step, self.now.every_steps, self.now.commit_multiple, every_why, commit_why
        )
        try:
            self._arena.publish(cadence_name(self._attempt, 0, PROPOSAL), record)
        except ours(OSError, AlreadyPublished) as error:
            log.warning("cadence.first cannot be written down: %s", error)

    def _tidy(self) -> None:
        """Remove what is over: facts of older attempts, and of decided numbers but the last accepted one.

        Why not that: a rank that acknowledged it may not have reached its step yet, and must find the verdict. By the time
        the next one is accepted, every rank has acknowledged that, and so is past this one. A rejected number needs no
        facts: whoever still waits for its verdict finds none and publishes the same rejection.
        """
        self._arena.forget(PREFIX)
        if self._rank != 0:
            return
        for name in self._arena.names(PREFIX):
            parsed = parse_cadence_name(name)
            if parsed is None:
                continue
            attempt, number, _ = parsed
            decided = attempt == self._attempt and number < self._number and number != self._accepted
            if attempt < self._attempt or decided:
                with suppress_ours(OSError):
                    self._arena.root.joinpath(name).unlink()

    def _propose(self, step: int, job: RunningJob) -> None:
        auto = self._decide(job)
        wanted = wanted_cadence(
            self._every,
            self._commit,
            job.step_s,
            auto_every_steps=auto.evacuate.every_steps if auto.evacuate else None,
            auto_commit_steps=auto.commit.every_steps if auto.commit else None,
        )
        is_new = auto.adds_to(self._standing)
        is_other = wanted != (self.now.every_steps, self.now.commit_multiple)
        if is_new or (is_other and (auto.changed or is_worth_changing(self.now, wanted, self._every, self._commit))):
            self._proposed = auto
            self._publish(PROPOSAL, self._record(step, job, auto, wanted))

    def _decide(self, job: RunningJob) -> Intervals:
        """What measurements say of what is automatic; hysteresis is against a decision, never against the warm-up."""
        every_steps, commit_steps = self.now.every_steps, self.now.every_steps * self.now.commit_multiple
        return intervals(
            job,
            evacuate_steps=None if self._every.is_automatic else fixed_steps(self._every, job.step_s) or every_steps,
            commit_steps=None if self._commit.is_automatic else fixed_steps(self._commit, job.step_s) or commit_steps,
            current=(
                every_steps if self._standing.evacuate else None,
                commit_steps if self._standing.commit else None,
            ),
        )

    def _record(self, step: int, job: RunningJob, auto: Intervals, wanted: tuple[int, int]) -> CadenceRecord:
        every_steps, multiple = wanted
        return CadenceRecord(
            attempt=self._attempt,
            number=self._number,
            from_step=effective_step(self.now, step),
            every_steps=every_steps,
            commit_multiple=multiple,
            every_why=auto.evacuate.reason if auto.evacuate else _why_fixed(self._every),
            commit_why=auto.commit.reason if auto.commit else _why_fixed(self._commit),
            step_s=job.step_s,
            is_decided=auto.evacuate is not None or auto.commit is not None,
            inputs={name: InputRecord(i.value, i.origin.kind, i.origin.source) for name, i in inputs(job).items()},
            lost=lost(job, evacuate_steps=every_steps, commit_steps=every_steps * multiple),
        )

    def _acknowledge(self, step: int) -> None:
        names = map(parse_cadence_name, self._arena.names(attempt_prefix(self._attempt)))
        standing = [parsed[1] for parsed in names if parsed is not None and parsed[2] == PROPOSAL]
        newest = max((number for number in standing if number >= self._number), default=None)
        if newest is None:
            return
        self._number = newest  # those in between were decided without this rank, and so rejected
        proposed = self._arena.fact(self._name(PROPOSAL), CadenceRecord)
        if proposed is None:
            return
        if not may_acknowledge(_cadence(proposed), step):
            self._number += 1  # seen too late to promise anything, so it cannot have been accepted
            return
        self._publish(f"ack-{self._rank}", AckRecord(self._attempt, self._number, self._rank))
        self._pending, self.next_look = proposed, proposed.from_step

    def _publish_verdict(self, *, accepted: bool) -> None:
        self._publish(VERDICT, VerdictRecord(self._attempt, self._number, accepted))

    def _publish(self, suffix: str, record: object) -> None:
        with suppress(AlreadyPublished):
            self._arena.publish(self._name(suffix), record)

    def _name(self, suffix: str) -> str:
        return cadence_name(self._attempt, self._number, suffix)


def _cadence(record: CadenceRecord) -> Cadence:
    return Cadence(record.from_step, record.every_steps, record.commit_multiple)


def _why_at_start(asked: Asked) -> str:
    """Before anything was measured neither seconds nor "auto" say how many steps."""
    return _why_fixed(asked) + (f"; {WARM_UP_STEPS} steps until a step's time is measured" if asked.seconds else "")


def _why_fixed(asked: Asked) -> str:
    """Why a tier's interval is what it is where no measurement has decided it."""
    if asked.steps is not None:
        return f"asked for are {asked.steps} steps"
    if asked.seconds is not None:
        return f"asked for is every {format_seconds(asked.seconds)}"
    return "asked for is auto; not enough is measured yet"
