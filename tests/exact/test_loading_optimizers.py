"""Optimizers with state that only their own state_dict() knows, or with hooks on it, go on bit for bit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from hinan.core.errors import CaptureError, StructureError
from hinan.formats.gating import gating
from hinan.trainer.attempt.forecast import forecast
from hinan.trainer.state.capture import Capture
from hinan.trainer.state.loading_optimizers import is_plain
from tests.exact.twins import Step, assert_resumes
from tests.trainer.helpers import evacuate, through

Parts = dict[str, Any]


class Decays(torch.optim.SGD):
    """A factor beside `.state`, which its overrides keep."""

    k = 1.0

    def state_dict(self) -> Parts:
        return super().state_dict() | {"k": self.k}

    def load_state_dict(self, state_dict: Parts) -> None:
        self.k = state_dict["k"]
        super().load_state_dict({name: v for name, v in state_dict.items() if name != "k"})

    def step(self, closure: Any = None) -> Any:
        self.param_groups[0]["lr"] = 0.1 * self.k
        self.k *= 0.7
        return super().step(closure)


class Derives(torch.optim.SGD):
    """Something derived from its groups, made again whenever torch's own load_state_dict fills it."""

    def __setstate__(self, state: Parts) -> None:
        super().__setstate__(state)
        self.decay = 1 - self.param_groups[0]["weight_decay"]

    def step(self, closure: Any = None) -> Any:
        if not hasattr(self, "decay"):
            self.decay = 1.0
        with torch.no_grad():
            for p in self.param_groups[0]["params"]:
                p.mul_(self.decay)
        self.param_groups[0]["weight_decay"] += 0.01
        self.decay = 1 - self.param_groups[0]["weight_decay"]
        return super().step(closure)


class Lookahead(torch.optim.Optimizer):
    """Shares the groups of an optimizer inside; slow weights in a defaultdict by parameter, as published ones have it."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner, self.n = inner, 0
        self.param_groups, self.defaults, self.state = inner.param_groups, inner.defaults, defaultdict(dict)
        for p in (p for group in self.param_groups for p in group["params"]):
            self.state[p]["slow"] = p.detach().float().clone()

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.inner.zero_grad(set_to_none)

    def state_dict(self) -> Parts:
        return {"slow": self.state, "inner": self.inner.state_dict(), "n": self.n}

    def load_state_dict(self, state_dict: Parts) -> None:
        self.state, self.n = state_dict["slow"], state_dict["n"]
        self.inner.load_state_dict(state_dict["inner"])

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        self.inner.step(closure)
        self.n += 1
        if self.n % 2 == 0:
            for p in (p for group in self.param_groups for p in group["params"]):
                p.copy_(self.state[p]["slow"].lerp_(p.float(), 0.5))


class Wide(torch.optim.SGD):
    """Moments wider than the parameters; torch's load_state_dict would round them."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for p in self.param_groups[0]["params"]:
            mean = self.state[p].setdefault("mean", torch.zeros(p.shape, dtype=torch.float64))
            p.sub_(mean.mul_(0.9).add_(p.grad).to(p.dtype), alpha=0.1)


def hooked(parameters: Any) -> torch.optim.Optimizer:
    """The dict is changed on its way out and back in, and something is derived when it was loaded."""
    optim = torch.optim.AdamW(parameters, lr=0.1)
    derived = {"decay": 0.0}

    def out(optimizer: Any, said: Parts) -> Parts:
        return {"renamed": said["state"], "param_groups": said["param_groups"], "decay": derived["decay"]}

    def back(optimizer: Any, said: Parts) -> Parts:
        derived["decay"] = said["decay"]
        return {"state": said["renamed"], "param_groups": said["param_groups"]}

    def count(optimizer: Any, *_: Any) -> None:
        derived["decay"] += 0.01
        optimizer.param_groups[0]["weight_decay"] = derived["decay"]

    optim.register_state_dict_post_hook(out)
    optim.register_load_state_dict_pre_hook(back)
    optim.register_step_pre_hook(count)
    return optim


def derives_in_a_hook(parameters: Any) -> torch.optim.Optimizer:
    """Only a hook behind loading."""
    optim = torch.optim.AdamW(parameters, lr=0.1)
    cache = {"lr": 0.1}

    def use(optimizer: Any, *_: Any) -> None:
        for p in optimizer.param_groups[0]["params"]:
            p.data.mul_(1 - 0.1 * cache["lr"])
        optimizer.param_groups[0]["lr"] *= 0.9
        cache["lr"] = optimizer.param_groups[0]["lr"]

    optim.register_step_post_hook(use)
    optim.register_load_state_dict_post_hook(lambda optimizer: cache.update(lr=optimizer.param_groups[0]["lr"]))
    return optim


MAKERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "overrides": lambda p: Decays(p, lr=0.1, momentum=0.9),
    "setstate": lambda p: Derives(p, lr=0.1),
    "lookahead": lambda p: Lookahead(torch.optim.Adam(p, lr=0.1)),
    "lookahead over wide moments": lambda p: Lookahead(Wide(p)),
    "hooks both ways": hooked,
    "hook behind loading": derives_in_a_hook,
}


def training(make: Callable[[Any], torch.optim.Optimizer], also: str = "") -> Callable[[], tuple[Parts, Step]]:
    """A bfloat16 model under such an optimizer and a schedule; the one inside it may be in the state, too."""

    def made() -> tuple[Parts, Step]:
        model = nn.Linear(4, 3).bfloat16()
        optim = make(model.parameters())
        schedule = torch.optim.lr_scheduler.StepLR(optim, 2)

        def step() -> torch.Tensor:
            optim.zero_grad()
            loss = model(torch.randn(5, 4).bfloat16()).square().mean()
            loss.backward()
            optim.step()
            schedule.step()
            return loss.detach()

        inner = {"inner": optim.inner} if also else {}
        parts = inner | {"optim": optim} if also == "before" else {"optim": optim} | inner
        return {**parts, "model": model, "sched": schedule}, step

    return made


@pytest.mark.parametrize("name", MAKERS)
def test_goes_on_bit_for_bit(name: str) -> None:
    """Twice, into optimizers that had trained something else: what they say comes back, and hooks run."""
    assert_resumes(training(MAKERS[name]), steps=7, at=(1, 4), used=1)


@pytest.mark.parametrize("also", ["before", "after"])
def test_with_the_optimizer_inside_in_the_state_too(also: str) -> None:
    """Its moments are stored once, and both have them again."""
    assert_resumes(training(MAKERS["lookahead"], also), steps=7, at=(1, 4), used=1)


def test_what_an_optimizer_shares_with_the_one_inside_stays_shared() -> None:
    """And torch's own functions are themselves again afterwards; a defaultdict is one, too."""
    before = dict(vars(torch.optim.Optimizer))
    live = through(training(MAKERS["lookahead"])()[0], training(MAKERS["lookahead"])()[0])
    assert live["optim"].param_groups is live["optim"].inner.param_groups
    assert live["optim"].state[nn.Parameter(torch.zeros(1))] == {}
    assert dict(vars(torch.optim.Optimizer)) == before


def test_it_loads_when_its_parameters_are_there() -> None:
    """Wherever in the state it stands: a hook that copies them (slow weights) finds those that were saved."""
    seen = []

    def made() -> Parts:
        model = nn.Linear(2, 2)
        optim = torch.optim.SGD(model.parameters(), momentum=0.9)
        optim.register_load_state_dict_post_hook(lambda o: seen.append(o.param_groups[0]["params"][0].tolist()))
        return {"optim": optim, "model": model}

    saved = made()
    through(saved, made())
    assert seen == [saved["model"].weight.tolist()]


def test_gates() -> None:
    """What such an optimizer says is copied while training goes on, like any optimizer's state; options are not. The
    command that shows an image says the same."""
    model = nn.Linear(4, 3)
    optim = Lookahead(torch.optim.Adam(model.parameters(), lr=torch.tensor(0.1)))
    model(torch.ones(4)).sum().backward()
    optim.step()
    state = {"model": model, "optim": optim}
    captured = Capture(state).take()
    gated = {name for name, gates in captured.gates.items() if gates == ("optim",)}
    _, small, plan = evacuate(state)
    assert set(captured.tensors) - gated == {"optim.inner.param_groups.[0].lr"}
    assert "optim.slow.model.weight.slow" in gated
    assert gating(small["state"], plan.header).gated == gated
    assert "what optim (Lookahead) gives as its state_dict" in forecast(state).unknown


def test_refused_by_name() -> None:
    """One that does not answer, when it is saved; one that is another kind now, before anything is written."""

    class Mute(torch.optim.SGD):
        def state_dict(self) -> Parts:
            raise RuntimeError("not consolidated")

    model = nn.Linear(4, 3)
    with pytest.raises(CaptureError, match=r"optim \(.*Mute\).* does not answer: not consolidated.* Give it"):
        Capture({"model": model, "optim": Mute(model.parameters())}).take()
    own: Parts = {"model": model, "optim": Decays(model.parameters())}
    torchs: Parts = {"model": model, "optim": torch.optim.SGD(model.parameters())}
    with pytest.raises(StructureError, match=r"optim was saved by a state_dict\(\) of its own.* SGD without any"):
        through(own, torchs)
    with pytest.raises(StructureError, match=r"optim was saved as an optimizer of torch is.* after restore"):
        through(torchs, own)


def test_torchs_own_are_plain() -> None:
    """And so filled in place; a schedule or a hook on steps changes nothing about it."""
    parameters = [nn.Parameter(torch.zeros(2, 2))]
    for kind in (torch.optim.AdamW, torch.optim.LBFGS, torch.optim.Muon, torch.optim.Adagrad):
        optim = kind(parameters)
        torch.optim.lr_scheduler.StepLR(optim, 2)
        optim.register_step_post_hook(lambda *_: None)
        assert is_plain(optim), kind
