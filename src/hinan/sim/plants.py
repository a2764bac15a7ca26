"""Planted bugs: each breaks one rule, and the explorer must notice (section H of the protocol).

A plant stays as close to the mistake somebody could make as the rules allow; each says what that mistake is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from hinan.core.agenda import Bury, Lose, NodeState, Stop, Stored, Task, agenda
from hinan.core.commit import Do, DrainEffect, drain_effects, why_not_commit
from hinan.core.decide import Candidate, Decision, Image, View, decide
from hinan.core.ids import StepId
from hinan.core.lineage import History, Resume, resume_source
from hinan.core.retention import Keep, removable
from hinan.core.slot import Phase, Slot
from hinan.core.watermark import Pass, must_stay
from hinan.sim.rules import RULES, Rules
from hinan.sim.values import Manifest, Sealed
from hinan.sim.world import World


def _any(world: World) -> bool:
    return True


@dataclass(frozen=True)
class Plant:
    """A rule broken on purpose.

    Attributes:
        breaks: the rule by its number in the protocol.
        mistake: what somebody could have thought.
        where: worlds in which it can show at all; the others are not played.
    """

    breaks: str
    mistake: str
    rules: Rules
    where: Callable[[World], bool] = _any


def _stays_only_in_use(state: NodeState) -> dict[str, str]:
    """Each rank keeps its own newest seal, nobody asks for the step that all ranks hold."""
    newest = {rank: max(s.holds for s in state.slots if s.rank == rank and s.holds) for rank in _ranks(state)}
    return {s.name: "newest of its rank" for s in state.slots if s.holds and s.holds == newest[s.rank]} | {
        s.name: "in use" for s in state.slots if s.readers or (state.round and s.holds == state.round)
    }


def _ranks(state: NodeState) -> set[int]:
    return {s.rank for s in state.slots if s.holds}


def _own_newest(step_id: StepId, slots: Collection[Slot]) -> StepId:
    """Each node drains the newest it has proven itself."""
    return max((s.holds for s in slots if s.holds and s.phase is Phase.PROVEN), default=step_id)


def _flat(history: History) -> History:
    """A history in which every attempt's every step counts."""
    numbers = sorted(history.resumes)
    chain = {n: Resume(n, StepId(before, 10**9)) for before, n in pairwise(numbers)}
    return replace(history, resumes={n: chain.get(n, Resume(n, None)) for n in numbers})


def _decide_maximum(views: Iterable[View], history: History, **kwargs: object) -> Decision:
    """The highest step wins, whichever attempt made it."""
    decision = decide(views, _flat(history), **kwargs)  # type: ignore[arg-type]
    best_first = sorted(decision.candidates, key=lambda c: c.step_id.step, reverse=True)
    return replace(decision, candidates=tuple(best_first))


def _decide_each_its_newest(views: Iterable[View], history: History, **kwargs: object) -> Decision:
    """The ranks agree on the maximum; a rank without that step takes the newest it has."""
    seen = list(views)
    decision = decide(seen, history, **kwargs)  # type: ignore[arg-type]
    newest: dict[int, Image] = {}
    for image in (i for v in seen for i in v.images if i.flaw is None):
        if image.rank not in newest or image.step_id > newest[image.rank].step_id:
            newest[image.rank] = image
    if set(newest) != set(range(int(str(kwargs["world_size"])))):
        return decision
    step_id = max(i.step_id for i in newest.values())
    if (step_id, "ram") in kwargs["failures"]:  # type: ignore[operator]
        return decision
    return replace(decision, candidates=(Candidate("ram", step_id, True, "maximum", newest), *decision.candidates))


def _commit_unread(
    step_id: StepId, *, world_size: int, manifests: Collection[int], history: History, served: int
) -> str | None:
    """The claims are not read again before a commit: the agent believes that its attempt is the newest."""
    own = {n: r for n, r in history.resumes.items() if n <= served}
    mine = History(frozenset(c for c in history.claims if c <= served), own)
    return why_not_commit(step_id, world_size=world_size, manifests=manifests, history=mine, served=served)


def _agenda_of_a_zombie(state: NodeState) -> tuple[Task, ...]:
    """The same belief while choosing what to do."""
    if state.served >= state.history.newest_claim:
        return agenda(state)
    own = {n: r for n, r in state.history.resumes.items() if n <= state.served}
    history = History(frozenset(c for c in state.history.claims if c <= state.served), own)
    return tuple(t for t in agenda(replace(state, history=history)) if type(t).__name__ in ("Prove", "Drain", "Commit"))


def _agenda_unfenced(state: NodeState) -> tuple[Task, ...]:
    return agenda(replace(state, served=max(state.served, state.history.newest_claim)))


def _commit_unfenced(
    step_id: StepId, *, world_size: int, manifests: Collection[int], history: History, served: int
) -> str | None:
    newest = max(served, history.newest_claim)
    return why_not_commit(step_id, world_size=world_size, manifests=manifests, history=history, served=newest)


def _unfenced(history: History, attempt: int) -> bool:
    return False


def _on_eof(exited: bool, eof: bool) -> bool:
    """A broken socket counts as the end of the process."""
    return exited or eof


def _by_message(fact: Sealed | None, told: Sealed | None) -> Sealed | None:
    """The trainer tells its agent that the copy has ended; no fact is written."""
    return told


def _torn_seal(fact: Sealed | None) -> Sealed | None:
    """What is left of a torn record is read as if it were all."""
    if fact is None or not fact.torn:
        return fact
    return replace(fact, step_id=fact.step_id._replace(step=fact.step_id.step // 10), torn=False)


def _torn_manifest(record: Manifest) -> Manifest | None:
    return replace(record, torn=False)


def _bury_with(state: NodeState, *, counted: Iterable[StepId], pin: bool) -> tuple[Task, ...]:
    """The agenda with the tombs that another rule of retention asks for."""
    others = [t for t in agenda(state) if not isinstance(t, Bury)]
    if not (state.settled and state.reachable) or any(isinstance(t, Stop) for t in others):
        return tuple(others)
    source = resume_source(state.history) if pin else None
    old = removable(counted, state.line, state.keep, resumed_from=source, w=state.w)
    return (*others, *(Bury(s, "old") for s in old if s in state.committed and s not in state.wish.wanted))


def _unpinned(state: NodeState) -> tuple[Task, ...]:
    return _bury_with(state, counted=state.committed, pin=False)


def _counting_what_is_being_written(state: NodeState) -> tuple[Task, ...]:
    def counts(stored: Stored) -> bool:
        return not stored.buried and (stored.committed or bool(stored.ranks))

    return _bury_with(state, counted={s for s, stored in state.stored.items() if counts(stored)}, pin=True)


def _sync_last(ranks: Iterable[int]) -> tuple[DrainEffect, ...]:
    late = (Do.SYNC, Do.SYNC_DIRECTORY)
    effects = drain_effects(ranks)
    return (*(e for e in effects if e.do not in late), *(e for e in effects if e.do in late))


def _every_wish_pins(state: NodeState) -> dict[str, str]:
    """What a caller asked for keeps its slots until it is committed, come what may."""
    in_use = {*state.wish.wanted, *([state.round] if state.round else [])}
    source = resume_source(state.history)
    reasons = {
        s.name: must_stay(s, w=state.w, line=state.line, resumed_from=source, in_use=in_use, lost=state.lost)
        for s in state.slots
    }
    return {name: reason for name, reason in reasons.items() if reason is not None}


def _nobody_goes_past(state: NodeState) -> tuple[Task, ...]:
    """Whoever cannot hold a step says so; all others are still to come."""
    return tuple(task for task in agenda(state) if not isinstance(task, Lose))


def _absent_is_past(state: NodeState) -> tuple[Task, ...]:
    """A rank that has not sealed a step which others hold has gone past it."""
    ranks = {s.rank for s in state.slots}
    held = {s.holds for s in state.slots if s.holds and s.is_sealed and (state.w is None or s.holds > state.w)}
    missing = {s: ranks - {slot.rank for slot in state.slots if slot.holds == s} for s in held}
    early = (Lose(s, Pass(min(r), 0, {})) for s, r in sorted(missing.items()) if r and s not in state.lost)
    return (*agenda(state), *(task for task in early if not state.may_turn and task.step_id.attempt == state.line.newest))


def _bury_wanted(state: NodeState) -> tuple[Task, ...]:
    """Retention does not ask who waits for a commit."""
    source = resume_source(state.history)
    old = removable(state.committed, state.line, state.keep, resumed_from=source, w=state.w)
    tasks = agenda(state)
    idle = state.may_turn or not state.reachable or any(isinstance(t, Stop) for t in tasks)
    return tasks if idle else (*tasks, *(Bury(s, "old") for s in old if s in state.wish.wanted))


def _what_is_not_seen_is_not_there(state: NodeState) -> tuple[Task, ...]:
    return agenda(replace(state, absence_is_final=True))


PLANTS: dict[str, Plant] = {
    "recycling-without-W": Plant("C1", "each rank keeps its own newest step", replace(RULES, stays=_stays_only_in_use)),
    "own-drain-step": Plant("C3", "each node drains the newest it has", replace(RULES, step_of_part=_own_newest)),
    "maximum-step": Plant(
        "A3",
        "the highest step is the newest",
        replace(RULES, decide=_decide_maximum),
        where=lambda world: world.world_size == 1,
    ),
    "commit-by-zombie": Plant(
        "A5",
        "what was true when the round opened is true when it ends",
        replace(RULES, why_not_commit=_commit_unread, agenda=_agenda_of_a_zombie),
    ),
    "reuse-on-EOF": Plant("B2", "a broken socket is a dead process", replace(RULES, writer_gone=_on_eof)),
    "seal-by-message": Plant("B1", "the agent is told, that is enough", replace(RULES, seal_known=_by_message)),
    "torn-record": Plant(
        "M1",
        "a file that exists can be read",
        replace(RULES, read_seal=_torn_seal, read_manifest=_torn_manifest),
    ),
    "no-pin": Plant(
        "F3",
        "one newer commit is enough",
        replace(RULES, agenda=_unpinned),
        where=lambda world: len(world.places) == 2 and world.keep == Keep(last=1),
    ),
    "commit-before-fsync": Plant("F1", "written is written", replace(RULES, drain_effects=_sync_last)),
    "delete-before-commit": Plant(
        "F3", "the step being written counts already", replace(RULES, agenda=_counting_what_is_being_written)
    ),
    "agreement-by-maximum": Plant(
        "G1", "all ranks take the newest anybody has", replace(RULES, decide=_decide_each_its_newest)
    ),
    "no-fence": Plant(
        "A4",
        "old processes end by themselves",
        replace(RULES, is_fenced=_unfenced, agenda=_agenda_unfenced, why_not_commit=_commit_unfenced),
    ),
    # These were no plants: the explorer found them in the core, and they stay as its regression tests.
    "wish-pins-for-ever": Plant("C1", "who asks for a commit will get it", replace(RULES, stays=_every_wish_pins)),
    "skipped-steps-stay": Plant(
        "C2",
        "all ranks evacuate at the same steps",
        replace(RULES, agenda=_nobody_goes_past),
        where=lambda world: len(set(world.accumulations)) > 1,
    ),
    "absent-is-past": Plant("C2", "who is not there by now will not come", replace(RULES, agenda=_absent_is_past)),
    "wanted-and-buried": Plant(
        "F3",
        "what is old may go, whoever waits for it",
        replace(RULES, agenda=_bury_wanted),
    ),
    "half-seen-leftover": Plant(
        "F1",
        "what is not seen is not there",
        replace(RULES, agenda=_what_is_not_seen_is_not_there),
        where=lambda world: world.target.slow and world.world_size == 1,
    ),
}
"""By name. Every one must be found within a bounded number of seeds."""
