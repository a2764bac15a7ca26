"""Runs a code block of the documentation with the names that its reader would have."""

from __future__ import annotations

import torch


def main(code: str, steps: int) -> None:
    """Execute the block; it must define what it uses, but for a model, an optimizer, a scheduler, a step and `total`."""
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)

    def train_one_step() -> torch.Tensor:
        loss = model(torch.randn(2, 4)).square().mean()
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss

    names = {
        "model": model,
        "optimizer": optimizer,
        "scheduler": scheduler,
        "total": steps,
        "train_one_step": train_one_step,
    }
    exec(compile(code, "README", "exec"), names)
    assert names["step"] == steps
