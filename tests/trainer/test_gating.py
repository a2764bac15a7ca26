"""What is gated and what is not, told from the small JSON of a real capture (rule D1)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hinan.formats.gating import REPORTED_BYTES, gating, is_reported
from tests.trainer.helpers import evacuate


class Net(nn.Module):
    """Weights that train, weights that do not, a tie, and buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 5)
        self.head = nn.Linear(5, 7, bias=False)
        self.head.weight = self.embed.weight
        self.norm = nn.BatchNorm1d(5)
        self.frozen = nn.Linear(5, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.embed(x)) + self.frozen(self.norm(self.embed(x))))  # type: ignore[no-any-return]


def state(optimizer: type[torch.optim.Optimizer] = torch.optim.AdamW, **options: Any) -> dict[str, Any]:
    net = Net()
    net.frozen.requires_grad_(False)
    trained = [p for p in net.parameters() if p.requires_grad]
    optim = optimizer(trained, lr=torch.tensor(0.1), **options)
    net(torch.arange(6)).sum().backward()
    optim.step()
    average = nn.Linear(3, 3)
    return {"model": net, "optim": optim, "ema": average, "big": np.zeros(1 << 17), "epoch": 3, "free": torch.zeros(4)}


def classes(state: dict[str, Any]) -> tuple[set[str], set[str]]:
    _, small, plan = evacuate(state)
    found = gating(small["state"], plan.header)
    return set(found.gated), {e.name for e in plan.header.entries} - found.gated


def test_gated_is_what_the_optimizer_moves_and_nothing_else() -> None:
    """Parameters in groups (a tied one under its first name) and their state are gated; buffers, frozen weights, moving
    averages, a tensor learning rate, arrays and loose tensors are not."""
    gated, ungated = classes(state())
    moments = {f"optim.model.{n}.{m}" for n in ("embed.weight", "norm.weight", "norm.bias")
               for m in ("step", "exp_avg", "exp_avg_sq")}  # fmt: skip
    assert gated == {"model.embed.weight", "model.norm.weight", "model.norm.bias"} | moments
    assert ungated == {
        "model.norm.running_mean", "model.norm.running_var", "model.norm.num_batches_tracked", "model.frozen.weight",
        "model.frozen.bias", "ema.weight", "ema.bias", "big", "free", "optim.groups.[0].lr",
    }  # fmt: skip


def test_a_tie_is_gated_whichever_of_its_names_the_image_shows() -> None:
    """The loose name comes first in the state, so the image shows it; the bytes are the optimizer's all the same."""
    made = state()
    gated, ungated = classes({"tied": made["model"].embed.weight.data, **made})
    assert "tied" in gated
    assert "model.embed.weight" not in gated | ungated  # a view of it


def test_a_storage_that_a_parameter_shares_with_a_buffer_is_ungated() -> None:
    """Half of the bytes belong to somebody else, who moves them at any time: the whole must be copied before."""
    flat = torch.zeros(8)
    net = nn.Module()
    net.weight = nn.Parameter(flat[:4])
    net.register_buffer("beside", flat[2:])
    optim = torch.optim.SGD(net.parameters(), momentum=0.9)
    gated, ungated = classes({"model": net, "optim": optim})
    assert (gated, ungated) == (set(), {"model.weight"})


def test_parameters_without_a_module_are_named() -> None:
    """An optimizer over loose tensors knows them by place; they are listed, and their own names stay ungated."""
    loose = torch.zeros(3, requires_grad=True)
    _, small, plan = evacuate({"loose": loose, "optim": torch.optim.SGD([loose])})
    assert gating(small["state"], plan.header).by_place == ("group0.0",)
    assert gating(small["state"], plan.header).gated == frozenset()


@pytest.mark.parametrize(
    ("ungated_bytes", "image_bytes", "told"),
    [(10, 1000, False), (11, 1000, True), (REPORTED_BYTES, 1 << 40, False), (REPORTED_BYTES + 1, 1 << 40, True)],
)
def test_a_lot_of_ungated_bytes_is_worth_a_word(ungated_bytes: int, image_bytes: int, told: bool) -> None:
    """Above 64 MiB or 1 % of the image, whichever is less."""
    assert is_reported(ungated_bytes, image_bytes) is told
