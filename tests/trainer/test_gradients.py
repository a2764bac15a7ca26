"""Which gradients a step has used, and which have come since."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

from hinan.trainer.evacuating import gate as gates
from hinan.trainer.evacuating.gate import Gate
from hinan.trainer.evacuating.gradients import SAMPLE, Gradients, are_zero, note
from hinan.trainer.state.capture import Capture


def made(count: int) -> tuple[list[nn.Parameter], torch.optim.Optimizer, Gradients]:
    """An optimizer of so many scalars that has stepped once, in iteration 1."""
    parameters = [nn.Parameter(torch.ones(())) for _ in range(count)]
    optimizer, gradients = torch.optim.SGD(parameters, lr=0.1), Gradients()
    gradients.learn({"o": optimizer}, ended=0)
    backward(parameters)
    gradients.stepped(["o"], optimizer, 1)
    return parameters, optimizer, gradients


def backward(parameters: list[nn.Parameter]) -> None:
    sum(p.square() for p in parameters).backward()  # type: ignore[union-attr]


def pending(gradients: Gradients, optimizer: torch.optim.Optimizer, ended: int = 1) -> list[tuple[int, int]]:
    """(idle, longest gap) of each that is pending."""
    return [(p.idle, p.longest_gap) for p in gradients.pending({"o": optimizer}, ended=ended)]


def test_a_gradient_is_pending_until_a_step_has_used_it() -> None:
    parameters, optimizer, gradients = made(2)
    assert pending(gradients, optimizer) == []
    backward(parameters)  # on top of the old ones
    assert pending(gradients, optimizer, ended=2) == [(1, 1)]
    assert pending(gradients, optimizer, ended=4) == [(3, 1)]
    gradients.stepped(["o"], optimizer, 5)
    backward(parameters)
    assert pending(gradients, optimizer, ended=5) == [(0, 4)]
    optimizer.zero_grad()
    assert pending(gradients, optimizer, ended=5) == []


def test_a_new_gradient_at_the_old_ones_address_is_new() -> None:
    """The allocator gives the next gradient the id of the last: what tells them apart must not be that."""
    parameters, optimizer, gradients = made(1)
    for _ in range(100):
        before = id(parameters[0].grad)
        parameters[0].grad = None
        parameters[0].grad = torch.ones(())
        if id(parameters[0].grad) == before:
            break
        gradients.stepped(["o"], optimizer, 1)
    else:
        pytest.skip("no gradient got the id of the one before")
    assert pending(gradients, optimizer) == [(0, 1)]


@pytest.mark.parametrize("count", [3, SAMPLE, 1000])
def test_a_backward_of_the_middle_alone_is_seen(count: int) -> None:
    """With more parameters than are noted, in every stretch that has one of them."""
    for first in range(0, count - 1, max(1, count // 10)):
        parameters, optimizer, gradients = made(count)
        backward(parameters[first : first + count // SAMPLE + 2])
        assert pending(gradients, optimizer) == [(0, 1)], first


def test_the_sample_is_bounded_and_has_both_ends() -> None:
    parameters, optimizer, _ = made(1000)
    noted = [parameter for parameter, _, _ in note(optimizer)]
    assert len(set(noted)) == SAMPLE
    assert noted[0] == id(parameters[0])
    assert noted[-1] == id(parameters[-1])


def test_where_no_gradient_was_noted_nothing_is_taken_for_used() -> None:
    """A step with gradients of a few among thousands, none of them in the sample."""
    parameters, optimizer, gradients = made(1000)
    optimizer.zero_grad()
    backward(parameters[1:2])
    gradients.stepped(["o"], optimizer, 2)
    assert pending(gradients, optimizer, ended=2) == [(0, 1)]


def test_a_gradient_where_the_step_had_none_is_pending() -> None:
    parameters, optimizer, gradients = made(3)
    parameters[1].grad = None
    gradients.stepped(["o"], optimizer, 2)
    backward(parameters[1:2])
    assert pending(gradients, optimizer, ended=2) == [(0, 1)]


def test_gradients_that_are_cleared_in_part_are_no_new_ones() -> None:
    parameters, optimizer, gradients = made(3)
    parameters[1].grad = None
    assert pending(gradients, optimizer) == []


def test_no_gradient_is_kept_alive() -> None:
    parameters, optimizer, _ = made(1)
    gradient = weakref.ref(parameters[0].grad)
    optimizer.zero_grad()
    gc.collect()
    assert gradient() is None


def test_sparse_gradients_are_told_apart_too() -> None:
    """They have no storage of their own; that of their values stands for it."""
    table, gradients = nn.Embedding(5, 3, sparse=True), Gradients()
    optimizer = torch.optim.SparseAdam(table.parameters())
    gradients.learn({"o": optimizer}, ended=0)
    for row in (1, 4):
        table(torch.tensor([row])).sum().backward()
        assert pending(gradients, optimizer, ended=row) != []
        gradients.stepped(["o"], optimizer, row)
        assert pending(gradients, optimizer, ended=row) == []
        optimizer.zero_grad()


def test_zeros_are_told_from_all_else() -> None:
    parameters, optimizer, _ = made(2)
    assert not are_zero(optimizer)
    optimizer.zero_grad(set_to_none=False)
    assert are_zero(optimizer)
    parameters[1].grad = torch.tensor(float("nan"))
    assert not are_zero(optimizer)
    table = nn.Embedding(5, 3, sparse=True)
    table(torch.tensor([1, 4])).sum().backward()
    sparse = torch.optim.SparseAdam(table.parameters())
    assert not are_zero(sparse)
    sparse.zero_grad(set_to_none=False)
    assert are_zero(sparse)


def test_distrust_does_not_hide_gradients_but_a_replayed_graph_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torn copy says nothing about gradients; a step that no hook sees leaves them all looking unused."""
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gate = Gate({"m": model, "o": optimizer})
    gate.learn(Capture({"m": model, "o": optimizer}).take())
    gate.at_boundary()
    model(torch.ones(4)).sum().backward()
    gate.distrust(["o"], "torn")
    assert [p.optimizer for p in gate.pending_gradients()] == ["o"]
    monkeypatch.setattr(gates, "_is_capturing", lambda: True)
    optimizer.step()
    monkeypatch.undo()
    model(torch.ones(4)).sum().backward()
    assert gate.pending_gradients() == []
    gate.close()


def test_iterations_are_those_of_this_attempt() -> None:
    """Counted from its first one, at whatever step it was resumed: no gap is as long as the run before."""
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gate = Gate({"m": model, "o": optimizer})
    for _ in range(2):
        model(torch.ones(4)).sum().backward()
        optimizer.step()
        gate.at_boundary()
    model(torch.ones(4)).sum().backward()
    gate.at_boundary()
    (found,) = gate.pending_gradients()
    assert (found.idle, found.longest_gap) == (1, 1)
    gate.close()
