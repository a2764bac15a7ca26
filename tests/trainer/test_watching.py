"""What many tensors were and are: named if they moved, and looked at without work for the collector of garbage."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch

from hinan.trainer.evacuating.watching import Watched
from hinan.trainer.state.layout import Planner

MANY = 5_000


def test_tensors_that_are_not_counted_hide_none_that_are() -> None:
    """Those made in inference mode have no count; the others are looked at all the same."""
    with torch.inference_mode():
        uncounted = torch.zeros(2)
    tensors = {"a": torch.zeros(2), "uncounted": uncounted, "b": torch.zeros(2)}
    watched = Watched(tensors.items())
    assert watched.moved() is None
    tensors["b"].add_(1)
    assert watched.moved() == "b"
    tensors["a"].add_(1)
    assert watched.moved() == "a"


@contextmanager
def collections() -> Iterator[list[int]]:
    """Generations of the collections of garbage meanwhile."""
    found: list[int] = []

    def note(phase: str, about: dict[str, int]) -> None:
        if phase == "stop":
            found.append(about["generation"])

    gc.callbacks.append(note)
    try:
        yield found
    finally:
        gc.callbacks.remove(note)


@pytest.mark.parametrize("look", ["watch", "plan"])
def test_looking_at_many_tensors_makes_no_collection(look: str) -> None:
    """Each container that lives for the length of a look counts: 700 of them begin one, and every hundredth of those walks
    through all that torch has, for a tenth of a second of the trainer's."""
    tensors = {f"t{i}": torch.zeros(1) for i in range(MANY)}
    planner = Planner()
    planner.plan(tensors)
    kept: list[Watched] = []
    looks: dict[str, Callable[[], object]] = {
        "watch": lambda: kept.append(Watched(tensors.items())) or kept[-1].moved(),  # type: ignore[func-returns-value]
        "plan": lambda: planner.plan(tensors),
    }
    with collections() as found:
        looks[look]()
    assert len(found) <= 1
