"""A model that is rebuilt while it trains: each evacuation finds what is there then, by the names it has then."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from hinan.core.errors import CaptureError
from hinan.trainer.state.capture import Capture


def three() -> nn.Module:
    model = nn.Module()
    model.a, model.b, model.c = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)
    model.register_parameter("late", None)
    model.register_buffer("kept", torch.zeros(2))
    model.register_buffer("unkept", torch.zeros(2), persistent=False)
    return model


def broken_tie(model: Any) -> None:
    model.b.weight = model.a.weight
    model.c.weight = model.a.weight
    model.c.weight = nn.Parameter(torch.randn(2, 2))


class Doubled(nn.Module):
    """A class that an object gets while it trains: wrapping libraries do that."""

    def state_dict(self, *arguments: Any, **options: Any) -> Any:
        return super().state_dict(*arguments, **options) | {"twice": self.get_parameter("a.weight") * 2}

    def load_state_dict(self, entries: Any) -> None:  # type: ignore[override]
        raise NotImplementedError


def save_more(layer: Any) -> None:
    save = layer._save_to_state_dict

    def patched(entries: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        save(entries, prefix, keep_vars)
        entries[f"{prefix}more"] = layer.weight + 1

    layer._save_to_state_dict = patched
    layer.register_load_state_dict_pre_hook(lambda layer, entries, prefix, *_: entries.pop(f"{prefix}more"))


def other_hook(model: nn.Module) -> None:
    model._state_dict_hooks.clear()
    model.register_state_dict_post_hook(lambda m, entries, prefix, about: entries.__delitem__("c.bias"))


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
    "a buffer no longer saved": lambda m: m.register_buffer("kept", torch.ones(2), persistent=False),
    "a buffer saved now": lambda m: m.register_buffer("unkept", torch.ones(2)),
    "another class": lambda m: setattr(m, "__class__", Doubled),
    "a child that saves more": lambda m: save_more(m.b),
    "a hook that drops": other_hook,
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
    held = dict([*model.named_parameters(), *model.named_buffers()]).keys()
    assert all(found[f"m.{n}"].data_ptr() == tensor.data_ptr() for n, tensor in live.items() if n in held)
    assert all(torch.equal(found[f"m.{name}"], tensor) for name, tensor in live.items())


def test_a_class_that_begins_to_save_itself() -> None:
    class Late(nn.Linear):
        def load_state_dict(self, entries: Any) -> None:  # type: ignore[override]
            raise NotImplementedError

    def more(module: nn.Module, *arguments: Any, **options: Any) -> Any:
        return nn.Module.state_dict(module, *arguments, **options) | {"more": torch.ones(1)}

    capture = Capture({"m": Late(2, 2)})
    capture.take()
    Late.state_dict = more  # type: ignore[assignment, method-assign]
    assert "m.more" in capture.take().tensors


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


def first(optimizer: torch.optim.Optimizer) -> tuple[Any, dict[str, Any]]:
    return next(iter(optimizer.state.items()))


def without_the_first(optimizer: torch.optim.Optimizer) -> None:
    del optimizer.state[first(optimizer)[0]]


def last_in_front(optimizer: torch.optim.Optimizer) -> None:
    key = list(optimizer.state)[-1]
    rest = dict(optimizer.state)
    optimizer.state.clear()
    optimizer.state.update({key: rest.pop(key), **rest})


def a_member_in_front(optimizer: torch.optim.Optimizer) -> None:
    key, entry = first(optimizer)
    optimizer.state[key] = {"exp_avg_sq": entry["exp_avg_sq"], **entry}


MOMENTS: dict[str, Callable[[torch.optim.Optimizer], object]] = {
    "nothing": lambda o: None,
    "a moment replaced": lambda o: first(o)[1].update(exp_avg=torch.full((2, 2), 7.0)),
    "a moment of another dtype": lambda o: first(o)[1].update(exp_avg=torch.full((2, 2), 7.0, dtype=torch.float64)),
    "a moment transposed": lambda o: first(o)[1].update(exp_avg=torch.arange(4.0).view(2, 2).T),
    "a step count as a number": lambda o: first(o)[1].update(step=3.0),
    "a list beside": lambda o: first(o)[1].update(more=[torch.ones(1), 2]),
    "a member more": lambda o: first(o)[1].update(more=torch.ones(1)),
    "a member gone": lambda o: first(o)[1].pop("step"),
    "another order of members": a_member_in_front,
    "another order of parameters": last_in_front,
    "a parameter without its entry": without_the_first,
    "no entries": lambda o: o.state.clear(),
    "an entry of the optimizer's own": lambda o: o.state.update({"global": {"step": torch.ones(())}}),
    "an entry that is a list": lambda o: o.state.update({first(o)[0]: [torch.ones(2)]}),
    "a group more": lambda o: o.add_param_group({"params": [nn.Parameter(torch.ones(3))]}),
}


def known_moments() -> tuple[nn.Module, torch.optim.Optimizer, Capture]:
    model = three()
    optimizer = torch.optim.AdamW(p for p in model.parameters() if p is not None)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    capture = Capture({"m": model, "o": optimizer})
    capture.take()
    capture.take()
    return model, optimizer, capture


@pytest.mark.parametrize("change", MOMENTS)
def test_each_evacuation_finds_the_moments_that_are_there(change: str) -> None:
    """D7, D8: moments that were as always are looked at in one go; whatever changes, a walk that knows them finds what a
    new one finds, and the one after it, too."""
    model, optimizer, capture = known_moments()
    MOMENTS[change](optimizer)
    wanted = Capture({"m": model, "o": optimizer}).take()
    for _ in range(2):
        found = capture.take()
        assert found.values == wanted.values
        assert list(found.tensors) == list(wanted.tensors)
        assert all(found.tensors[name] is tensor for name, tensor in wanted.tensors.items())
        assert (found.gates, found.parameters) == (wanted.gates, wanted.parameters)


@pytest.mark.parametrize(
    ("moment", "why"),
    [
        (torch.ones(2, 2).to_sparse(), r"a torch\.sparse_coo tensor"),
        (torch.ones(2, 2, device="meta"), "on the meta device"),
    ],
    ids=["sparse", "meta"],
)
def test_a_moment_that_cannot_be_kept_any_more_is_refused(moment: torch.Tensor, why: str) -> None:
    """A-SHAPE-4: also where all moments are looked at in one go."""
    _, optimizer, capture = known_moments()
    first(optimizer)[1].update(exp_avg=moment)
    with pytest.raises(CaptureError, match=f"exp_avg is {why}"):
        capture.take()
