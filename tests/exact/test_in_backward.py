"""Optimizer-in-backward: a dict of one optimizer per parameter, each stepped by a hook as its gradient arrives."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from hinan.core.errors import CaptureError, StructureError
from tests.exact.twins import Step, assert_resumes, evacuated, restored


def in_backward(by_name: bool = False) -> tuple[dict[str, Any], Step]:
    """A model whose optimizers step in `register_post_accumulate_grad_hook`; the dict's keys are the parameters."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Dropout(0.2), torch.nn.Linear(5, 2))
    optims = {p: torch.optim.Adam([p], lr=0.01 * (i + 1)) for i, p in enumerate(model.parameters())}

    def hook(parameter: torch.Tensor) -> None:
        optims[parameter].step()
        optims[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(hook)

    def step() -> torch.Tensor:
        loss = model(torch.randn(3, 4)).square().mean()
        loss.backward()
        return loss.detach()

    kept = {name: optims[p] for name, p in model.named_parameters()} if by_name else optims
    return {"model": model, "optims": kept}, step


@pytest.mark.parametrize("by_name", [False, True], ids=["by parameter", "by name"])
def test_optimizers_in_backward_go_on(by_name: bool) -> None:
    """One optimizer per parameter, keyed by the parameter itself (as torch's tutorial writes it) or by name."""
    assert_resumes(lambda: in_backward(by_name))


def test_parameters_as_keys_find_their_own_optimizer() -> None:
    """Keyed by the parameter's name, not by the order of the dict, which comes back, too."""
    (saved, step), (live, _) = in_backward(), in_backward()
    step()
    live["optims"] = dict(reversed(live["optims"].items()))
    optims = dict(live["optims"])
    restored(*evacuated(saved), live)
    assert [id(p) for p in live["optims"]] == [id(p) for p in live["model"].parameters()]
    assert all(live["optims"][p] is optim for p, optim in optims.items())  # the same objects
    for (name, p), (_, q) in zip(saved["model"].named_parameters(), live["model"].named_parameters(), strict=True):
        assert torch.equal(saved["optims"][p].state[p]["exp_avg"], live["optims"][q].state[q]["exp_avg"]), name
        assert saved["optims"][p].param_groups[0]["lr"] == live["optims"][q].param_groups[0]["lr"]


def test_messages_call_a_parameter_by_its_name(caplog: pytest.LogCaptureFixture) -> None:
    """A parameter's numbers are no name, and printing them would wait for its device."""
    (saved, step), (live, _) = in_backward(), in_backward()
    step()
    removed = saved["model"][0].bias
    saved["optims"] = {p: o for p, o in saved["optims"].items() if p is not removed}
    bias = live["model"][2].bias
    with caplog.at_level(logging.WARNING, "hinan"):
        restored(*evacuated(saved), live)
    assert "optims.model.0.bias was not saved; its value stays" in caplog.text
    live["optims"][bias] = torch.optim.SGD([live["model"][0].weight])
    with pytest.raises(StructureError, match=r"optims\.model\.2\.bias: group 0 differs in model\.0\.weight"):
        restored(*evacuated(saved), live)


def test_a_key_that_no_module_has_is_refused_by_path() -> None:
    """Nothing could find it again; other keys beside parameters stay as they are."""
    with pytest.raises(CaptureError, match=r"cfg\.scales .*shape \(3,\)"):
        evacuated({"cfg": {"scales": {torch.nn.Parameter(torch.ones(3)): 1}}})
    model = torch.nn.Linear(2, 1)
    live = torch.nn.Linear(2, 1)
    target = {"m": live, "d": {live.weight: 0, "n": 0}}
    restored(*evacuated({"m": model, "d": {model.weight: 7, "n": 8, 3: 9}}), target)
    assert target["d"] == {live.weight: 7, "n": 8, 3: 9}
    small = evacuated({"m": model, "d": {model.weight: 7}})
    with pytest.raises(StructureError, match=r"the parameter m\.weight as a key"):
        small[1]["state"].pop("m")
        restored(*small, {"d": {}})
