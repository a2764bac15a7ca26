"""The RAM budget: fits, shrinks, or is refused with the sum."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hinan.core.budget import FEWEST_SLOTS, MARGIN_BYTES, SLOTS_A_RANK, Need, slots_that_fit
from hinan.core.errors import BudgetError

GIB = 1 << 30


def test_three_slots_then_two_then_a_refusal() -> None:
    """C5: three where they fit, two where not, never one."""
    need = Need(ranks=2, slots=SLOTS_A_RANK, image_bytes=GIB)
    assert slots_that_fit(need, {"/dev/shm": 6 * GIB + MARGIN_BYTES}) == 3
    assert slots_that_fit(need, {"/dev/shm": 6 * GIB + MARGIN_BYTES - 1}) == 2
    with pytest.raises(BudgetError):
        slots_that_fit(need, {"/dev/shm": 4 * GIB + MARGIN_BYTES - 1})


def test_the_refusal_holds_the_sum_the_limit_and_ways_out() -> None:
    """The message can be acted on; the evidence can be read by programs."""
    with pytest.raises(BudgetError, match=r"2 ranks x 2 slots x 1.0 GiB = 4.0 GiB, but cgroup /job leaves") as caught:
        slots_that_fit(Need(2, 3, GIB), {"/dev/shm": 9 * GIB, "cgroup /job": GIB})
    assert caught.value.evidence["limit"] == "cgroup /job"
    assert "Ways out" in str(caught.value)


def test_what_older_slots_hold_is_given_back() -> None:
    """A restarted attempt counts its predecessor's slots as room."""
    need = Need(1, 2, GIB)
    with pytest.raises(BudgetError):
        slots_that_fit(need, {"/dev/shm": GIB})
    assert slots_that_fit(need, {"/dev/shm": GIB + MARGIN_BYTES}, held_bytes=GIB) == 2


@given(st.integers(1, 8), st.integers(2, 6), st.integers(1, 1 << 36), st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_what_is_granted_fits_every_limit(ranks: int, slots: int, image: int, a: int, b: int) -> None:
    """Never more than any limit leaves, never more than asked, never fewer than two."""
    try:
        found = slots_that_fit(Need(ranks, slots, image), {"a": a, "b": b})
    except BudgetError:
        assert ranks * FEWEST_SLOTS * image > min(a, b) - MARGIN_BYTES
    else:
        assert FEWEST_SLOTS <= found <= slots
        assert ranks * found * image + MARGIN_BYTES <= min(a, b)
        assert found == slots or ranks * (found + 1) * image > min(a, b) - MARGIN_BYTES
