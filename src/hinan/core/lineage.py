"""Which steps belong to the run's one past (rules A2, A3).

An attempt that starts publishes a *claim*; once it knows what it resumes from, a *resume* naming the parent step. The
newest attempt with a resume, its parent, its parent's parent ... are the lineage. A step is on it if no later attempt of
the chain went back behind it. Everything else is an orphan: listed, never "newest", so neither a rolled-back future nor
a late commit of a process that should be dead can be resumed from by accident.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hinan.core.ids import StepId


@dataclass(frozen=True)
class Resume:
    """Attempt `attempt` goes on from `parent`; None is a fresh start."""

    attempt: int
    parent: StepId | None


@dataclass(frozen=True)
class History:
    """The claims and resumes found on the target.

    Attributes:
        unreadable: attempts whose resume stands and cannot be read, each with the way out, which names the file. They count
            as if they had none; `Lineage.why_not` says what that hides.
    """

    claims: frozenset[int] = frozenset()
    resumes: Mapping[int, Resume] = field(default_factory=dict)
    unreadable: Mapping[int, str] = field(default_factory=dict)

    @property
    def newest_claim(self) -> int:
        """Highest attempt that ever claimed the run; 0 before the first."""
        return max(self.claims, default=0)


@dataclass(frozen=True)
class Lineage:
    """For each attempt on the chain, the highest step that still counts (None: no limit, the newest attempt).

    `unreadable` is that of the history.
    """

    limits: Mapping[int, int | None]
    unreadable: Mapping[int, str] = field(default_factory=dict)

    @property
    def newest(self) -> int:
        """The attempt whose steps count without limit; 0 before any has resumed."""
        return max(self.limits, default=0)

    def why_not(self, step_id: StepId) -> str | None:
        """The reason `step_id` is an orphan; None if it is on the lineage."""
        if step_id.attempt not in self.limits:
            return self._why_unknown(step_id.attempt) or f"orphan: attempt {step_id.attempt} is not on the lineage"
        limit = self.limits[step_id.attempt]
        if limit is not None and step_id.step > limit:
            return f"orphan: a later attempt resumed from step {limit}"
        return None

    def _why_unknown(self, attempt: int) -> str | None:
        """The record without which nobody can tell whether this attempt is on the lineage; None if that is certain."""
        if attempt > self.newest and attempt in self.unreadable:
            unread = attempt
        elif attempt < (oldest := min(self.limits, default=0)) and oldest in self.unreadable:
            unread = oldest  # the chain breaks off there: what it went on from is an older attempt
        else:
            return None
        again = f"the steps of attempt {attempt}" if unread == attempt else f"the steps that attempt {unread} went on from"
        return (
            f"perhaps an orphan: the record of what attempt {unread} went on from is unreadable; "
            f"{self.unreadable[unread]}, and {again} count again"
        )

    def __contains__(self, step_id: object) -> bool:
        return isinstance(step_id, StepId) and self.why_not(step_id) is None


def lineage(history: History) -> Lineage:
    """The chain from the newest attempt that has a resume, back to a fresh start."""
    limits: dict[int, int | None] = {}
    attempt = max(history.resumes, default=None)
    limit: int | None = None
    while attempt is not None and attempt not in limits:
        limits[attempt] = limit
        resume = history.resumes.get(attempt)
        if resume is None or resume.parent is None:
            break
        # Invariant: limits only shrink towards the past; a step must lie below every later resume.
        limit = resume.parent.step if limit is None else min(limit, resume.parent.step)
        attempt = resume.parent.attempt
    return Lineage(limits, history.unreadable)


def certain(damaged: Iterable[int]) -> dict[int, Resume]:
    """The resumes that are known although their records are damaged: that of attempt 1, which can only be a fresh start.

    A resume names a step that was on the lineage when it was written, and before the first resume no step is. That it was
    written at all is proven by the damaged file: a record appears whole under its name. One that is absent proves nothing.
    """
    return {1: Resume(1, None)} if 1 in damaged else {}


def resume_source(history: History) -> StepId | None:
    """The step the newest resumed attempt goes on from; pinned until something newer is safe."""
    newest = max(history.resumes, default=None)
    return None if newest is None else history.resumes[newest].parent


def is_fenced(history: History, attempt: int) -> bool:
    """Whether a newer attempt has claimed the run, so that `attempt` must stop (rule A5)."""
    return history.newest_claim > attempt
