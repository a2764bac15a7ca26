"""When a step may be called persisted and committed, and in which order its bytes become so (rules M1, F1).

The order is a value: the agent and the explorer both walk `drain_effects`, one effect at a time, and may be killed
between any two of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum
from typing import NamedTuple

from hinan.core.ids import StepId
from hinan.core.lineage import History, is_fenced, lineage


class Do(Enum):
    """One effect of a drain on one tier."""

    WRITE_ASIDE = "write the image under a temporary name"
    SYNC = "make the bytes survive power loss"
    NAME = "rename to the final name"
    SYNC_DIRECTORY = "make the name survive power loss"
    PUBLISH_MANIFEST = "publish the manifest that names the image and its digests"
    PUBLISH_COMMIT = "publish the record that names every image of the step"


class DrainEffect(NamedTuple):
    """`rank` is None for the effects of the whole step."""

    do: Do
    rank: int | None


_OF_A_RANK = (Do.WRITE_ASIDE, Do.SYNC, Do.NAME, Do.SYNC_DIRECTORY, Do.PUBLISH_MANIFEST)


def drain_effects(ranks: Iterable[int]) -> tuple[DrainEffect, ...]:
    """All effects that persist and commit one step, in the one order that is safe.

    Invariant: a manifest is published after its image survives power loss, the commit record after all manifests.
    """
    of_ranks = (DrainEffect(do, rank) for rank in ranks for do in _OF_A_RANK)
    return (*of_ranks, DrainEffect(Do.PUBLISH_COMMIT, None))


def why_not_commit(
    step_id: StepId, *, world_size: int, manifests: Collection[int], history: History, served: int
) -> str | None:
    """Why the commit record must not be published now; None if it may.

    Args:
        manifests: ranks whose manifest stands on the tier.
        history: claims and resumes, read again just before (rule A5).
        served: newest attempt that the asking agent works for.
    """
    if is_fenced(history, served):
        return f"fenced: attempt {history.newest_claim} has claimed the run"
    if missing := sorted(set(range(world_size)) - set(manifests)):
        return f"no manifest of rank {', '.join(map(str, missing))} yet"
    return lineage(history).why_not(step_id)
