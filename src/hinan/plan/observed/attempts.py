"""What the attempts of a run tell: how long each lived, which of them failed, how long it took to go on.

Owns:      attempts and saves as plain values, made from facts, and what follows from them in seconds and counts.
Promises:  pure. Serves a run that is over (`hinan plan --from-run`) and one that goes on ("auto") alike.
Relies on: clocks of hosts only as far as they agree; callers leave out what comes out negative.
Never:     guesses what retention has deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from hinan.core.ids import StepId
from hinan.formats.records import ClaimRecord, ClosedRecord, ResumeRecord

FROM_RAM = "ram"


def clock_s(text: str) -> float | None:
    """Seconds since the epoch from a record's wall time (UTC if it does not say); None if it is no time."""
    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


@dataclass(frozen=True)
class Image:
    """One rank's part of a save, as it was sealed. `stall_s`: of the save before it, gate included; None for the first."""

    image_bytes: int
    stall_s: float | None
    held_at_s: float | None


@dataclass(frozen=True)
class Save:
    """A step that stands somewhere with every rank's image."""

    step_id: StepId
    images: tuple[Image, ...]
    committed_at_s: float | None = None

    @property
    def held_at_s(self) -> float | None:
        """When the last rank held it; None if a clock cannot be read."""
        times = [image.held_at_s for image in self.images]
        return None if None in times else max(t for t in times if t is not None)

    @property
    def stall_s(self) -> float | None:
        """The longest rank's; None if a rank does not say."""
        stalls = [image.stall_s for image in self.images]
        return None if None in stalls else max(s for s in stalls if s is not None)


@dataclass(frozen=True)
class Attempt:
    """One incarnation of the run. `parent` is None for a fresh start, and for one that died before it resumed."""

    number: int
    claimed_at_s: float | None = None
    resumed_at_s: float | None = None
    parent: StepId | None = None
    source: str = ""
    """What it resumed from: ram, target, mixed; "" where it did not."""
    is_closed: bool = False
    closed_at_s: float | None = None

    @property
    def first_step(self) -> int:
        """Steps that were done before it began."""
        return self.parent.step if self.parent else 0


def attempts_of(
    claims: Mapping[int, ClaimRecord | None],
    resumes: Mapping[int, ResumeRecord | None],
    closed: Mapping[int, ClosedRecord | None],
) -> list[Attempt]:
    """Attempts in order of their numbers; None stands for a record that does not parse."""
    found = []
    for number, claim in sorted(claims.items()):
        resume, end = resumes.get(number), closed.get(number)
        found.append(
            Attempt(
                number,
                claimed_at_s=clock_s(claim.created) if claim else None,
                resumed_at_s=clock_s(resume.created) if resume else None,
                parent=resume.parent if resume else None,
                source=resume.source if resume else "",
                is_closed=number in closed,
                closed_at_s=clock_s(end.created) if end else None,
            )
        )
    return found


@dataclass(frozen=True)
class Failures:
    """Attempts that were not closed and were followed by another, by the tier that answered."""

    ram: int = 0
    """The next attempt found all it needed in RAM, or there was nothing yet that could have been lost."""
    target: int = 0
    """The next attempt needed the target: RAM was lost with the host, the container or the cgroup."""

    @property
    def total(self) -> int:
        return self.ram + self.target


def failures(attempts: Sequence[Attempt]) -> Failures:
    """Count them. The last attempt has not failed yet; one that was closed on purpose never does."""
    following = [later for earlier, later in pairwise(attempts) if not earlier.is_closed]
    target = sum(each.source not in ("", FROM_RAM) for each in following)
    return Failures(len(following) - target, target)


def held(saves: Sequence[Save], attempt: Attempt) -> list[Save]:
    """The saves of an attempt whose time is known."""
    return [s for s in saves if s.step_id.attempt == attempt.number and s.held_at_s is not None]


def restarts_s(attempts: Sequence[Attempt], saves: Sequence[Save], step_s: float) -> list[float]:
    """Of each failure with saves on both sides: from the last save before it to the first one after, less the steps made.

    What was redone is in it, and so is the work that was lost between the last save and the failure.
    """
    samples = []
    for failed, following in pairwise(attempts):
        before, after = held(saves, failed), held(saves, following)
        if failed.is_closed or not before or not after:
            continue
        last, first = before[-1], after[0]
        last_s, first_s = last.held_at_s, first.held_at_s
        assert last_s is not None
        assert first_s is not None
        # A later step of it that the next one resumed from (from RAM, say) was made too, after the last one seen here.
        is_parent = following.parent is not None and following.parent.attempt == failed.number
        unseen = max(0, following.first_step - last.step_id.step) if is_parent else 0
        samples.append(first_s - last_s - (unseen + first.step_id.step - following.first_step) * step_s)
    return samples


def lives_s(attempts: Sequence[Attempt], saves: Sequence[Save], step_s: float | None) -> dict[int, float | None]:
    """How long each attempt is known to have lived; None where its saves are deleted and a step's time is not known."""
    found: dict[int, float | None] = {}
    for attempt, following in zip(attempts, [*attempts[1:], None], strict=True):
        made = max((a.first_step for a in attempts if a.parent and a.parent.attempt == attempt.number), default=0)
        made = max(0, made - attempt.first_step)
        times = [save.held_at_s for save in held(saves, attempt)]
        if made and not times and step_s is None and not attempt.is_closed:
            found[attempt.number] = None
        else:
            found[attempt.number] = _life_s(attempt, following, [t for t in times if t is not None], made * (step_s or 0.0))
    return found


def _life_s(attempt: Attempt, following: Attempt | None, held_s: Sequence[float], made_s: float) -> float:
    """From its claim to its last sign of life; at least as long as its steps took, at most until the next claim."""
    signs = [t for t in (attempt.claimed_at_s, attempt.resumed_at_s, attempt.closed_at_s, *held_s) if t is not None]
    start_s = attempt.claimed_at_s if attempt.claimed_at_s is not None else min(signs, default=0.0)
    life_s = max(max(signs, default=start_s) - start_s, made_s)
    if following is not None and following.claimed_at_s is not None and signs:
        life_s = min(life_s, max(0.0, following.claimed_at_s - start_s))
    return life_s
