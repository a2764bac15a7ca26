"""Training loops of every kind: what each does between two `evac.step()` (see `tests.programs.overlap`)."""

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


def _with(loop: Loop, optimizer: torch.optim.Optimizer) -> Iteration:
    loop.state["optim"] = optimizer

    def iteration() -> None:
        optimizer.zero_grad()
        loop.backward()
        optimizer.step()

    return iteration


def adamw(loop: Loop) -> Iteration:
    return _with(loop, torch.optim.AdamW(loop.model.parameters()))


def fused(loop: Loop) -> Iteration:
    return _with(loop, torch.optim.AdamW(loop.model.parameters(), fused=True))


def momentum(loop: Loop) -> Iteration:
    return _with(loop, torch.optim.SGD(loop.model.parameters(), lr=0.1, momentum=0.9))


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
    iteration = _with(loop, inner)
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


def batch_norm(loop: Loop) -> Iteration:
    """Statistics move in the forward, long before the gate."""
    loop.model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH))
    loop.state["model"] = loop.model
    return adamw(loop)


def amax(loop: Loop) -> Iteration:
    """A large buffer that every forward writes, as scaling histories of 8-bit formats are."""
    loop.model.register_buffer("amax_history", torch.zeros(WIDTH, WIDTH))
    iteration = adamw(loop)

    def forward_first() -> None:
        loop.model.amax_history.add_(1.0)  # type: ignore[operator]
        iteration()

    return forward_first


def ema(loop: Loop) -> Iteration:
    """An average that is updated before anything else in the iteration."""
    averaged = torch.optim.swa_utils.AveragedModel(loop.model, avg_fn=lambda a, p, n: 0.9 * a + 0.1 * p)
    averaged.requires_grad_(False)
    loop.state["ema"] = averaged
    iteration = adamw(loop)

    def average_first() -> None:
        averaged.update_parameters(loop.model)
        iteration()

    return average_first


def tensor_lr(loop: Loop) -> Iteration:
    """A learning rate that is a tensor and moves in front of the step."""
    rate = torch.tensor(0.1)
    iteration = _with(loop, torch.optim.AdamW(loop.model.parameters(), lr=rate, foreach=False))

    def decay_first() -> None:
        rate.mul_(0.9)
        iteration()

    return decay_first


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


def max_norm(loop: Loop) -> Iteration:
    """An embedding that renormalises its own weight in the forward: its versions move before the gate."""
    table = nn.Embedding(400, 100, max_norm=0.5)
    loop.model = table
    loop.state["model"] = table
    optimizer = torch.optim.SGD(table.parameters(), lr=1.0)
    loop.state["optim"] = optimizer

    def iteration() -> None:
        optimizer.zero_grad()
        table(torch.randint(0, 400, (64,))).square().mean().neg().backward()
        optimizer.step()

    return iteration


def replaced_storages(loop: Loop) -> Iteration:
    """A-SNAP-4: every parameter gets a new storage in front of the step."""
    iteration = adamw(loop)

    def replace_first() -> None:
        for p in loop.model.parameters():
            p.data = p.data.clone() + 1
        iteration()

    return replace_first


def data_write(loop: Loop) -> Iteration:
    """A write before the gate that no version counts: the planted tear of a parameter."""
    iteration = adamw(loop)

    def write_first() -> None:
        if loop.step >= 6:
            next(loop.model.parameters()).data.add_(1.0)
        iteration()

    return write_first


def moment_write(loop: Loop) -> Iteration:
    """The same in the optimizer's state."""
    iteration = adamw(loop)

    def write_first() -> None:
        if loop.step >= 6:
            for entry in loop.state["optim"].state.values():
                entry["exp_avg"].data.mul_(0.5)
        iteration()

    return write_first


def counted_write(loop: Loop) -> Iteration:
    """A write before the gate that versions count."""
    iteration = adamw(loop)

    def write_first() -> None:
        if loop.step >= 6:
            with torch.no_grad():
                next(loop.model.parameters()).add_(1.0)
        iteration()

    return write_first


def decay_by_hand(loop: Loop) -> Iteration:
    """Weights shrink in front of every forward, in a way that nothing counts."""
    iteration = adamw(loop)

    def shrink_first() -> None:
        for p in loop.model.parameters():
            p.data.mul_(0.99)
        iteration()

    return shrink_first


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


def alternating(loop: Loop) -> Iteration:
    """Every other update is written by hand, in a way that versions count: overlap is never earned."""
    by_optimizer = adamw(loop)

    def iteration() -> None:
        if loop.step % 2:
            by_optimizer()
        else:
            _by_hand(loop, lambda p: p.sub_(0.1))

    return iteration


def switching(loop: Loop) -> Iteration:
    """After six steps of an optimizer all updates are written by hand, in a way that nothing counts."""
    by_optimizer = adamw(loop)

    def iteration() -> None:
        if loop.step < 6:
            by_optimizer()
        else:
            _by_hand(loop, lambda p: p.data.sub_(0.1))

    return iteration


def _by_hand(loop: Loop, change: Callable[[torch.Tensor], object]) -> None:
    loop.backward()
    with torch.no_grad():
        for p in loop.model.parameters():
            change(p)
            p.grad = None


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


def accumulated(loop: Loop) -> Iteration:
    """Four backward passes to an optimizer step, out of phase with a cadence of three."""
    optimizer = torch.optim.AdamW(loop.model.parameters())
    loop.state["optim"] = optimizer

    def iteration() -> None:
        loop.backward()
        if loop.step % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()

    return iteration


def accumulated_beside_writes(loop: Loop) -> Iteration:
    """Accumulation whose weights are scaled by hand in every iteration: its copies are distrusted."""
    iteration = accumulated(loop)

    def scale_first() -> None:
        for p in loop.model.parameters():
            p.data.mul_(0.99)
        iteration()

    return scale_first


def accumulated_torn_once(loop: Loop) -> Iteration:
    """Accumulation, and one write while a copy is under way: from then on its copies are distrusted."""
    iteration = accumulated(loop)

    def write_first() -> None:
        if loop.step == 8:
            with torch.no_grad():
                next(loop.model.parameters()).add_(1.0)
        iteration()

    return write_first


def windows_of_one_and_two(loop: Loop) -> Iteration:
    """One parameter, and a gradient made anew for each window: it may get the id of the one before."""
    loop.model = nn.Linear(WIDTH, WIDTH, bias=False)
    optimizer = torch.optim.SGD(loop.model.parameters(), lr=0.1, momentum=0.9)
    loop.state |= {"model": loop.model, "optim": optimizer}

    def iteration() -> None:
        if loop.step % 3 in (0, 1):
            optimizer.zero_grad()
        loop.backward()
        if loop.step % 3 in (0, 2):
            optimizer.step()

    return iteration


def middle_accumulated(loop: Loop) -> Iteration:
    """Three backward passes of the middle layer alone, then one of all: the first and the last gradient lie there used."""
    first, middle, last = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
    loop.model = nn.Sequential(first, nn.Tanh(), middle, nn.Tanh(), last)
    optimizer = torch.optim.AdamW(loop.model.parameters())
    loop.state |= {"model": loop.model, "optim": optimizer}

    def iteration() -> None:
        if loop.step % 4 != 3:
            middle(torch.randn(4, WIDTH)).square().mean().backward()
            return
        first.zero_grad()
        last.zero_grad()
        loop.backward()
        optimizer.step()
        middle.zero_grad()

    return iteration


def zeroed_in_place(loop: Loop) -> Iteration:
    """Gradients are not given up after the step but filled with zeros."""
    optimizer = torch.optim.AdamW(loop.model.parameters())
    loop.state["optim"] = optimizer

    def iteration() -> None:
        loop.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    return iteration


def adversarial(loop: Loop) -> Iteration:
    """Two nets in the usual order: the second one's backward leaves gradients in the first, which has stepped already."""
    critic, maker = nn.Linear(WIDTH, 1), nn.Linear(WIDTH, WIDTH)
    critics, makers = torch.optim.Adam(critic.parameters()), torch.optim.Adam(maker.parameters())
    loop.model = nn.ModuleList([critic, maker])
    loop.state |= {"model": loop.model, "critics": critics, "makers": makers}

    def iteration() -> None:
        fake = maker(torch.randn(4, WIDTH))
        critics.zero_grad()
        (critic(torch.randn(4, WIDTH)) - critic(fake.detach())).square().mean().backward()
        critics.step()
        makers.zero_grad()
        critic(fake).square().mean().backward()
        makers.step()

    return iteration


KINDS: dict[str, Kind] = {
    kind.__name__: kind
    for kind in (
        adamw, fused, momentum, compiled, wrapped, scaled, in_backward, lbfgs, batch_norm, amax, ema, tensor_lr,
        duck_typed, duck_typed_with_gate, max_norm, replaced_storages, data_write, moment_write, counted_write, accumulated,
        alternating, decay_by_hand, two_paces, switching, late_scheduler, late_scaler, scheduled,
        accumulated_beside_writes, accumulated_torn_once, windows_of_one_and_two, middle_accumulated,
        zeroed_in_place, adversarial,
    )
}  # fmt: skip
