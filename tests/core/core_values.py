"""Short ways to write the values that the tests of the core talk about."""

from __future__ import annotations

from hinan.core.ids import StepId
from hinan.core.lineage import History, Resume
from hinan.core.slot import Phase, Slot


def at(attempt: int, step: int) -> StepId:
    return StepId(attempt, step)


def history(*parents: StepId | None, unresumed: int = 0) -> History:
    """Attempts 1, 2, ... that went on from these steps, and `unresumed` claims after them."""
    numbers = range(1, len(parents) + 1)
    resumes = {n: Resume(n, parent) for n, parent in zip(numbers, parents, strict=True)}
    return History(frozenset(range(1, len(parents) + unresumed + 1)), resumes)


def slot(
    name: str,
    rank: int,
    holds: StepId | None = None,
    *,
    phase: Phase = Phase.PROVEN,
    world: int = 1,
    alive: bool = True,
    commit_at: int = 0,
    readers: int = 0,
    pid: int = 100,
) -> Slot:
    """A slot of process `pid + rank`; sealed or proven if it holds something, else free."""
    if holds is None and phase is Phase.PROVEN:
        phase = Phase.FREE
    return Slot(
        name=name,
        rank=rank,
        owner_attempt=holds.attempt if holds else 1,
        owner_alive=alive,
        owner_pid=pid + rank,
        phase=phase,
        holds=holds,
        world_size=world if holds else 0,
        image_bytes=10,
        commit_at=commit_at,
        readers=readers,
    )
