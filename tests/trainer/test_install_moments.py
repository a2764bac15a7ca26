"""Moments of optimizers: written where they fit, replaced where they do not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hinan.trainer.restoring.install import Matcher
from tests.trainer.helpers import bits, evacuate, saved_tensors, through, trained


def same_optimizer(a: torch.optim.Optimizer, b: torch.optim.Optimizer) -> None:
    """State by parameter position, and options, are bit-equal with equal dtypes and shapes."""
    for p, q in zip(a.param_groups[0]["params"], b.param_groups[0]["params"], strict=True):
        assert list(a.state[p]) == list(b.state[q])
        for name, value in a.state[p].items():
            other = b.state[q][name]
            if isinstance(value, torch.Tensor):
                assert (value.dtype, value.shape, value.device) == (other.dtype, other.shape, other.device)
                assert bits(value) == bits(other)
            else:
                assert value == other
    options = [{k: v for k, v in g.param_groups[0].items() if k != "params"} for g in (a, b)]
    assert options[0] == options[1]


def test_a_fresh_optimizer_gets_its_moments() -> None:
    """A-OPT-6: an untouched AdamW takes moments and step as they were saved, 0-dim float32 steps included (A-OPT-5)."""
    saved, live = trained(), trained(steps=0)
    through(saved, live)
    same_optimizer(saved["optim"], live["optim"])
    for name, tensor in saved["model"].state_dict().items():
        assert bits(live["model"].state_dict()[name]) == bits(tensor)


def test_moments_keep_their_own_dtype() -> None:
    """D8: float32 moments of bfloat16 parameters are not cast to bfloat16."""

    def make() -> dict[str, Any]:
        p = torch.nn.Parameter(torch.randn(4).bfloat16())
        return {"p": [p], "optim": torch.optim.AdamW([p])}

    saved, live = make(), make()
    entry = saved["optim"].state[saved["p"][0]]
    entry.update(step=torch.tensor(2.0), exp_avg=torch.randn(4), exp_avg_sq=torch.rand(4))
    through(saved, live)
    found = live["optim"].state[live["p"][0]]
    assert found["exp_avg"].dtype == torch.float32
    assert bits(found["exp_avg"]) == bits(entry["exp_avg"])


def test_partly_stepped_and_top_level_optimizer_state() -> None:
    """A-OPT-1, A-OPT-7: parameters without state stay without; state under a plain key, ints and None survive."""
    model = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)])
    optim = torch.optim.Adam(model.parameters())
    model[0](torch.ones(1, 2)).sum().backward()
    optim.step()
    optim.state["k"] = torch.tensor(7)
    optim.state[model[0].weight]["note"] = None
    live_model = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)])
    live = torch.optim.Adam(live_model.parameters())
    through({"m": model, "o": optim}, {"m": live_model, "o": live})
    assert int(live.state["k"]) == 7
    assert live.state[live_model[0].weight]["note"] is None
    assert set(live.state) == {live_model[0].weight, live_model[0].bias, "k"}


def moments(state: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors of an optimizer's state."""
    return [value for entry in state["optim"].state.values() for value in entry.values()]


def test_moments_that_fit_are_written_in_place() -> None:
    """A live optimizer keeps its tensors, with the saved bits in them; nothing is written before the writes are called."""
    saved, live = trained(), trained(steps=1)
    mine, before = moments(live), [bits(m) for m in moments(live)]
    image, small, _ = evacuate(saved)
    writes = Matcher(saved_tensors(image), live).match(small["state"], live)
    assert [bits(m) for m in mine] == before
    for write in writes:
        write()
    assert all(a is b for a, b in zip(moments(live), mine, strict=True))
    same_optimizer(saved["optim"], live["optim"])


@pytest.mark.parametrize("kind", ["dtype", "shape", "strided", "part", "shared", "captured", "parameter", "subclass"])
def test_a_moment_that_does_not_fit_or_is_not_its_own_is_replaced(kind: str) -> None:
    """Another dtype, shape or layout, a part of a larger storage, one shared with another moment, a captured tensor or the
    parameter itself: the live tensor stays as it is, and the optimizer gets a new one."""
    saved, live = trained(), trained(steps=1)
    weight = live["model"][0].weight
    entry = live["optim"].state[weight]
    other: Any = torch.full_like(weight, 7.0)
    match kind:
        case "dtype":
            other = other.double()
        case "shape":
            other = other[:2].clone()
        case "strided":
            other = other.T.contiguous().T
        case "part":
            other = torch.full((3, *weight.shape), 7.0)[1]
        case "shared":
            live["optim"].state[live["model"][2].weight]["exp_avg_sq"] = other[:2]
        case "captured":
            saved["more"], live["more"] = torch.full_like(weight, 3.0), other
        case "parameter":
            other = weight.detach()
        case "subclass":
            other = torch.nn.Parameter(other, requires_grad=False)
    entry["exp_avg"] = other
    through(saved, live)
    assert live["optim"].state[weight]["exp_avg"] is not other
    same_optimizer(saved["optim"], live["optim"])
    expected = {"captured": saved.get("more"), "parameter": saved["model"][0].weight}.get(kind, torch.full_like(other, 7.0))
    assert bits(other) == bits(expected)


def test_a_moment_that_is_a_parameter_nobody_captured_is_replaced() -> None:
    """An optimizer whose parameters are in no module: its moments never write into them."""
    p, q = torch.nn.Parameter(torch.full((3,), 1.0)), torch.nn.Parameter(torch.full((3,), 2.0))
    saved, live = torch.optim.SGD([p], momentum=0.9), torch.optim.SGD([q], momentum=0.9)
    saved.state[p]["momentum_buffer"] = torch.full((3,), 5.0)
    live.state[q]["momentum_buffer"] = q.detach()
    through({"optim": saved}, {"optim": live})
    assert q.tolist() == [2.0] * 3
    assert live.state[q]["momentum_buffer"].tolist() == [5.0] * 3
