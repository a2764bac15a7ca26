"""The rules that a schedule is played with: the functions of `hinan.core`, each replaceable by a planted bug.

Every decision in this package is taken by calling one of these fields. A plant is `dataclasses.replace(RULES, ...)`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from hinan.core import agenda as core_agenda
from hinan.core import commit, decide, lineage, slot, watermark
from hinan.core.ids import StepId
from hinan.core.slot import Slot
from hinan.sim.values import Manifest, Sealed


def only_whole_seals(fact: Sealed | None) -> Sealed | None:
    """M1: a fact that does not parse is absent."""
    return None if fact is None or fact.torn else fact


def only_whole_manifests(record: Manifest) -> Manifest | None:
    """M1: a record that does not parse is absent."""
    return None if record.torn else record


def by_fact(fact: Sealed | None, told: Sealed | None) -> Sealed | None:
    """B1: no transition depends on a message."""
    return fact


def when_exited(exited: bool, eof: bool) -> bool:
    """B2: a writer is gone when its pidfd reported exit, never on EOF or silence."""
    return exited


def the_rounds_step(step_id: StepId, slots: Collection[Slot]) -> StepId:
    """C3: all nodes drain exactly the step that the round names."""
    return step_id


@dataclass(frozen=True)
class Rules:
    """One field a rule; the defaults are what the product runs."""

    advance: Callable[..., tuple[slot.Phase, tuple[slot.Effect, ...]]] = slot.advance
    agenda: Callable[[core_agenda.NodeState], tuple[core_agenda.Task, ...]] = core_agenda.agenda
    stays: Callable[[core_agenda.NodeState], dict[str, str]] = core_agenda.stays
    slot_to_lease: Callable[..., Slot | None] = watermark.slot_to_lease
    drain_effects: Callable[..., tuple[commit.DrainEffect, ...]] = commit.drain_effects
    why_not_commit: Callable[..., str | None] = commit.why_not_commit
    decide: Callable[..., decide.Decision] = decide.decide
    is_fenced: Callable[[lineage.History, int], bool] = lineage.is_fenced
    read_seal: Callable[[Sealed | None], Sealed | None] = only_whole_seals
    read_manifest: Callable[[Manifest], Manifest | None] = only_whole_manifests
    seal_known: Callable[[Sealed | None, Sealed | None], Sealed | None] = by_fact
    writer_gone: Callable[[bool, bool], bool] = when_exited
    step_of_part: Callable[[StepId, Collection[Slot]], StepId] = the_rounds_step


RULES = Rules()
