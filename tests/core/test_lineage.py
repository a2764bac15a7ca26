"""The run's one past: chains, rollbacks, fresh starts, fences."""

from __future__ import annotations

from core_values import at, history
from hypothesis import given
from hypothesis import strategies as st

from hinan.core.ids import StepId
from hinan.core.lineage import History, Resume, certain, is_fenced, lineage, resume_source


def test_before_the_first_resume_nothing_counts() -> None:
    """Without a resume record there is no past."""
    assert at(1, 10) not in lineage(history(unresumed=1))
    assert resume_source(history()) is None


def test_a_chain_counts_up_to_where_each_attempt_was_left() -> None:
    """A step is a candidate only if no later attempt of the chain went on from an earlier one."""
    line = lineage(history(None, at(1, 40), at(2, 70)))
    assert [at(1, 40) in line, at(1, 41) in line, at(2, 70) in line, at(2, 80) in line, at(3, 9999) in line] == [
        True,
        False,
        True,
        False,
        True,
    ]


def test_a_rollback_leaves_the_attempts_in_between() -> None:
    """An attempt that went back behind its predecessor makes the predecessor's steps orphans, with the reason."""
    line = lineage(history(None, at(1, 40), at(1, 20)))
    assert line.why_not(at(2, 50)) == "orphan: attempt 2 is not on the lineage"
    assert line.why_not(at(1, 40)) == "orphan: a later attempt resumed from step 20"
    assert at(1, 20) in line


def test_limits_only_shrink_towards_the_past() -> None:
    """A later resume binds all earlier attempts, however high their own limit was."""
    strange = History(frozenset({1, 2, 3}), {1: Resume(1, None), 2: Resume(2, at(1, 40)), 3: Resume(3, at(2, 30))})
    assert at(1, 35) not in lineage(strange)
    assert at(1, 30) in lineage(strange)


def test_a_fresh_start_cuts_the_past_off() -> None:
    """After `fresh=True` nothing older is ever taken by itself (A-KEEP-3)."""
    line = lineage(history(None, None))
    assert at(1, 1000) not in line
    assert at(2, 10) in line


def test_a_claim_without_a_resume_fences_and_is_on_no_lineage() -> None:
    """An attempt that died before it resumed stops older agents and adds nothing to the past."""
    dead = history(None, at(1, 40), unresumed=1)
    assert is_fenced(dead, 2) and not is_fenced(dead, 3)
    assert at(3, 50) not in lineage(dead)
    assert at(2, 50) in lineage(dead)
    assert resume_source(dead) == at(1, 40)


def test_a_zombies_late_step_is_an_orphan() -> None:
    """A process of an older attempt that goes on past the resume step can only make orphans (A3)."""
    assert at(1, 60) not in lineage(history(None, at(1, 40)))


def test_a_ring_of_resumes_ends() -> None:
    """Damaged records that name each other never hang the decision."""
    ring = History(frozenset({1, 2}), {1: Resume(1, at(2, 10)), 2: Resume(2, at(1, 10))})
    assert lineage(ring).limits.keys() == {1, 2}


COPY = "put attempts/000002.resume back from a copy"


def test_a_step_that_an_unreadable_resume_hides_is_no_orphan_for_certain() -> None:
    """Its own attempt's record, newer than all that can be read, or the one at which the chain breaks off: the reason names
    the file and what counts again. Attempts that a readable chain has left behind stay orphans."""
    hidden = lineage(History(frozenset({1, 2}), {1: Resume(1, None)}, {2: COPY}))
    why = hidden.why_not(at(2, 9))
    assert why is not None and f"{COPY}, and the steps of attempt 2 count again" in why
    assert at(1, 6) in hidden
    broken = lineage(History(frozenset({1, 2, 3}), {1: Resume(1, None), 3: Resume(3, at(2, 9))}, {2: COPY}))
    why = broken.why_not(at(1, 6))
    assert why is not None and f"{COPY}, and the steps that attempt 2 went on from count again" in why
    assert at(2, 9) in broken
    left = lineage(History(frozenset({1, 2, 3}), {1: Resume(1, None), 3: Resume(3, at(1, 6))}, {2: COPY}))
    assert left.why_not(at(2, 9)) == "orphan: attempt 2 is not on the lineage"


def test_only_the_first_attempts_damaged_resume_is_known() -> None:
    """Before attempt 1 there is nothing that it could have gone on from; of any other nothing is guessed."""
    assert certain([2, 1]) == {1: Resume(1, None)}
    assert certain([2]) == certain([]) == {}


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Attempts that each go on from a step that is on the lineage so far, as a restart guarantees."""
    parents: list[StepId | None] = [None]
    for n in range(2, draw(st.integers(2, 7))):
        line = lineage(history(*parents))
        attempt = draw(st.sampled_from(sorted(line.limits)))
        limit = line.limits[attempt]
        base = parents[attempt - 1]
        low = base.step + 1 if base else 1
        high = limit if limit is not None else low + 20
        parents.append(at(attempt, draw(st.integers(low, high))) if high >= low else parents[-1])
        assert n == len(parents)
    return history(*parents)


@given(histories(), st.integers(1, 7), st.integers(1, 60))
def test_on_the_lineage_attempt_then_step_is_the_order_of_training(past: History, attempt: int, step: int) -> None:
    """`StepId` order is training order: of two steps on the lineage the later attempt's has more steps finished."""
    line = lineage(past)
    source = resume_source(past)
    made = past.resumes[attempt].parent if attempt in past.resumes else None
    if at(attempt, step) in line and (made is None or step > made.step) and source is not None:
        newest = max(past.resumes)
        assert attempt == newest or step <= source.step


@given(histories())
def test_the_resume_source_is_always_on_the_lineage(past: History) -> None:
    """What the newest attempt went on from is never an orphan."""
    source = resume_source(past)
    assert source is None or source in lineage(past)
