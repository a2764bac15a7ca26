"""Every learning-rate scheduler of torch goes on bit for bit: rates, momenta, and what it remembers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler as schedulers
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, get_swa_avg_fn

from hinan.trainer.evacuating.lateness import LateMovers
from tests.exact.twins import Step, assert_resumes

BASES = {"LRScheduler", "_LRScheduler"}
CLASSES = {
    name
    for name, c in vars(schedulers).items()
    if isinstance(c, type) and issubclass(c, schedulers.LRScheduler) and name not in BASES
}


def chain(o: Any) -> Any:
    return schedulers.ChainedScheduler([schedulers.ConstantLR(o, 0.5, 2), schedulers.ExponentialLR(o, 0.9)])


def sequence(o: Any) -> Any:
    parts = [schedulers.LinearLR(o, 0.1, total_iters=2), schedulers.CosineAnnealingLR(o, 4), schedulers.StepLR(o, 2)]
    return schedulers.SequentialLR(o, parts, milestones=[2, 5])


class Factor:
    """A callable object, whose attributes LambdaLR keeps."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, epoch: int) -> float:
        self.calls += 1
        return 1.0 / (1 + self.calls)


RECIPES: dict[str, list[Callable[[Any], Any]]] = {
    "ChainedScheduler": [chain],
    "ConstantLR": [lambda o: schedulers.ConstantLR(o, 0.3, 3)],
    "CosineAnnealingLR": [lambda o: schedulers.CosineAnnealingLR(o, 5, 0.01)],
    "CosineAnnealingWarmRestarts": [lambda o: schedulers.CosineAnnealingWarmRestarts(o, 3, 2)],
    "CyclicLR": [
        lambda o, mode=mode: schedulers.CyclicLR(o, 0.01, 0.1, 3, mode=mode, gamma=0.9)
        for mode in ("triangular", "triangular2", "exp_range")
    ],
    "ExponentialLR": [lambda o: schedulers.ExponentialLR(o, 0.9)],
    "LambdaLR": [lambda o: schedulers.LambdaLR(o, lambda n: 1 / (1 + n)), lambda o: schedulers.LambdaLR(o, Factor())],
    "LinearLR": [lambda o: schedulers.LinearLR(o, 0.2, total_iters=4)],
    "MultiStepLR": [lambda o: schedulers.MultiStepLR(o, [2, 2, 5])],
    "MultiplicativeLR": [lambda o: schedulers.MultiplicativeLR(o, Factor())],
    "OneCycleLR": [
        lambda o: schedulers.OneCycleLR(o, 0.1, total_steps=9),
        lambda o: schedulers.OneCycleLR(o, 0.1, total_steps=9, anneal_strategy="linear", three_phase=True),
    ],
    "PolynomialLR": [lambda o: schedulers.PolynomialLR(o, 6, 2.0)],
    "ReduceLROnPlateau": [lambda o: schedulers.ReduceLROnPlateau(o, patience=0, cooldown=1, threshold=0.5)],
    "SequentialLR": [sequence],
    "StepLR": [lambda o: schedulers.StepLR(o, 3)],
    "SWALR": [lambda o: SWALR(o, 0.01, 4), lambda o: SWALR(o, 0.01, 4, "linear")],
}


def test_every_scheduler_of_torch_is_here() -> None:
    """A class that a new torch adds gets a recipe before it is believed."""
    assert set(RECIPES) >= CLASSES


def scheduled(recipe: Callable[[Any], Any], lr: Callable[[], Any]) -> tuple[dict[str, Any], Step]:
    """Two groups of SGD under one scheduler."""
    model = torch.nn.Linear(3, 1)
    members = [{"params": [p], "lr": lr()} for p in model.parameters()]
    optim = torch.optim.SGD(members, momentum=0.8)
    state = {"model": model, "optim": optim, "sched": recipe(optim)}

    def step() -> torch.Tensor:
        optim.zero_grad()
        loss = (model(torch.randn(4, 3)) - 1).square().mean()
        loss.backward()
        optim.step()
        state["sched"].step(*([loss.item()] if isinstance(state["sched"], schedulers.ReduceLROnPlateau) else []))
        return loss.detach()

    return state, step


@pytest.mark.filterwarnings("ignore:The epoch parameter in", "ignore:Detected call of `lr_scheduler.step")
@pytest.mark.parametrize(
    ("recipe", "tensor"),
    [
        pytest.param(r, tensor, id=f"{name}-{i}{'-lr tensor' * tensor}", marks=[pytest.mark.slow] if slow else [])
        for name, rs in RECIPES.items()
        for i, r in enumerate(rs)
        for tensor in (False, True)
        for slow in [tensor and name not in ("StepLR", "OneCycleLR", "SequentialLR")]
    ],
)
def test_schedules_go_on(recipe: Callable[[Any], Any], tensor: bool) -> None:
    """A-EXACT-6: the same rates at the same steps, resumed twice, in a tensor that stays one where the rate is a tensor."""
    lr = (lambda: torch.tensor(0.1)) if tensor else (lambda: 0.1)
    straight, resumed = assert_resumes(lambda: scheduled(recipe, lr), steps=8, at=(3, 5))
    assert all(isinstance(g["lr"], torch.Tensor) == tensor for g in resumed["optim"].param_groups)
    assert straight["optim"].param_groups[0]["lr"] == resumed["optim"].param_groups[0]["lr"]


@pytest.mark.filterwarnings("ignore:The epoch parameter in", "ignore:Detected call of `lr_scheduler.step")
@pytest.mark.parametrize("name", RECIPES)
def test_one_that_moves_late_is_named(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """D4: whatever its class, a scheduler that moves between evac.step() and the next optimizer step is noticed."""
    state, _ = scheduled(RECIPES[name][0], lambda: 0.1)
    movers = LateMovers(state)
    movers.at_gate()
    movers.at_evacuation()
    state["sched"].step(*([1.0] if name == "ReduceLROnPlateau" else []))
    with caplog.at_level(logging.WARNING, "hinan"):
        movers.at_gate()
    assert "sched moves after evac.step()" in caplog.text


def averaged(**options: Any) -> tuple[dict[str, Any], Step]:
    """A model with BatchNorm and dropout, and its average."""
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.3), torch.nn.Linear(4, 1)
    )
    mean = AveragedModel(model, **options)
    optim = torch.optim.SGD(model.parameters(), 0.1)
    swa = SWALR(optim, 0.05, 3)

    def step() -> torch.Tensor:
        optim.zero_grad()
        loss = model(torch.randn(4, 3)).square().mean()
        loss.backward()
        optim.step()
        mean.update_parameters(model)
        swa.step()
        return torch.stack([loss.detach(), mean(torch.ones(2, 3)).mean().detach()])

    return {"model": model, "ema": mean, "optim": optim, "swa": swa}, step


@pytest.mark.parametrize(
    "options",
    [{}, {"multi_avg_fn": get_ema_multi_avg_fn(0.9)}, {"avg_fn": get_swa_avg_fn(), "use_buffers": True}],
    ids=["swa", "ema", "with buffers"],
)
@pytest.mark.parametrize("at", [(0,), (1, 3)])
def test_averages_go_on(options: dict[str, Any], at: tuple[int, ...]) -> None:
    """EMA and SWA: the average, how many went into it, and both models' buffers; also before the first average."""
    assert_resumes(lambda: averaged(**options), at=at)
