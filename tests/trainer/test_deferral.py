"""When an evacuation that is due waits for gradients to be consumed, and when it no longer does."""

from __future__ import annotations

from hinan.trainer.deferral import UNKNOWN_GAP_STEPS, Deferral


def evacuated(pending: set[int], due: set[int], steps: int, longest_gap: int) -> list[int]:
    deferral = Deferral()
    return [
        step
        for step in range(1, steps)
        if deferral.decide(step, due=step in due, has_pending=lambda s=step: s in pending, longest_gap=longest_gap)  # type: ignore[misc]
    ]


def test_it_waits_for_the_next_boundary_without_them() -> None:
    assert evacuated({3, 5, 6, 7}, {3, 6, 9}, 12, 4) == [4, 8, 9]


def test_gradients_that_are_never_consumed_do_not_stop_evacuations() -> None:
    """It gives up after twice the longest gap that was seen, or a fixed number of steps, and never waits again."""
    always = set(range(1000))
    assert evacuated(always, {10, 40, 50}, 60, 4) == [18, 40, 50]
    assert evacuated(always, {10, 200}, 300, 0) == [10 + UNKNOWN_GAP_STEPS, 200]


def test_what_is_not_due_is_not_evacuated() -> None:
    assert evacuated({1, 2}, set(), 10, 4) == []
