"""What an agent does next, from everything it knows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core_values import at, history, slot

from hinan.core.agenda import (
    Bury,
    Commit,
    Drain,
    Forget,
    Lose,
    NodeState,
    Prove,
    Release,
    Remove,
    Stop,
    Stored,
    agenda,
    leftovers,
    stays,
)
from hinan.core.retention import Keep
from hinan.core.rounds import Wish
from hinan.core.slot import Phase, Slot


def whole(*, committed: bool = True, **kwargs: bool) -> Stored:
    return Stored(frozenset({0, 1}), 2, committed, **kwargs)


def pair(step: int, attempt: int = 1, **kwargs: object) -> tuple[Slot, Slot]:
    first, second = (
        slot(f"{r}-{attempt}-{step}", r, at(attempt, step), world=2, **kwargs)  # type: ignore[arg-type]
        for r in (0, 1)
    )
    return first, second


def state(*slots: Slot, **kwargs: object) -> NodeState:
    settings: dict[str, object] = {"history": history(None), "served": 1, **kwargs}
    return NodeState(slots=slots, **settings)  # type: ignore[arg-type]


def test_an_idle_agent_has_nothing_to_do() -> None:
    """No slots, nothing stored: no tasks."""
    assert agenda(state()) == ()


def test_newest_images_are_proven_first() -> None:
    """A restart or a waiting round would ask for the newest."""
    slots = (*pair(10, phase=Phase.SEALED), *pair(20, phase=Phase.SEALED))
    assert agenda(state(*slots)) == (Prove("0-1-20"), Prove("1-1-20"), Prove("0-1-10"), Prove("1-1-10"))


def test_a_due_proven_step_is_drained_by_rank_order_and_one_at_a_time() -> None:
    """C3: one round a tier; while it is open no other is."""
    due = state(*pair(20, commit_at=20))
    assert agenda(due) == (Drain(at(1, 20), ("0-1-20", "1-1-20")),)
    assert agenda(replace(due, round=at(1, 20))) == ()
    assert agenda(state(*pair(20, commit_at=20, phase=Phase.SEALED)))[-1] == Prove("1-1-20")


def test_a_fenced_agent_only_stops() -> None:
    """A5: once another attempt has claimed and resumed, nothing else is done."""
    fenced = state(*pair(20, commit_at=20, alive=False), history=history(None, at(1, 10)))
    assert agenda(fenced) == (Stop("attempt 2 of this run has been started elsewhere"),)


def test_an_agent_that_was_started_before_the_job_waits_for_it() -> None:
    """A5: the last attempt was another host's; this agent holds nothing, does nothing to that attempt, and stays."""
    stored = {at(1, 10): whole(), at(1, 20): whole(committed=False), at(1, 30): whole(buried=True)}
    assert agenda(state(history=history(None), served=0, stored=stored, keep=Keep(last=1))) == ()


def test_a_claim_alone_stops_nobody_for_good() -> None:
    """An agent ends only when the newer attempt has resumed; until then it serves views and waits (A3, A5)."""
    waiting = state(*pair(20, commit_at=20), history=history(None, unresumed=1), settled=False)
    assert agenda(waiting) == ()


def test_while_the_lineage_may_turn_nothing_is_drained_committed_deleted_or_released() -> None:
    """Between a claim and its resume only proving goes on: what a restart may choose is left alone."""
    waiting = state(
        *pair(10, alive=False),
        *pair(20, alive=False, phase=Phase.SEALED, commit_at=20),
        history=history(None, unresumed=1),
        served=2,
        settled=False,
        stored={at(1, 5): whole(), at(1, 6): whole(), at(1, 7): whole(committed=False)},
        keep=Keep(last=1),
    )
    assert {type(t) for t in agenda(waiting)} == {Prove}


def test_a_history_without_the_attempt_it_serves_is_too_old_to_act_on() -> None:
    """A trainer of attempt 2 said hello, the target shows attempt 1 only: a claim is hidden, the lineage may turn."""
    stale = state(*pair(10, alive=False), *pair(20, alive=False, commit_at=20), served=2, keep=Keep(last=1))
    assert agenda(stale) == ()
    assert agenda(replace(stale, served=1)) != ()


def test_without_the_target_nothing_is_concluded_from_it() -> None:
    """An unreadable target is not an empty one."""
    lone = state(*pair(20, commit_at=20), reachable=False, stored={at(1, 5): whole(), at(1, 6): whole()}, keep=Keep(last=1))
    assert agenda(lone) == ()


def test_remains_go_once_they_are_not_needed() -> None:
    """B2, A4: slots of exited writers stay while they are W or may be, and go after; those of living writers never."""
    old, new = pair(10, alive=False), pair(20, alive=False)
    assert agenda(state(*old, *new)) == (Release("0-1-10"), Release("1-1-10"), Drain(at(1, 20), ("0-1-20", "1-1-20")))[:2]
    assert not [t for t in agenda(state(*pair(10), *pair(20))) if isinstance(t, Release)]
    assert agenda(state(slot("0-9", 0, alive=False), slot("0-8", 0, alive=False, phase=Phase.FILLING))) == (
        Release("0-9"),
        Release("0-8"),
    )


def test_the_newest_is_saved_first_unless_it_can_never_be_proven() -> None:
    """The run closes: the proven step 10 waits for the proof of step 20, but not when one image of 20 is damaged."""
    newest = pair(20, phase=Phase.SEALED)
    closing = state(*pair(10), *newest, wish=Wish(newest_at_any_rate=True), stored={at(1, 5): whole()})
    assert agenda(closing) == (Prove("0-1-20"), Prove("1-1-20"))
    damaged = replace(closing, unprovable=frozenset({"1-1-20"}))
    assert agenda(damaged) == (Prove("0-1-20"), Drain(at(1, 10), ("0-1-10", "1-1-10")))


def test_sealed_images_of_an_older_attempt_stay_and_drain() -> None:
    """A4: trainers are fenced, not bytes."""
    old = state(*pair(20, alive=False, commit_at=20), history=history(None, at(1, 20)), served=2)
    assert agenda(old) == (Drain(at(1, 20), ("0-1-20", "1-1-20")),)


def test_a_missing_commit_record_is_published_not_drained_again() -> None:
    """F2: a step that is complete on the target needs its record only."""
    complete = state(*pair(20, commit_at=20), stored={at(1, 20): whole(committed=False)})
    assert agenda(complete) == (Commit(at(1, 20)),)
    assert agenda(replace(complete, round=at(1, 20))) == ()


def test_old_commits_are_buried_then_removed_when_nobody_reads() -> None:
    """F3: tombstone, wait for readers, payload."""
    stored = {at(1, 10): whole(), at(1, 20): whole()}
    full = state(*pair(20, commit_at=20), stored=stored, keep=Keep(last=1))
    assert agenda(full) == (Bury(at(1, 10)),)
    assert agenda(replace(full, stored=stored | {at(1, 10): whole(buried=True, readers=True)})) == ()
    assert agenda(replace(full, stored=stored | {at(1, 10): whole(buried=True)})) == (Remove(at(1, 10)),)


def test_buried_steps_do_not_count_as_kept() -> None:
    """A tombstone is the end: the next newest takes the place of a buried step."""
    stored = {at(1, 10): whole(), at(1, 20): whole(buried=True, readers=True), at(1, 30): whole()}
    assert agenda(state(stored=stored, keep=Keep(last=2))) == ()


def test_leftovers_of_a_drain_are_removed_when_nothing_can_complete_them() -> None:
    """A-KEEP-4, A-COMMIT-1: what no image and no round can complete goes; what is being written or still in RAM stays."""
    half = Stored(frozenset({0}), 2, committed=False)
    stored = {at(1, 10): half, at(1, 20): half, at(1, 30): half}
    found = state(*pair(30), stored=stored, round=at(1, 20))
    assert leftovers(found) == (at(1, 10),)
    assert Bury(at(1, 10)) in agenda(found)


def test_what_a_slow_store_shows_in_part_is_no_leftover() -> None:
    """F1: a new agent that sees one manifest of a committed step must not bury it before the visibility time is over."""
    seen = state(stored={at(1, 10): Stored(frozenset({0}), 2, committed=False)}, absence_is_final=False)
    assert agenda(seen) == ()
    assert agenda(replace(seen, absence_is_final=True)) == (Bury(at(1, 10)),)


def test_a_step_of_a_newer_attempt_is_not_ours_to_clean() -> None:
    """A6: an agent leaves alone what an attempt it does not serve is writing."""
    assert leftovers(state(stored={at(2, 10): Stored(frozenset({0}), 2, committed=False)})) == ()


def test_a_wish_pins_its_step_while_a_round_can_fulfil_it() -> None:
    """`evacuate(wait="committed")`: the step stays until it is drained."""
    slots = (*pair(10), *pair(20))
    assert stays(state(*slots, wish=Wish({at(1, 10)})))["0-1-10"] == "it is being drained"
    assert "0-1-10" not in stays(state(*slots))


@pytest.mark.parametrize(
    "change",
    [
        {"lost": frozenset({at(1, 10)})},
        {"failed": frozenset({at(1, 10)})},
        {"stored": {at(1, 10): whole()}},
        {"history": history(None, at(1, 5)), "served": 2},
    ],
    ids=["lost", "failed", "committed", "orphaned"],
)
def test_a_wish_that_cannot_be_fulfilled_pins_nothing(change: dict[str, object]) -> None:
    """Else two slots are full for ever: W in one, the hopeless wish in the other, and every later step is LOST."""
    slots = (*pair(10), *pair(20))
    assert "0-1-10" not in stays(state(*slots, wish=Wish({at(1, 10)}), **change))


def test_a_wish_for_what_another_rank_no_longer_holds_pins_nothing() -> None:
    """The coordinator of another node gave the round up and recycled its image: this node lets go too."""
    slots = (pair(10)[0], *pair(20))
    assert "0-1-10" not in stays(state(*slots, wish=Wish({at(1, 10)})))


def test_a_wanted_step_is_not_buried_before_its_caller_saw_it() -> None:
    """Else it is committed, buried and, still wanted, drained again, for ever."""
    stored = {at(1, 10): whole(), at(1, 20): whole()}
    full = state(*pair(10), *pair(20), stored=stored, keep=Keep(last=1))
    assert Bury(at(1, 10)) in agenda(full)
    assert agenda(replace(full, wish=Wish({at(1, 10)}))) == ()


def test_what_goes_is_neither_proven_nor_drained() -> None:
    """An image sealed just before its trainers died, and overtaken: by the time of a proof it would be gone."""
    dead = state(*pair(10, alive=False, phase=Phase.SEALED, commit_at=10), *pair(20, alive=False))
    tasks = agenda(dead)
    going = {task.slot for task in tasks if isinstance(task, Release)}
    assert going == {"0-1-10", "1-1-10"}
    assert not [task for task in tasks if isinstance(task, Prove) and task.slot in going]
    assert not [task for task in tasks if isinstance(task, Drain) and going & set(task.slots)]


def half(rank: int, *steps: int, attempt: int = 1) -> list[Slot]:
    return [slot(f"{rank}-{attempt}-{s}", rank, at(attempt, s), world=2) for s in steps]


def lost_by(found: tuple[object, ...]) -> list[Lose]:
    return [task for task in found if isinstance(task, Lose)]


def test_a_step_that_a_rank_has_gone_past_is_lost_and_the_reason_names_both() -> None:
    """C2: ranks that put their evacuations off differently must not fill the slots for ever."""
    out_of_phase = state(*pair(12), *half(0, 16, 20), *half(1, 18, 21))
    tasks = lost_by(agenda(out_of_phase))
    assert [task.step_id.step for task in tasks] == [16, 18, 20]
    assert "rank 1 has gone past it" in tasks[0].reason
    assert "rank 0 holds 12, 16, 20; rank 1 holds 12, 18, 21" in tasks[0].reason
    after = replace(out_of_phase, lost=frozenset(task.step_id for task in tasks))
    assert stays(after) == {
        "0-1-12": "it is the watermark",
        "1-1-12": "it is the watermark",
        "1-1-21": "it may still become the watermark",
    }
    assert lost_by(agenda(after)) == []


def test_nothing_is_lost_below_the_watermark_or_while_the_lineage_may_turn() -> None:
    """What W has passed goes by itself; what an attempt that is over left is an orphan."""
    assert lost_by(agenda(state(*half(0, 8), *pair(12)))) == []
    passed = state(*half(0, 16), *half(1, 18))
    assert lost_by(agenda(replace(passed, settled=False))) == []
    assert lost_by(agenda(replace(passed, history=history(None, None), served=2))) == []


def test_lost_steps_are_forgotten_when_all_have_gone_past_them_although_w_stands_still() -> None:
    """Their facts must not pile up: ranks that never meet lose every step."""
    lost = frozenset({at(1, 4), at(1, 6), at(1, 20)})
    found = agenda(state(*half(0, 8), *half(1, 6, 9), lost=lost))
    assert [task for task in found if isinstance(task, Forget)] == [Forget(at(1, 4))]
