"""What a node agent should do now: one function from everything it knows to the tasks that follow.

The agent calls `agenda` whenever something may have changed, starts the tasks it is not yet busy with, and calls again.
It keeps no plan of its own, so an agent that was killed and started again goes on from what it finds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hinan.core.commit import why_not_commit
from hinan.core.ids import StepId
from hinan.core.lineage import History, Lineage, is_fenced, lineage, resume_source
from hinan.core.retention import Keep, removable
from hinan.core.rounds import Wish, next_round
from hinan.core.slot import Phase, Slot
from hinan.core.watermark import Pass, all_past, held_everywhere, must_stay, passed_by, watermark


@dataclass(frozen=True)
class Stored:
    """What the target holds of one step.

    Attributes:
        ranks: ranks whose image and manifest stand there.
        world_size: number of ranks that make the step complete; 0 while no manifest is readable.
        committed: whether its commit record stands there.
        buried: whether its tombstone stands there.
        readers: whether somebody is still reading it (younger than the grace for readers).
        unreadable: whether a record stands there that cannot be read (damaged, or of a newer hinan). Such a step is
            offered to nobody, and deleted by nobody but a person.
    """

    ranks: frozenset[int]
    world_size: int
    committed: bool
    buried: bool = False
    readers: bool = False
    unreadable: bool = False

    @property
    def is_complete(self) -> bool:
        return self.world_size > 0 and self.ranks == frozenset(range(self.world_size))

    @property
    def is_open(self) -> bool:
        """Neither committed nor being deleted nor beyond our reading: a drain that is under way or was interrupted."""
        return not (self.committed or self.buried or self.unreadable)


@dataclass(frozen=True)
class NodeState:
    """All that an agent's next tasks depend on.

    Attributes:
        served: newest attempt whose trainers this agent has served; 0 before the first.
        round: step of the open drain round, if any.
        unprovable: slots whose image is damaged, or could not be digested for now.
        settled: False while the newest claim has no resume yet: the lineage may be about to turn, so nothing is
            committed or deleted.
        reachable: False while the target could not be read; then `stored` is not to be trusted.
        absence_is_final: False while names that others published may still be hidden by a slow store, which is until the
            agent has looked for the visibility time (rule F1); then an incomplete step may be a committed one.
    """

    slots: tuple[Slot, ...]
    history: History
    served: int
    stored: Mapping[StepId, Stored] = field(default_factory=dict)
    lost: frozenset[StepId] = frozenset()
    round: StepId | None = None
    failed: frozenset[StepId] = frozenset()
    unprovable: frozenset[str] = frozenset()
    wish: Wish = field(default_factory=Wish)
    keep: Keep = field(default_factory=Keep)
    settled: bool = True
    reachable: bool = True
    absence_is_final: bool = True

    @property
    def may_turn(self) -> bool:
        """Whether the lineage may be about to turn; a history without the attempt it serves is too old to tell."""
        return not self.settled or self.history.newest_claim < self.served

    @property
    def line(self) -> Lineage:
        return lineage(self.history)

    @property
    def w(self) -> StepId | None:
        return watermark(self.slots, self.line, self.lost)

    @property
    def committed(self) -> frozenset[StepId]:
        return frozenset(s for s, stored in self.stored.items() if stored.committed and not stored.buried)


@dataclass(frozen=True)
class Prove:
    """Digest the image in this slot and publish its `.proven` fact."""

    slot: str


@dataclass(frozen=True)
class Drain:
    """Open a round: persist and commit this step on the target."""

    step_id: StepId
    slots: tuple[str, ...]


@dataclass(frozen=True)
class Commit:
    """Publish the missing commit record of a step that is complete on the target."""

    step_id: StepId


@dataclass(frozen=True)
class Bury:
    """Publish the tombstone of a step: readers turn away from it from now on."""

    step_id: StepId
    reason: str = field(default="", compare=False)


@dataclass(frozen=True)
class Remove:
    """Delete the payload of a buried step that nobody reads any more."""

    step_id: StepId


@dataclass(frozen=True)
class Release:
    """Unlink a slot whose writer has exited and whose step is not needed."""

    slot: str


@dataclass(frozen=True)
class Lose:
    """Publish that a step is lost: a rank has gone past it without holding it, so it will never be whole.

    A look reads one slot after another while trainers seal. So it is done only if a second look, begun after the first,
    says the same of the same rank: what showed that it has gone past was then there before its slots were read.
    """

    step_id: StepId
    passed: Pass

    @property
    def reason(self) -> str:
        """Why, for people."""
        rank, holder, steps = self.passed.rank, self.passed.holder, self.passed.steps

        def held(rank: int) -> str:
            return f"rank {rank} holds {', '.join(map(str, steps[rank]))}"

        return (
            f"rank {rank} has gone past it without evacuating it ({held(holder)}; {held(rank)}). The ranks do not evacuate "
            "at the same steps: gradients of one wait for their optimizer when those of another do not, which puts its "
            "evacuations off (let all ranks step at the same iterations, or choose a cadence that is a multiple of all "
            "their accumulations), or evac.evacuate() is not called on all ranks alike"
        )


@dataclass(frozen=True)
class Forget:
    """Remove the fact that a step was lost: every rank has passed it, and no image of it is left."""

    step_id: StepId


@dataclass(frozen=True)
class Stop:
    """Another host's attempt has claimed the run: stop for good (rule A5)."""

    reason: str


Task = Prove | Drain | Commit | Bury | Remove | Release | Lose | Forget | Stop


def stays(state: NodeState) -> dict[str, str]:
    """Slots that must keep their bytes, each with the reason."""
    line, w, resumed_from = state.line, state.w, resume_source(state.history)
    # A wish pins only what a round can still fulfil; else a step that one rank lost, or whose round was abandoned by the
    # coordinator of another node, would hold its slots for ever. (What may still become held everywhere stays anyway.)
    hopeful = {s for s in held_everywhere(state.slots) if s in state.wish.wanted and s in line}
    hopeful -= state.lost | state.failed | state.committed
    in_use = {*hopeful, *([state.round] if state.round else [])}
    reasons = {
        s.name: must_stay(s, w=w, line=line, resumed_from=resumed_from, in_use=in_use, lost=state.lost) for s in state.slots
    }
    return {name: reason for name, reason in reasons.items() if reason is not None}


def agenda(state: NodeState) -> tuple[Task, ...]:
    """The tasks that are due now, most urgent first."""
    if not state.may_turn and is_fenced(state.history, state.served):
        # One that holds nothing has nothing to stop: it was started before the job, on another host than the last attempt,
        # and waits for its own.
        why = f"attempt {state.history.newest_claim} of this run has been started elsewhere"
        return (Stop(why),) if state.slots else ()
    released = _release(state)
    # A slot that goes is neither proven nor drained: by the time of that task it is gone.
    going = {task.slot for task in released}
    left = replace(state, slots=tuple(s for s in state.slots if s.name not in going))
    tasks: list[Task] = [*released, *_lose(state), *_forget(state), *_prove(left)]
    if not state.may_turn and state.reachable:
        tasks += [*_drain(left), *_commit(state), *_bury(state), *_remove(state)]
    return tuple(tasks)


def _release(state: NodeState) -> list[Release]:
    """Slots of exited writers go once nothing needs them; while the lineage may turn, none goes."""
    if state.may_turn:
        return []
    needed = stays(state)
    return [Release(s.name) for s in state.slots if not s.owner_alive and s.name not in needed]


def _lose(state: NodeState) -> list[Lose]:
    """Steps of the attempt that trains which some rank has gone past: their slots would wait for ever for its image.

    Not those below the watermark, whose slots may go anyway, and not those of attempts that are over, which are orphans.
    """
    passed = passed_by(state.slots, above=state.w) if not state.may_turn else {}
    return [Lose(s, p) for s, p in sorted(passed.items()) if s.attempt == state.line.newest and s not in state.lost]


def _forget(state: NodeState) -> list[Forget]:
    """Lost steps that every rank has gone past and that no slot holds: none will seal them now."""
    in_ram = {slot.holds for slot in state.slots}
    passed = max((s for s in (state.w, all_past(state.slots)) if s is not None), default=None)
    return [Forget(s) for s in sorted(state.lost) if passed is not None and s < passed and s not in in_ram]


def _prove(state: NodeState) -> list[Prove]:
    """Sealed images, newest step first: what a restart or a waiting round would ask for."""
    sealed = [s for s in state.slots if s.phase is Phase.SEALED and s.name not in state.unprovable]
    return [Prove(s.name) for s in sorted(sealed, key=lambda s: (s.holds or StepId(0, 0), -s.rank), reverse=True)]


def _drain(state: NodeState) -> list[Drain]:
    if state.round is not None:
        return []
    proven = held_everywhere(state.slots, proven_only=True)
    held = {s: max(slot.commit_at for slot in ranks.values()) for s, ranks in proven.items() if s not in state.lost}
    # A step that is complete on the target needs no second drain, only its commit record.
    done = {s for s, stored in state.stored.items() if stored.is_complete or stored.committed}
    coming = held_everywhere(s for s in state.slots if s.name not in state.unprovable)
    proving = {s for s in coming if s not in proven and s not in state.lost}
    step_id = next_round(held, line=state.line, committed=done, wish=state.wish, failed=state.failed, proving=proving)
    if step_id is None:
        return []
    slots = proven[step_id]
    return [Drain(step_id, tuple(slots[rank].name for rank in sorted(slots)))]


def _commit(state: NodeState) -> list[Commit]:
    def may(step_id: StepId, stored: Stored) -> bool:
        reason = why_not_commit(
            step_id,
            world_size=stored.world_size,
            manifests=stored.ranks,
            history=state.history,
            served=state.served,
        )
        return reason is None

    open_steps = {s: t for s, t in state.stored.items() if t.is_complete and t.is_open}
    return [Commit(s) for s, stored in open_steps.items() if s != state.round and may(s, stored)]


def leftovers(state: NodeState) -> tuple[StepId, ...]:
    """Incomplete steps on the target that can never be completed: no image in RAM and no round works on them."""
    if not state.absence_is_final:
        return ()
    in_ram = {slot.holds for slot in state.slots}
    return tuple(
        s
        for s, stored in sorted(state.stored.items())
        if not stored.is_complete and stored.is_open and s != state.round
        if s not in in_ram and s.attempt <= state.served
    )


def _bury(state: NodeState) -> list[Bury]:
    old = removable(state.committed, state.line, state.keep, resumed_from=resume_source(state.history), w=state.w)
    tombs = [
        *(Bury(s, "superseded by newer committed steps") for s in old),
        *(Bury(s, "its drain was interrupted, and no RAM copy is left to finish it") for s in leftovers(state)),
    ]
    # A wanted step stays until its caller has seen it committed; else it would be drained and buried by turns for ever.
    return [tomb for tomb in tombs if tomb.step_id not in state.wish.wanted]


def _remove(state: NodeState) -> list[Remove]:
    return [Remove(s) for s, stored in sorted(state.stored.items()) if stored.buried and not stored.readers]
