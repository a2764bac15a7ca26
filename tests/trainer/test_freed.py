"""Tensors whose memory the loop has freed: whoever read at their address, or wrote there, would end the process."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from hinan.core.errors import CaptureError, StructureError
from hinan.trainer.evacuating.watching import Watched
from hinan.trainer.state.layout import Planner, has_its_bytes
from tests.trainer.helpers import evacuate, through


def freed(tensor: torch.Tensor, size_bytes: int = 0) -> torch.Tensor:
    tensor.untyped_storage().resize_(size_bytes)
    return tensor


@pytest.mark.parametrize(
    "make",
    [
        lambda: freed(torch.ones(4)),
        lambda: freed(torch.ones(4), 12),
        lambda: freed(torch.ones(8, 4).t(), 8 * 4 * 4 - 1),
        lambda: freed(torch.ones(8)[5:], 16),
        lambda: freed(torch.ones(())),
        lambda: freed(torch.ones(4, dtype=torch.complex64).conj()),
    ],
)
def test_what_has_been_freed_is_refused_by_path(make: Callable[[], torch.Tensor]) -> None:
    with pytest.raises(CaptureError, match=r"n\.x of shape .* was freed or cut by resize_"):
        evacuate({"n": {"x": make()}})


@pytest.mark.parametrize(
    "tensor", [torch.ones(0), torch.ones(8)[8:], torch.ones(8)[5:], torch.ones(3, 4).t(), torch.ones(())]
)
def test_what_is_there_is_there(tensor: torch.Tensor) -> None:
    assert has_its_bytes(tensor)


def test_freed_between_two_evacuations() -> None:
    """The plan of the first is not used again."""
    state, planner = {"x": torch.ones(1000)}, Planner()
    planner.plan(state)
    freed(state["x"])
    with pytest.raises(CaptureError, match="x of shape"):
        planner.plan(state)
    state["x"].untyped_storage().resize_(4000)
    assert planner.plan(state).image_bytes > 4000


def test_freed_while_it_is_watched_counts_as_moved() -> None:
    tensor = torch.ones(1000)
    watched = Watched([("x", tensor)], exactly=True)
    assert watched.moved() is None
    freed(tensor)
    assert watched.moved() == "x"


def test_nothing_is_written_to_what_has_been_freed() -> None:
    live = {"kept": torch.zeros(2), "x": freed(torch.zeros(4))}
    with pytest.raises(StructureError, match="x has a storage of 0 bytes"):
        through({"kept": torch.ones(2), "x": torch.ones(4)}, live)
    assert live["kept"].eq(0).all()
