"""Long work is shared by two threads, and gives what one would have given."""

from __future__ import annotations

import threading
from itertools import chain

import pytest
import torch

from hinan.trainer.evacuating.watching import Watched, bits, bits_of_all
from hinan.trainer.ports import halves


@pytest.mark.parametrize("sizes", [[], [0], [7], [1, 2, 3, 4], [100, 1, 1], [1, 1, 100], [5, 0, 0, 5]])
@pytest.mark.parametrize("worth", [1, 1 << 30])
def test_all_is_done_once_and_in_order(sizes: list[int], worth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halves, "WORTH_A_THREAD_BYTES", worth)
    threads: set[int] = set()
    parts = halves.in_halves(sizes, lambda size: size, lambda some: (threads.add(threading.get_ident()), list(some))[1])
    assert [*chain(*parts)] == sizes
    assert len(threads) == len(parts) == (2 if sum(sizes) >= worth else 1)


def test_what_fails_in_the_other_half_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halves, "WORTH_A_THREAD_BYTES", 1)
    here = threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        halves.in_halves([1, 1], lambda size: size, lambda some: 1 // (threading.get_ident() == here))


def test_tensors_are_watched_in_two_threads_as_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them, in whichever half, is seen to change, and named."""
    tensors = [(str(i), torch.randn(n)) for i, n in enumerate((5, 1, 300, 2, 40))]
    expected = [bits(tensor) for _, tensor in tensors]
    monkeypatch.setattr(halves, "WORTH_A_THREAD_BYTES", 1)
    assert bits_of_all([tensor for _, tensor in tensors]) == expected
    for name, tensor in tensors:
        watched = Watched(tensors, exactly=True)
        assert watched.moved() is None
        tensor.data.add_(1)
        assert watched.moved() == name
