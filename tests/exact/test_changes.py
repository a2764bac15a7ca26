"""A model that is rebuilt while it trains: each evacuation finds what is there then, by the names it has then."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from hinan.trainer.capture import Capture


def three() -> nn.Module:
    model = nn.Module()
    model.a, model.b, model.c = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)
    model.register_parameter("late", None)
    return model


def broken_tie(model: Any) -> None:
    model.b.weight = model.a.weight
    model.c.weight = model.a.weight
    model.c.weight = nn.Parameter(torch.randn(2, 2))


CHANGES: dict[str, Callable[[Any], object]] = {
    "a layer replaced": lambda m: setattr(m, "b", nn.Linear(2, 2)),
    "layers swapped": lambda m: (setattr(m, "x", m.a), setattr(m, "a", m.b), setattr(m, "b", m.x), delattr(m, "x")),
    "a layer renamed": lambda m: m._modules.__setitem__("d", m._modules.pop("c")),
    "a layer under a second name": lambda m: setattr(m, "head", m.a),
    "a layer removed": lambda m: delattr(m, "c"),
    "a slot filled": lambda m: setattr(m, "late", nn.Parameter(torch.randn(3))),
    "a slot emptied": lambda m: setattr(m.a, "bias", None),
    "a parameter replaced": lambda m: setattr(m.a, "weight", nn.Parameter(torch.randn(2, 2))),
    "its data replaced": lambda m: setattr(m.a.weight, "data", torch.randn(2, 2)),
    "a tie made and another broken": broken_tie,
    "a buffer added": lambda m: m.b.register_buffer("seen", torch.ones(2)),
    "a parameter made a buffer": lambda m: m.c.register_buffer("bias", m.c._parameters.pop("bias").detach()),
    "a parametrization": lambda m: nn.utils.parametrizations.weight_norm(m.a),
    "assigned from a state dict": lambda m: m.load_state_dict(three().state_dict(), assign=True),
    "to another dtype": lambda m: m.double(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_evacuation_finds_what_is_there(change: str) -> None:
    """D7: storage, names and structure are read anew: a second walk sees what torch's own state_dict sees."""
    model = three()
    capture = Capture({"m": model})
    capture.take()
    CHANGES[change](model)
    found = capture.take().tensors
    live = model.state_dict(keep_vars=True)
    assert list(found) == [f"m.{name}" for name in live]
    assert all(found[f"m.{name}"].data_ptr() == tensor.data_ptr() for name, tensor in live.items())
    assert all(torch.equal(found[f"m.{name}"], tensor) for name, tensor in live.items())


def test_a_layer_at_the_address_of_one_that_is_gone() -> None:
    """D7: the interpreter gives a new layer the address of an old one: it is another layer all the same."""
    model = nn.Module()
    model.layer = nn.Identity()
    old = model.layer = nn.Linear(2, 2)
    address = id(old)
    capture = Capture({"m": model})
    capture.take()
    del old
    model.layer = None
    gc.collect()
    kept = []
    for _ in range(1000):
        kept.append(nn.Linear(2, 2))
        if id(kept[-1]) == address:
            break
    model.layer = kept[-1]
    assert torch.equal(capture.take().tensors["m.layer.weight"], model.layer.weight)
