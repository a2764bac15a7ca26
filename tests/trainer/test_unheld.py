"""What is remembered of tensors neither keeps their memory nor stands in the way of torch."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from hinan.trainer.evacuating.gate import Gate
from hinan.trainer.evacuating.unheld import Unheld, is_of, trace
from hinan.trainer.state.capture import Capture


@pytest.fixture
def swapping() -> Iterator[None]:
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(before)


def known() -> tuple[nn.Module, torch.optim.Optimizer, Gate, Capture]:
    """A model that was trained under a gate which still has to see that its tensors stay, with gradients of a step."""
    model = nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    state = {"m": model, "o": optimizer}
    gate, capture = Gate(state), Capture(state)
    for _ in range(2):
        model(torch.ones(4)).sum().backward()
        optimizer.step()
        gate.at_boundary()
        gate.learn(capture.take())
    assert gate._gated["o"], "nothing is remembered, and nothing tested"
    return model, optimizer, gate, capture


def test_a_content_is_known_until_another_one_has_come() -> None:
    tensor = torch.ones(3)
    traced = trace(tensor)
    assert is_of(tensor, traced)
    assert is_of(tensor.detach(), traced)
    assert not is_of(torch.ones(3), traced)
    tensor.data = torch.ones(3)
    assert not is_of(tensor, traced)
    assert not is_of(tensor, None)


def test_bytes_are_seen_again_as_long_as_they_are_there() -> None:
    tensor = torch.arange(12.0).reshape(3, 4).T[1:]
    unheld = Unheld.of(tensor)
    seen = unheld.alias()
    assert seen is not None
    assert torch.equal(seen, tensor)
    assert seen.data_ptr() == tensor.data_ptr()
    tensor.untyped_storage().resize_(8)
    assert unheld.alias() is None
    assert tensor.untyped_storage().nbytes() == 8
    del tensor, seen
    gc.collect()
    assert unheld.alias() is None


def test_parameters_can_be_swapped(swapping: None) -> None:
    """torch refuses to swap what has a weak reference; `m.to()` by setting swaps parameters and gradients."""
    model, _, gate, capture = known()
    model.to(torch.bfloat16)
    assert model.weight.dtype == model.weight.grad.dtype == torch.bfloat16
    torch.utils.swap_tensors(model.bias, nn.Parameter(torch.full((4,), 7.0, dtype=torch.bfloat16)))
    gate.probe()
    assert torch.equal(capture.take().tensors["m.bias"], torch.full((4,), 7.0, dtype=torch.bfloat16))
    gate.at_boundary()
    gate.close()


def test_what_was_swapped_away_is_no_longer_what_was_used(swapping: None) -> None:
    """A gradient that was exchanged for another is one that no step has used."""
    model, _, gate, _ = known()
    assert gate.pending_gradients() == []
    model.weight.grad, gradient = None, model.weight.grad
    torch.utils.swap_tensors(gradient, torch.ones(4, 4))
    model.weight.grad = gradient
    assert [p.optimizer for p in gate.pending_gradients()] == ["o"]
    gate.close()


def test_nothing_that_is_gone_is_kept(swapping: None) -> None:
    """Parameters, moments and gradients of a model that is dropped between two evacuations."""
    model, optimizer, gate, _ = known()
    moments = [m for entry in optimizer.state.values() for m in entry.values()]
    gone = [weakref.ref(t.untyped_storage()) for p in model.parameters() for t in (p, p.grad)]
    gone += [weakref.ref(m.untyped_storage()) for m in moments]
    optimizer.param_groups[0]["params"].clear()
    optimizer.state.clear()
    del moments
    for name in ("weight", "bias"):
        setattr(model, name, nn.Parameter(torch.zeros(4)))
    gc.collect()
    assert [ref() for ref in gone] == [None] * len(gone)
    gate.probe()
    gate.close()


def test_a_parameter_is_watched_in_the_memory_that_it_has() -> None:
    """It got another storage after it was captured: what is written there before its gate is seen, although uncounted."""
    model, optimizer, gate, _ = known()
    model.weight.data = model.weight.data.clone()
    gate.probe()
    model.weight.data.add_(1)
    optimizer.step()
    assert "m.weight is changed" in gate.why_not("o")
    gate.close()
