"""What a loop trains, and loops by their optimizer: whose it is, when it steps, what moves beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import hinan

WIDTH = 192  # 147 kB a weight: above what is copied at once
Iteration = Callable[[], None]
Kind = Callable[["Loop"], Iteration]


class Loop:
    """What a kind trains: a state to fill, and an evacuator once it is filled."""

    def __init__(self) -> None:
        torch.manual_seed(3)
        self.model: nn.Module = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.state: dict[str, Any] = {"model": self.model}
        self.evac: hinan.Evacuator
        self.step = 0

    def loss(self) -> torch.Tensor:
        return self.model(torch.randn(4, WIDTH)).square().mean()

    def backward(self) -> None:
        self.loss().backward()


def with_optimizer(loop: Loop, optimizer: torch.optim.Optimizer) -> Iteration:
    """The usual iteration: gradients away, backward, step."""
    loop.state["optim"] = optimizer

    def iteration() -> None:
        optimizer.zero_grad()
        loop.backward()
        optimizer.step()

    return iteration


def adamw(loop: Loop) -> Iteration:
    return with_optimizer(loop, torch.optim.AdamW(loop.model.parameters()))


def fused(loop: Loop) -> Iteration:
    return with_optimizer(loop, torch.optim.AdamW(loop.model.parameters(), fused=True))


def momentum(loop: Loop) -> Iteration:
    return with_optimizer(loop, torch.optim.SGD(loop.model.parameters(), lr=0.1, momentum=0.9))


def compiled(loop: Loop) -> Iteration:
    optimizer = torch.optim.AdamW(loop.model.parameters())
    loop.state["optim"] = optimizer
    step = torch.compile(optimizer.step, backend="eager")

    def iteration() -> None:
        optimizer.zero_grad()
        loop.backward()
        step()

    return iteration


def wrapped(loop: Loop) -> Iteration:
    """A wrapper that is an optimizer itself and whose own hooks never fire, as some frameworks have it."""

    class Wrapper(torch.optim.Optimizer):
        def __init__(self, inner: torch.optim.Optimizer) -> None:
            self.inner = inner

        @property
        def state(self) -> Any:
            return self.inner.state

        @property
        def param_groups(self) -> Any:
            return self.inner.param_groups

        def step(self, closure: Any = None) -> Any:
            return self.inner.step(closure)

    inner = torch.optim.AdamW(loop.model.parameters())
    iteration = with_optimizer(loop, inner)
    loop.state["optim"] = Wrapper(inner)
    return iteration


def scaled(loop: Loop) -> Iteration:
    """A scaler that skips every fourth step: no hook fires, and nothing changes."""
    optimizer, scaler = torch.optim.AdamW(loop.model.parameters()), torch.amp.GradScaler("cpu", init_scale=4.0)
    loop.state |= {"optim": optimizer, "scaler": scaler}

    def iteration() -> None:
        loss = scaler.scale(loop.loss())
        (loss * float("inf") if loop.step % 4 == 3 else loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return iteration


def in_backward(loop: Loop) -> Iteration:
    """One optimizer a parameter, stepped while the backward runs."""
    optimizers = {name: torch.optim.AdamW([p]) for name, p in loop.model.named_parameters()}
    by_parameter = {id(p): optimizers[name] for name, p in loop.model.named_parameters()}
    loop.state["optims"] = optimizers

    def now(parameter: torch.Tensor) -> None:
        by_parameter[id(parameter)].step()
        by_parameter[id(parameter)].zero_grad()

    for parameter in loop.model.parameters():
        parameter.register_post_accumulate_grad_hook(now)
    return loop.backward


def lbfgs(loop: Loop) -> Iteration:
    optimizer = torch.optim.LBFGS(loop.model.parameters(), lr=0.01, max_iter=2)
    loop.state["optim"] = optimizer

    def iteration() -> None:
        x = torch.randn(4, WIDTH)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = loop.model(x).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)

    return iteration


class Duck:
    """An optimizer that torch does not know: its own class, hand-written updates, a momentum per parameter."""

    def __init__(self, model: nn.Module) -> None:
        self.parameters = list(model.parameters())
        self.momentum = [torch.zeros_like(p) for p in self.parameters]

    def zero_grad(self) -> None:
        for p in self.parameters:
            p.grad = None

    def step(self) -> None:
        for p, m in zip(self.parameters, self.momentum, strict=True):
            assert p.grad is not None
            m.mul_(0.9).add_(p.grad)
            p.data -= 0.1 * m  # what no version counts

    def state_dict(self) -> dict[str, Any]:
        return {"momentum": self.momentum}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for mine, theirs in zip(self.momentum, state["momentum"], strict=True):
            mine.copy_(theirs)


def duck_typed(loop: Loop) -> Iteration:
    duck = Duck(loop.model)
    loop.state["optim"] = duck

    def iteration() -> None:
        duck.zero_grad()
        loop.backward()
        duck.step()

    return iteration


def duck_typed_with_gate(loop: Loop) -> Iteration:
    duck = Duck(loop.model)
    loop.state["optim"] = duck

    def iteration() -> None:
        duck.zero_grad()
        loop.backward()
        loop.evac.gate()
        duck.step()

    return iteration


def two_paces(loop: Loop) -> Iteration:
    """Two optimizers: one steps in every iteration, the other accumulates over four."""
    slow_model = nn.Linear(WIDTH, WIDTH)
    slow, fast = torch.optim.AdamW(slow_model.parameters()), torch.optim.AdamW(loop.model.parameters())
    loop.state |= {"slow_model": slow_model, "slow": slow, "fast": fast}

    def iteration() -> None:
        fast.zero_grad()
        loop.backward()
        fast.step()
        slow_model(torch.randn(4, WIDTH)).square().mean().backward()
        if loop.step % 4 == 3:
            slow.step()
            slow.zero_grad()

    return iteration


def late_scheduler(loop: Loop) -> Iteration:
    """The scheduler moves after `evac.step()`, at the start of what follows it."""
    iteration = adamw(loop)
    schedule = torch.optim.lr_scheduler.StepLR(loop.state["optim"], 3)
    loop.state["sched"] = schedule

    def moves_late() -> None:
        if loop.step:
            schedule.step()
        iteration()

    return moves_late


def late_scaler(loop: Loop) -> Iteration:
    """The scaler is updated after `evac.step()`."""
    optimizer, scaler = torch.optim.AdamW(loop.model.parameters()), torch.amp.GradScaler("cpu", init_scale=4.0)
    loop.state |= {"optim": optimizer, "scaler": scaler}

    def iteration() -> None:
        if loop.step:
            scaler.update()
        optimizer.zero_grad()
        scaler.scale(loop.loss()).backward()
        scaler.step(optimizer)

    return iteration


def scheduled(loop: Loop) -> Iteration:
    """The usual order."""
    iteration = adamw(loop)
    schedule = torch.optim.lr_scheduler.StepLR(loop.state["optim"], 3)
    loop.state["sched"] = schedule

    def moves_in_time() -> None:
        iteration()
        schedule.step()

    return moves_in_time


KINDS: tuple[Kind, ...] = (
    adamw, fused, momentum, compiled, wrapped, scaled, in_backward, lbfgs, two_paces, duck_typed,
    duck_typed_with_gate, late_scheduler, late_scaler, scheduled,
)  # fmt: skip
