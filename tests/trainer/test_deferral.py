"""When an evacuation that is due waits for gradients to be consumed, and when it no longer does."""

from __future__ import annotations

import pytest

from hinan.trainer.deferral import SHORTEST_PATIENCE_STEPS, Deferral


def evacuated(pending: set[int], due: set[int], steps: int, longest_gap: int = 4) -> list[int]:
    deferral = Deferral()
    return [
        step
        for step in range(1, steps)
        if deferral.decide(
            step,
            due=step in due,
            pending=lambda s=step: frozenset({"optim"} if s in pending else ()),  # type: ignore[misc]
            longest_gap=longest_gap,
        )
    ]


def test_it_waits_for_the_next_boundary_without_them() -> None:
    assert evacuated({3, 5, 6, 7}, {3, 6, 9}, 12) == [4, 8, 9]


def test_gradients_that_are_never_consumed_do_not_stop_evacuations(caplog: pytest.LogCaptureFixture) -> None:
    """It gives up with a warning, and takes them for leavings, until they are gone once."""
    patience = SHORTEST_PATIENCE_STEPS
    assert evacuated(set(range(1000)), {10, 200, 210}, 300) == [10 + patience, 200, 210]
    assert caplog.text.count("gradients of optim have not been used") == 1
    assert evacuated(set(range(1000)), {10}, 300, longest_gap=patience) == [10 + 2 * patience]
    gone_once = set(range(1000)) - {205}
    assert evacuated(gone_once, {10, 200, 210}, 300) == [10 + patience, 200, 210 + patience]


def test_a_longer_accumulation_later_is_waited_for_too() -> None:
    """From 2 iterations to 12: no evacuation in the middle of one."""
    pending = set(range(1, 100)) - {2, 4, 6, 8, 20, 32, 44, 56, 68, 80, 92}
    assert evacuated(pending, set(range(3, 90, 3)), 93, longest_gap=2) == [4, 6, 20, 32, 44, 56, 68, 80, 92]


def test_what_is_not_due_is_not_evacuated() -> None:
    assert evacuated({1, 2}, set(), 10) == []
