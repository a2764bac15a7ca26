"""The step that every rank holds, and which slots may go (rules C1, C2, C5).

W, the watermark, is the newest step on the lineage whose images are all sealed. Nobody recycles W, the step the run
resumed from, anything newer than W that could still become W, or a step that is being read or drained. What a rank has
gone past without holding it can never become W (`passed_by`): such a step is lost, as if that rank had said so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from hinan.core.ids import StepId
from hinan.core.lineage import Lineage
from hinan.core.slot import Phase, Slot


def held_everywhere(slots: Iterable[Slot], *, proven_only: bool = False) -> dict[StepId, dict[int, Slot]]:
    """Steps whose images are sealed (or proven) for every rank of their world, with the slot of each rank."""
    by_step: dict[StepId, dict[int, Slot]] = {}
    for slot in slots:
        if slot.holds is not None and (slot.phase is Phase.PROVEN or (slot.is_sealed and not proven_only)):
            by_step.setdefault(slot.holds, {})[slot.rank] = slot
    return {
        step_id: ranks
        for step_id, ranks in by_step.items()
        if set(ranks) == set(range(next(iter(ranks.values())).world_size))
    }


def watermark(slots: Iterable[Slot], line: Lineage, lost: Collection[StepId] = ()) -> StepId | None:
    """W: the newest held-everywhere step on the lineage; None before the first."""
    return max((s for s in held_everywhere(slots) if s in line and s not in lost), default=None)


def all_past(slots: Iterable[Slot]) -> StepId | None:
    """The newest step that every rank has reached in the newest attempt; None if a rank holds nothing of it here."""
    sealed = [(slot.holds, slot) for slot in slots if slot.holds is not None and slot.is_sealed]
    attempt, world_size = max(((step_id.attempt, slot.world_size) for step_id, slot in sealed), default=(0, 0))
    reached: dict[int, StepId] = {}
    for step_id, slot in sealed:
        if step_id.attempt == attempt:
            reached[slot.rank] = max(step_id, reached.get(slot.rank, step_id))
    return min(reached.values()) if reached and len(reached) == world_size else None


@dataclass(frozen=True)
class Pass:
    """A rank that holds a newer step of the same attempt, and not this one. It seals in the order of steps: it never will.

    Attributes:
        holder: a rank that does hold the step.
        steps: what these two ranks hold of the attempt, each in the order of training.
    """

    rank: int
    holder: int = field(compare=False)
    steps: dict[int, list[int]] = field(compare=False)


def passed_by(slots: Iterable[Slot], *, above: StepId | None = None) -> dict[StepId, Pass]:
    """Steps above one that can never be held everywhere, each with the first rank that has gone past it.

    A rank whose slots are not among these has passed nothing: its node may only be out of reach. The newest step of all
    is passed by nobody, so there is always one that may still become the watermark.
    """
    held: dict[int, dict[int, set[int]]] = {}
    for slot in slots:
        if slot.holds is not None and slot.is_sealed:
            held.setdefault(slot.holds.attempt, {}).setdefault(slot.rank, set()).add(slot.holds.step)
    found: dict[StepId, Pass] = {}
    for attempt, ranks in held.items():
        newest = {rank: max(steps) for rank, steps in ranks.items()}
        for holder in sorted(ranks):
            for step in ranks[holder]:
                step_id = StepId(attempt, step)
                if step_id in found or (above is not None and step_id <= above):
                    continue
                rank = next((r for r in sorted(ranks) if newest[r] > step and step not in ranks[r]), None)
                if rank is not None:
                    found[step_id] = Pass(rank, holder, {r: sorted(ranks[r]) for r in sorted({holder, rank})})
    return found


def must_stay(
    slot: Slot,
    *,
    w: StepId | None,
    line: Lineage,
    resumed_from: StepId | None,
    in_use: Collection[StepId],
    lost: Collection[StepId] = (),
) -> str | None:
    """Why a sealed slot must keep its bytes; None if it may be recycled or removed.

    Args:
        w: the watermark.
        line: the lineage.
        resumed_from: step the newest attempt resumed from; it stays until W has passed it.
        in_use: steps that are being drained or wanted by a waiting caller.
        lost: steps that some rank could not hold, or has gone past; released by agreement.
    """
    step_id = slot.holds
    if slot.readers:
        return "it is being read"
    if step_id is None or not slot.is_sealed:
        return None
    if step_id in in_use:
        return "it is being drained"
    if step_id.attempt > line.newest:
        return "its attempt is newer than the resumes read so far"
    if step_id in lost or step_id not in line:
        return None
    if step_id == w:
        return "it is the watermark"
    if w is None or step_id > w:
        return "it may still become the watermark"
    if step_id == resumed_from and resumed_from >= w:
        return "the run resumed from it"
    return None


def slot_to_lease(
    slots: Iterable[Slot], owner_pid: int, rank: int, image_bytes: int, stays: Collection[str]
) -> Slot | None:
    """The slot a writer should fill next: a free one of its own, else its oldest that need not stay; None if none.

    Args:
        stays: names of slots that must keep their bytes (`must_stay`).
    """
    own = [
        s for s in slots if s.owner_pid == owner_pid and s.owner_alive and s.rank == rank and s.image_bytes == image_bytes
    ]
    free = [s for s in own if s.phase is Phase.FREE]
    old = sorted((s for s in own if s.is_sealed and s.name not in stays), key=lambda s: (s.holds or StepId(0, 0), s.name))
    return next(iter([*free, *old]), None)
