"""The RAM budget: fits, shrinks, or is refused with the sum."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hinan.core.budget import FEWEST_SLOTS, MARGIN_BYTES, RAM_BUDGET, SLOTS_A_RANK, Limit, Need, slots_that_fit
from hinan.core.errors import BudgetError

GIB = 1 << 30


def test_three_slots_then_two_then_a_refusal() -> None:
    """C5: three where they fit, two where not, never one."""
    need = Need(ranks=2, slots=SLOTS_A_RANK, image_bytes=GIB)
    assert slots_that_fit(need, {"/dev/shm": Limit(6 * GIB + MARGIN_BYTES)}) == 3
    assert slots_that_fit(need, {"/dev/shm": Limit(6 * GIB + MARGIN_BYTES - 1)}) == 2
    with pytest.raises(BudgetError):
        slots_that_fit(need, {"/dev/shm": Limit(4 * GIB + MARGIN_BYTES - 1)})


def test_the_refusal_holds_the_sum_the_limit_and_ways_out() -> None:
    """The message can be acted on; the evidence can be read by programs."""
    with pytest.raises(BudgetError, match=r"2 ranks x 2 slots x 1.0 GiB = 4.0 GiB, but cgroup /job leaves") as caught:
        slots_that_fit(Need(2, 3, GIB), {"/dev/shm": Limit(9 * GIB), "cgroup /job": Limit(GIB)})
    assert caught.value.evidence["limit"] == "cgroup /job"
    assert "Ways out" in str(caught.value)


def test_what_older_slots_hold_is_given_back() -> None:
    """A restarted attempt counts its predecessor's slots as room."""
    need = Need(1, 2, GIB)
    with pytest.raises(BudgetError):
        slots_that_fit(need, {"/dev/shm": Limit(GIB)})
    assert slots_that_fit(need, {"/dev/shm": Limit(GIB + MARGIN_BYTES)}, held_bytes=GIB) == 2


@given(st.integers(1, 8), st.integers(2, 6), st.integers(1, 1 << 36), st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_what_is_granted_fits_every_limit(ranks: int, slots: int, image: int, a: int, b: int) -> None:
    """Never more than any limit leaves, never more than asked, never fewer than two."""
    try:
        found = slots_that_fit(Need(ranks, slots, image), {"a": Limit(a), "b": Limit(b)})
    except BudgetError:
        assert ranks * FEWEST_SLOTS * image > min(a, b) - MARGIN_BYTES
    else:
        assert FEWEST_SLOTS <= found <= slots
        assert ranks * found * image + MARGIN_BYTES <= min(a, b)
        assert found == slots or ranks * (found + 1) * image > min(a, b) - MARGIN_BYTES


def test_memory_of_processes_counts_against_memory_and_not_against_files() -> None:
    """The first step's gradients and the agent take of the cgroup's room, not of the tmpfs's or of the user's budget."""
    need = Need(1, 2, GIB, beside=(("gradients", 3 * GIB), ("agent", GIB)))
    files = Limit(2 * GIB + MARGIN_BYTES, files_only=True)
    fits = {"/dev/shm": files, RAM_BUDGET: files, "cgroup /job": Limit(6 * GIB + MARGIN_BYTES)}
    assert slots_that_fit(need, fits) == 2
    with pytest.raises(BudgetError) as caught:
        slots_that_fit(need, fits | {"cgroup /job": Limit(6 * GIB + MARGIN_BYTES - 1, 24 * GIB)}, held_bytes=0)
    assert caught.value.evidence["limit"] == "cgroup /job"


def test_the_sum_is_shown_line_by_line() -> None:
    """Every part with its bytes, both sums, the limit by name and size, notes, and three ways out that fit the limit."""
    need = Need(2, 3, GIB, (("gradients", GIB),), " on node a (ranks 0-1)", ("at least: Mine is not known",))
    with pytest.raises(BudgetError) as caught:
        slots_that_fit(need, {"cgroup /job": Limit(4 * GIB, 24 * GIB)}, held_bytes=GIB // 2)
    assert str(caught.value).splitlines() == [
        "the evacuated state does not fit in RAM on node a (ranks 0-1): 2 ranks x 2 slots x 1.0 GiB = 4.0 GiB, "
        "but cgroup /job leaves 3.4 GiB.",
        "      4.0 GiB  2 ranks x 2 slots x 1.0 GiB",
        "      1.0 GiB  gradients",
        "     64.0 MiB  margin",
        "      5.1 GiB  = needed",
        "      4.0 GiB  left by cgroup /job of its 24.0 GiB",
        "    512.0 MiB  held by older slots of this run, given back",
        "      4.5 GiB  = there",
        "  at least: Mine is not known",
        "Ways out:",
        "  more room: raise the memory limit of cgroup /job (tmpfs pages count against it, however large the mount is)",
        "  keep less: leave out of the state what can be recomputed",
        "  fewer ranks on this node",
    ]


@pytest.mark.parametrize(
    ("name", "limit", "way"),
    [
        ("/dev/shm", Limit(0, 1, files_only=True), "remount,size=SIZE /dev/shm"),
        (RAM_BUDGET, Limit(0, files_only=True), "a higher budget (ram=)"),
        ("MemAvailable", Limit(0, GIB), "a host with more"),
        ("cgroup /a", Limit(0, GIB), "raise the memory limit of cgroup /a"),
    ],
)
def test_the_way_to_more_room_is_that_of_the_limit(name: str, limit: Limit, way: str) -> None:
    """What must become larger is named, not what happens to be usual."""
    with pytest.raises(BudgetError) as caught:
        slots_that_fit(Need(1, 3, GIB), {name: limit})
    assert way in str(caught.value)
