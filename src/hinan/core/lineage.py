"""Which steps belong to the run's one past (rules A2, A3).

An attempt that starts publishes a *claim*; once it knows what it resumes from, a *resume* naming the parent step. The
newest attempt with a resume, its parent, its parent's parent ... are the lineage. A step is on it if no later attempt of
the chain went back behind it. Everything else is an orphan: listed, never "newest", so neither a rolled-back future nor
a late commit of a process that should be dead can be resumed from by accident.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hinan.core.ids import StepId


@dataclass(frozen=True)
class Resume:
    """Attempt `attempt` goes on from `parent`; None is a fresh start."""

    attempt: int
    parent: StepId | None


@dataclass(frozen=True)
class History:
    """The claims and resumes found on the target. `served` is the newest attempt the asking agent works for."""

    claims: frozenset[int] = frozenset()
    resumes: Mapping[int, Resume] = field(default_factory=dict)

    @property
    def newest_claim(self) -> int:
        """Highest attempt that ever claimed the run; 0 before the first."""
        return max(self.claims, default=0)


@dataclass(frozen=True)
class Lineage:
    """For each attempt on the chain, the highest step that still counts (None: no limit, the newest attempt)."""

    limits: Mapping[int, int | None]

    @property
    def newest(self) -> int:
        """The attempt whose steps count without limit; 0 before any has resumed."""
        return max(self.limits, default=0)

    def why_not(self, step_id: StepId) -> str | None:
        """The reason `step_id` is an orphan; None if it is on the lineage."""
        if step_id.attempt not in self.limits:
            return f"orphan: attempt {step_id.attempt} is not on the lineage"
        limit = self.limits[step_id.attempt]
        if limit is not None and step_id.step > limit:
            return f"orphan: a later attempt resumed from step {limit}"
        return None

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
    return Lineage(limits)


def resume_source(history: History) -> StepId | None:
    """The step the newest resumed attempt goes on from; pinned until something newer is safe."""
    newest = max(history.resumes, default=None)
    return None if newest is None else history.resumes[newest].parent


def is_fenced(history: History, attempt: int) -> bool:
    """Whether a newer attempt has claimed the run, so that `attempt` must stop (rule A5)."""
    return history.newest_claim > attempt
