"""Every optimizer class of torch.optim goes on bit for bit, with each of its switches that run on a CPU."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.exact.twins import Step, assert_resumes

CLASSES = sorted(
    (c for c in vars(torch.optim).values() if isinstance(c, type) and issubclass(c, torch.optim.Optimizer)),
    key=lambda c: c.__name__,
)
CLASSES.remove(torch.optim.Optimizer)

SWITCHES = ("foreach", "fused", "amsgrad", "maximize", "nesterov", "centered", "decoupled_weight_decay")
"""Not here: capturable (asserts an accelerator) and differentiable (wants parameters that are no leaves)."""
ALSO = {"nesterov": {"momentum": 0.9}, "centered": {"momentum": 0.5}, "decoupled_weight_decay": {"weight_decay": 0.1}}
MATRICES_ONLY = {torch.optim.Muon}


def _variant(c: type[torch.optim.Optimizer], switch: str, options: dict[str, Any]) -> Any:
    """Switches that work alike in all classes are tried with two of them every day."""
    alike = switch in ("maximize", "lr tensor") and c not in (torch.optim.Adam, torch.optim.SGD)
    return pytest.param(c, options, id=f"{c.__name__}-{switch}", marks=[pytest.mark.slow] if alike else [])


def variants() -> list[Any]:
    """Each class by itself, and with each switch it has."""
    found = []
    for c in CLASSES:
        names = inspect.signature(c.__init__).parameters
        found.append(pytest.param(c, {}, id=c.__name__))
        switches = [s for s in SWITCHES if s in names and names[s].default is not True]
        found += [_variant(c, s, {s: True} | ALSO.get(s, {})) for s in switches]
        if "Tensor" in str(names["lr"].annotation):
            found.append(_variant(c, "lr tensor", {"lr": "tensor"}))
    more: list[tuple[type, dict[str, Any]]] = [
        (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.1}),
        (torch.optim.RMSprop, {"momentum": 0.9}),
        (torch.optim.LBFGS, {"line_search_fn": "strong_wolfe", "history_size": 3}),
        (torch.optim.Adam, {"betas": (torch.tensor(0.9), torch.tensor(0.99))}),
    ]
    return [*found, *(pytest.param(c, options, id=f"{c.__name__}-{'-'.join(options)}") for c, options in more)]


def training(c: type[torch.optim.Optimizer], options: dict[str, Any]) -> Callable[[], tuple[dict[str, Any], Step]]:
    """A maker of a model and an optimizer of class `c`; sparse gradients for the class that wants them."""

    def make() -> tuple[dict[str, Any], Step]:
        sparse = c is torch.optim.SparseAdam
        model = torch.nn.Sequential(
            torch.nn.Embedding(7, 4, sparse=sparse),
            torch.nn.Dropout(0.2),
            *([] if sparse else [torch.nn.Linear(4, 3, bias=c not in MATRICES_ONLY)]),
        )
        chosen = {k: tuple(b.clone() for b in v) if k == "betas" else v for k, v in options.items()}
        if chosen.get("lr") == "tensor":
            chosen["lr"] = torch.tensor(0.01)
        if c is torch.optim.LBFGS:
            chosen["max_iter"] = 3
        optim = c(model.parameters(), **chosen)

        def closure() -> torch.Tensor:
            optim.zero_grad()
            loss = (model(torch.randint(7, (5,))) - 1).square().mean()
            loss.backward()
            return loss

        def step() -> torch.Tensor:
            loss = optim.step(closure)
            optim.param_groups[0]["lr"] *= 0.9  # in place where it is a tensor
            return loss

        return {"optim": optim, "model": model}, step

    return make


@pytest.mark.parametrize(("c", "options"), variants())
def test_goes_on_bit_for_bit(c: type[torch.optim.Optimizer], options: dict[str, Any]) -> None:
    """A-OPT-5, A-EXACT-6: losses, parameters, state (dtype, device, shape, 0-dim) and options of a run never stopped.

    Stopped twice, and restored into optimizers that had trained something else."""
    assert_resumes(training(c, options), at=(1, 3), used=1)


@pytest.mark.parametrize("c", CLASSES)
def test_saved_before_the_first_step(c: type[torch.optim.Optimizer]) -> None:
    """A-OPT-3: nothing is made by saving, and what a live optimizer had trained before is gone after the restore."""
    assert_resumes(training(c, {}), at=0, used=1)
