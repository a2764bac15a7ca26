"""Loops that write into their state beside the optimizer: in the forward, before the gate, in place of a step."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn

from tests.programs.loops_of_optimizers import WIDTH, Iteration, Kind, Loop, adamw, with_optimizer


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
    iteration = with_optimizer(loop, torch.optim.AdamW(loop.model.parameters(), lr=rate, foreach=False))

    def decay_first() -> None:
        rate.mul_(0.9)
        iteration()

    return decay_first


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


def collective_write(loop: Loop) -> Iteration:
    """The same by a collective, which no version counts either: weights that another rank sends in front of the forward."""
    iteration = adamw(loop)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

    def write_first() -> None:
        if loop.step >= 6:
            weight = next(loop.model.parameters()).detach()
            before = weight._version
            dist.scatter(weight, [weight + 1.0], src=0)
            assert weight._version == before, "torch counts it now: say so in docs/design/overlap.md"
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


KINDS: tuple[Kind, ...] = (
    batch_norm, amax, ema, tensor_lr, max_norm, replaced_storages, data_write, moment_write, collective_write,
    counted_write, decay_by_hand, alternating, switching,
)  # fmt: skip
