"""Runs a code block of the documentation with the names that its reader would have."""

from __future__ import annotations

import signal
from typing import Any

import torch

import hinan


def main(code: str, steps: int, target: str = "") -> None:
    """Execute the block; it must define what it uses, but for a model, an optimizer, a scheduler, a step and `total`.

    Args:
        target: of an evacuator that the block finds as `evac`, with the step it restored; "" if the block makes its own.
    """
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)

    def train_one_step() -> torch.Tensor:
        loss = model(torch.randn(2, 4)).square().mean()
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss

    names: dict[str, Any] = {
        "signal": signal,
        "model": model,
        "optimizer": optimizer,
        "scheduler": scheduler,
        "total": steps,
        "train_one_step": train_one_step,
        "forward_and_backward": lambda: model(torch.randn(2, 4)).square().mean().backward(),
        "update_by_hand": lambda: [p.data.sub_(0.1) for p in model.parameters()],
    }
    if target:
        names["evac"] = hinan.Evacuator(target, {"model": model}, every=50)
        names["step"] = names["evac"].restore()
    exec(compile(code, "README", "exec"), names)
    assert names["step"] == steps
    if target:
        names["evac"].close()
