"""Which cadence is in force, told from the facts that stand."""

from __future__ import annotations

from pathlib import Path

from hinan.core.ids import StepId
from hinan.formats.records import CadenceRecord, VerdictRecord
from hinan.tiers.arena import Arena
from hinan.tiers.cadences import PROPOSAL, VERDICT, cadence_name, in_force, parse_cadence_name


def propose(arena: Arena, number: int, from_step: int, accepted: bool | None = None, attempt: int = 2) -> None:
    record = CadenceRecord(attempt, number, from_step, 10 + number, 1, "", "")
    arena.publish(cadence_name(attempt, number, PROPOSAL), record)
    if accepted is not None:
        arena.publish(cadence_name(attempt, number, VERDICT), VerdictRecord(attempt, number, accepted))


def numbers(arena: Arena, *held: int) -> tuple[int, int | None] | None:
    found = in_force(arena, [StepId(2, step) for step in held])
    return None if found is None else (found.now.number, found.following.number if found.following else None)


def test_the_first_one_needs_no_verdict_and_others_do(tmp_path: Path) -> None:
    """What is proposed, or rejected, is not in force; what is accepted is, from its step on."""
    arena = Arena(tmp_path)
    assert numbers(arena, 30) is None
    propose(arena, 0, 0)
    propose(arena, 1, 30)
    assert numbers(arena, 40) == (0, None)
    propose(arena, 2, 50, accepted=False)
    assert numbers(arena, 60) == (0, None)
    propose(arena, 3, 70, accepted=True)
    assert numbers(arena, 60) == (0, 3)
    assert numbers(arena) == (0, 3)
    assert numbers(arena, 60, 70) == (3, None)


def test_steps_and_cadences_of_other_attempts_do_not_count(tmp_path: Path) -> None:
    """The newest attempt's; a step that an older one had reached says nothing about it."""
    arena = Arena(tmp_path)
    propose(arena, 5, 10, accepted=True, attempt=1)
    propose(arena, 0, 0)
    propose(arena, 1, 70, accepted=True)
    found = in_force(arena, [StepId(1, 500), StepId(2, 20)])
    assert found is not None
    assert (found.now.attempt, found.now.number) == (2, 0)


def test_the_only_one_left_is_in_force_already(tmp_path: Path) -> None:
    """Rank 0 has removed its predecessor when it reached the step: nothing newer need be held yet."""
    arena = Arena(tmp_path)
    propose(arena, 4, 70, accepted=True)
    assert numbers(arena, 60) == (4, None)
    assert not arena._cache


def test_names_are_read_as_they_are_written() -> None:
    """Also numbers of more digits than usual; foreign names are none."""
    assert parse_cadence_name(cadence_name(7, 12345, "ack-3")) == (7, 12345, "ack-3")
    assert parse_cadence_name("cadence-x.json") is None
