"""When an evacuation that is due waits for gradients to be used, and when it no longer does. Pure: no tensors, no clock."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import pairwise

import pytest

from hinan.trainer.evacuating.deferral import SHORTEST_PATIENCE_STEPS, Deferral, Pending

Look = Callable[[int], list[Pending]]
PATIENCE = SHORTEST_PATIENCE_STEPS


def pending(optimizer: str, idle: int, longest_gap: int = 4, *, zero: bool = False) -> Pending:
    return Pending(optimizer, idle, longest_gap, lambda: zero)


def windows(*ends: int, optimizer: str = "optim") -> Look:
    """An optimizer that steps at these boundaries, and whose gradients are cleared with each step."""

    def look(step: int) -> list[Pending]:
        past = [0, *(end for end in ends if end <= step)]
        gap = max((b - a for a, b in pairwise(past)), default=0)
        return [] if step == past[-1] else [pending(optimizer, step - past[-1], gap)]

    return look


def evacuated(look: Look, due: set[int], steps: int) -> list[int]:
    deferral = Deferral()
    return [s for s in range(1, steps) if deferral.decide(s, due=s in due, pending=lambda s=s: look(s))]  # type: ignore[misc]


def every(n: int, steps: int = 1000) -> set[int]:
    return set(range(n, steps, n))


def test_it_waits_for_the_end_of_the_window(caplog: pytest.LogCaptureFixture) -> None:
    """One evacuation for all that fell due in a window. Said once: step, optimizer and reason."""
    caplog.set_level(logging.INFO)
    assert evacuated(windows(4, 8, 12), {3, 6, 7, 9, 12}, 13) == [4, 8, 12]
    assert [r.getMessage() for r in caplog.records] == [
        "put off step=3 optimizer=optim why=its gradients wait for its next step, and gradients are not kept "
        "(none was seen yet)"
    ]
    assert [r.levelname for r in caplog.records] == ["INFO"]


def test_beside_a_step_of_the_same_iteration_no_boundary_is_better(caplog: pytest.LogCaptureFixture) -> None:
    """Zeroed in place: not a word. Left over by another backward: one warning for each optimizer."""
    looked: list[str] = []

    def look(step: int) -> list[Pending]:
        zeroed = Pending("zeroed", 0, 1, lambda: not looked.append("zeroed"))
        return [zeroed, Pending("discriminator", 0, 1, lambda: bool(looked.append("discriminator")))]

    assert evacuated(look, every(5), 21) == [5, 10, 15, 20]
    assert looked == ["zeroed", "discriminator"]  # once each
    assert caplog.text.count("gradients of discriminator that have changed after its step") == 1
    assert "zero_grad(set_to_none=True)" in caplog.text
    assert "zeroed" not in caplog.text


def test_one_that_accumulates_is_waited_for_beside_one_that_has_just_stepped() -> None:
    slow = windows(4, 8, 12, 16)
    assert evacuated(lambda s: [pending("fast", 0, 1, zero=True), *slow(s)], every(3), 17) == [4, 8, 12, 16]


def test_gradients_that_are_never_used_do_not_stop_evacuations(caplog: pytest.LogCaptureFixture) -> None:
    """An optimizer without a step for so long is not waited for any more, in the whole attempt, and is named once."""
    assert evacuated(lambda s: [pending("left", s, 0)], {10, 200, 210}, 300) == [PATIENCE + 1, 200, 210]
    assert caplog.text.count("gradients of left have waited for a step") == 1
    assert evacuated(lambda s: [pending("left", s + 500, 1)], {10, 200}, 300) == [10, 200]


def test_patience_is_twice_the_longest_gap_and_one() -> None:
    gap = PATIENCE
    assert evacuated(lambda s: [pending("left", s, gap)], {1}, 300) == [2 * gap + 2]


def test_others_are_still_waited_for_beside_leavings() -> None:
    """The one that has not stepped for too long must not make the windows of another pass for leavings."""
    window = windows(*range(4, 300, 4))
    found = evacuated(lambda s: [pending("left", s, 0), *window(s)], every(3, 300), 300)
    assert found[0] == PATIENCE + 4  # the first end of a window after the patience
    assert all(step % 4 == 0 for step in found)
    assert len(found) == (299 - PATIENCE) // 4


def test_a_loop_without_any_good_boundary_waits_in_vain_once(caplog: pytest.LogCaptureFixture) -> None:
    """Two that step by turns and whose gradients are each left over by the other's backward."""

    def turns(step: int) -> list[Pending]:
        return [pending("ab"[step % 2], 1, 2)]

    assert evacuated(turns, every(5), 200) == [5 + PATIENCE, *range(5 * (PATIENCE // 5 + 2), 200, 5)]
    assert caplog.text.count("have waited for a step") == 2  # once each

    def turns_until(step: int) -> list[Pending]:
        return turns(step) if step < 150 else [] if step % 4 == 0 else [pending("a", step % 4, 4)]

    assert evacuated(turns_until, every(5), 180)[-8:] == [140, 145, 150, 156, 160, 168, 172, 176]


def test_a_longer_accumulation_later_is_waited_for_too() -> None:
    """From 2 iterations to 12: no evacuation in the middle of one."""
    ends = (2, 4, 6, 8, 20, 32, 44, 56, 68, 80, 92)
    assert evacuated(windows(*ends), set(range(3, 90, 3)), 93) == [4, 6, 20, 32, 44, 56, 68, 80, 92]


def test_what_is_not_due_is_not_evacuated_and_nobody_is_asked() -> None:
    def never(_: int) -> list[Pending]:
        raise AssertionError("asked")

    assert evacuated(never, set(), 10) == []


def test_many_optimizers_are_not_all_named(caplog: pytest.LogCaptureFixture) -> None:
    evacuated(lambda _: [pending(f"optims.{i}", 0, 1) for i in range(9)], {1}, 2)
    assert "optims.0, optims.1, optims.2, optims.3 and 5 more that have" in caplog.text
