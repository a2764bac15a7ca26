"""Which step the next round drains."""

from __future__ import annotations

from core_values import at, history
from hypothesis import given
from hypothesis import strategies as st

from hinan.core.ids import StepId
from hinan.core.lineage import lineage
from hinan.core.rounds import Wish, next_round

LINE = lineage(history(None))
NONE = Wish()


def test_a_due_step_is_drained_once() -> None:
    """What is due and not committed opens a round; what is committed does not."""
    assert next_round({at(1, 20): 20}, line=LINE, committed=(), wish=NONE) == at(1, 20)
    assert next_round({at(1, 20): 20}, line=LINE, committed={at(1, 20)}, wish=NONE) is None


def test_nothing_due_opens_nothing() -> None:
    """Evacuations between two commits stay in RAM."""
    assert next_round({at(1, 30): 20}, line=LINE, committed={at(1, 20)}, wish=NONE) is None


def test_a_recycled_due_step_is_stood_in_for_by_the_newest() -> None:
    """The newest held-everywhere step takes the place of a due one that is gone."""
    assert next_round({at(1, 30): 20, at(1, 25): 20}, line=LINE, committed={at(1, 10)}, wish=NONE) == at(1, 30)


def test_a_wish_is_served_although_nothing_is_due() -> None:
    """`evacuate(wait="committed")` names its step."""
    held = {at(1, 30): 20, at(1, 25): 20}
    assert next_round(held, line=LINE, committed={at(1, 20)}, wish=Wish({at(1, 25)})) == at(1, 25)


def test_the_end_of_a_run_saves_the_newest_there_is() -> None:
    """Trainers that died without closing leave their newest step to the target (B8)."""
    held = {at(1, 30): 20}
    assert next_round(held, line=LINE, committed={at(1, 20)}, wish=Wish(newest_at_any_rate=True)) == at(1, 30)
    assert next_round(held, line=LINE, committed={at(1, 30)}, wish=Wish(newest_at_any_rate=True)) is None


def test_the_end_of_a_run_waits_for_the_proof_of_the_newest() -> None:
    """Trainers died with step 30 just sealed: 30 is what must be saved; 25, which nobody asked for, would be in its way.
    What fell due goes on; what can never be proven holds nothing up."""
    last = Wish(newest_at_any_rate=True)
    held, proving = {at(1, 25): 20}, {at(1, 30)}
    assert next_round(held, line=LINE, committed={at(1, 20)}, wish=last, proving=proving) is None
    assert next_round(held, line=LINE, committed={at(1, 10)}, wish=last, proving=proving) == at(1, 25)
    assert next_round(held, line=LINE, committed={at(1, 20)}, wish=last, proving={at(1, 22)}) == at(1, 25)
    assert next_round(held, line=LINE, committed={at(1, 20)}, wish=last, proving={at(2, 30)}) == at(1, 25)
    assert next_round(held, line=LINE, committed={at(1, 20)}, wish=last, proving=proving, failed=proving) == at(1, 25)


def test_a_failed_round_is_not_tried_again_and_blocks_nothing() -> None:
    """A-KEEP-5: a drain that failed is forgotten; later and earlier steps are taken."""
    held = {at(1, 30): 30, at(1, 20): 20}
    assert next_round(held, line=LINE, committed={at(1, 10)}, wish=NONE, failed={at(1, 30)}) == at(1, 20)


def test_orphans_are_neither_drained_nor_counted() -> None:
    """An orphan's commit does not make the lineage's own steps look old (A3, A-KEEP-3)."""
    line = lineage(history(None, at(1, 10)))
    held = {at(1, 90): 90, at(2, 20): 20}
    assert next_round(held, line=line, committed={at(1, 80)}, wish=NONE) == at(2, 20)


@given(
    st.dictionaries(st.integers(1, 9), st.integers(0, 9), max_size=5),
    st.sets(st.integers(1, 9)),
    st.sets(st.integers(1, 9)),
    st.sets(st.integers(1, 9)),
    st.booleans(),
)
def test_a_round_is_always_on_something_held_uncommitted_and_asked_for(
    held: dict[int, int], committed: set[int], failed: set[int], wanted: set[int], last: bool
) -> None:
    """Whatever is asked, the answer is a held, uncommitted, unfailed step, newer than all commits unless wished for."""

    def ids(steps: set[int]) -> set[StepId]:
        return {at(1, s) for s in steps}

    due = {at(1, s): min(c, s) for s, c in held.items()}
    found = next_round(due, line=LINE, committed=ids(committed), wish=Wish(ids(wanted), last), failed=ids(failed))
    if found is not None:
        assert found in due and found.step not in committed | failed
        assert found.step in wanted or found.step > max(committed, default=0)
