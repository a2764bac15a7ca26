"""When to evacuate and commit: a value, and a change of it that all ranks take or none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hinan.core import cadence
from hinan.core.cadence import Asked, Cadence, parse_every, wanted_cadence
from hinan.core.errors import ConfigError

cadences = st.builds(Cadence, st.just(0), st.integers(1, 50), st.integers(1, 10))


@given(cadences, st.integers(0, 10_000))
def test_due_and_commit_are_functions_of_the_step(c: Cadence, step: int) -> None:
    """Every rank answers alike: due on multiples; a commit falls on a due step, the newest at or below."""
    assert c.due(step) == (step > 0 and step % c.every_steps == 0)
    commit_at = c.commit_at(step)
    assert 0 <= commit_at <= step < commit_at + c.every_steps * c.commit_multiple
    assert commit_at == 0 or c.due(commit_at)


def test_three_ways_to_ask() -> None:
    """Steps, seconds and auto are told apart."""
    assert parse_every(50, "every") == Asked(steps=50)
    assert parse_every("30s", "every") == Asked(seconds=30)
    assert parse_every("auto", "every").is_automatic


@pytest.mark.parametrize("value", [0, -5, True, "0s", "often", 1.5, None])
def test_bad_cadences_name_the_argument(value: object) -> None:
    """What cannot be a cadence is refused with its name or an example."""
    with pytest.raises(ConfigError, match=r"every|30s"):
        parse_every(value, "every")  # type: ignore[arg-type]


def test_durations_become_steps() -> None:
    """Seconds are turned into steps by the measured step time, "auto" by who decides it; commits are whole multiples,
    rounded up."""
    auto = {"auto_every_steps": 20, "auto_commit_steps": 110}
    assert wanted_cadence(Asked(steps=7), Asked(steps=20), None) == (7, 3)
    assert wanted_cadence(Asked(seconds=30), Asked(seconds=90), 0.5) == (60, 3)
    assert wanted_cadence(Asked(), Asked(), 0.5, **auto) == (20, 6)
    assert wanted_cadence(Asked(), Asked(steps=5), 0.5, **auto) == (20, 1)
    assert wanted_cadence(Asked(seconds=30), Asked(), 0.5, **auto) == (60, 2)
    assert wanted_cadence(Asked(), Asked(), 0.5, auto_every_steps=20) == (20, 1)


@pytest.mark.parametrize("asked", [Asked(), Asked(seconds=30)])
def test_before_a_step_is_measured_it_is_the_warm_up(asked: Asked) -> None:
    """Neither seconds nor "auto" say a number of steps before a step's time is known."""
    assert wanted_cadence(asked, asked, None) == (cadence.WARM_UP_STEPS, 1)
    assert cadence.fixed_steps(asked, None) is None


@given(st.floats(0.001, 100), st.floats(0.001, 10_000))
def test_an_interval_is_at_least_one_step(step_s: float, interval_s: float) -> None:
    """However long a step is, the cadence is a whole number of at least one."""
    assert cadence.steps_for(interval_s, step_s) >= 1


def test_small_changes_of_seconds_are_noise() -> None:
    """Below a fifth nothing changes; above, a change of either interval is worth it. "auto" and steps do not count here."""
    now, seconds, auto = Cadence(0, 100, 10), Asked(seconds=30), Asked()
    assert not cadence.is_worth_changing(now, (110, 10), seconds, seconds)
    assert cadence.is_worth_changing(now, (130, 10), seconds, auto)
    assert cadence.is_worth_changing(now, (100, 20), auto, seconds)
    assert not cadence.is_worth_changing(now, (130, 20), auto, Asked(steps=1000))


def test_the_verdict_needs_every_rank() -> None:
    """One silent rank is a no."""
    assert cadence.verdict(3, [0, 1, 2])
    assert not cadence.verdict(3, [0, 2])


def test_a_change_lies_far_enough_ahead() -> None:
    """A rank that is one evacuation ahead of the proposer may still acknowledge."""
    now = Cadence(0, 5, 1)
    proposed = Cadence(cadence.effective_step(now, 40), 9, 1)
    assert proposed.from_step == 55
    assert cadence.may_acknowledge(proposed, 54) and not cadence.may_acknowledge(proposed, 55)


State = tuple[tuple[int, ...], frozenset[int], bool | None, tuple[bool | None, ...]]
"""(finished steps of each rank, who acknowledged, the verdict fact, what each rank took it for)"""


def moves(state: State, proposed: Cadence) -> list[State]:
    """What can happen: a rank acknowledges, or finishes a step (reads the verdict at `from_step`); rank 0 judges."""
    steps, acks, fact, took = state
    found: list[State] = []
    if fact is None and cadence.verdict(len(steps), acks):
        found.append((steps, acks, True, took))
    for rank, step in enumerate(steps):
        if rank not in acks and cadence.may_acknowledge(proposed, step):
            found.append((steps, acks | {rank}, fact, took))
        if step < proposed.from_step and step == min(steps):
            after = tuple(s + (r == rank) for r, s in enumerate(steps))
            if step + 1 < proposed.from_step:
                found.append((after, acks, fact, took))
            else:  # the fact is published once: "rejected" only if nothing stands
                stands = False if fact is None else fact
                found.append((after, acks, stands, tuple(stands if r == rank else t for r, t in enumerate(took))))
    return found


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_all_ranks_take_a_change_or_none_does_under_every_interleaving(world_size: int) -> None:
    """M2: in every order of steps, acknowledgements and verdict, all ranks act alike at `from_step`; both ends occur."""
    proposed = Cadence(3, 9, 1)
    start: State = ((0,) * world_size, frozenset(), None, (None,) * world_size)
    seen, todo, ends = {start}, [start], set()
    while todo:
        state = todo.pop()
        following = moves(state, proposed)
        known = {t for t in state[3] if t is not None}
        assert len(known) <= 1, f"ranks disagree: {state}"
        assert known != {True} or state[1] == frozenset(range(world_size)), f"accepted without all: {state}"
        if not following:
            assert None not in state[3], f"stuck: {state}"
            ends |= known
        todo += [s for s in following if s not in seen]
        seen |= set(following)
    assert ends == {True, False}
