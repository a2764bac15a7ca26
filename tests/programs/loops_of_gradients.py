"""Loops by what becomes of their gradients: accumulated over several steps, kept, left behind in another net."""

from __future__ import annotations

import torch
from torch import nn

from tests.programs.loops_of_optimizers import WIDTH, Iteration, Kind, Loop


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


KINDS: tuple[Kind, ...] = (
    accumulated, accumulated_beside_writes, accumulated_torn_once, windows_of_one_and_two, middle_accumulated,
    zeroed_in_place, adversarial,
)  # fmt: skip
