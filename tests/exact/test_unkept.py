"""What nobody keeps is said: by a warning if an optimizer trains it, and in the list of what was left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import hinan
from hinan.trainer.state.capture import Capture
from tests.trainer.helpers import evacuate

SGD = torch.optim.SGD


class Leaves(nn.Module):
    """Says the adapter alone. With `frozen` it is LoRA; without, a mistake."""

    def __init__(self, *, frozen: bool = False) -> None:
        super().__init__()
        self.base, self.adapter = nn.Linear(4, 4).requires_grad_(not frozen), nn.Linear(4, 2)

    def state_dict(self, *arguments: Any, **options: Any) -> Any:
        said = super().state_dict(*arguments, **options)
        return {name: tensor for name, tensor in said.items() if name.startswith("adapter")}


class Flat(nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 4)

    def state_dict(self) -> Any:  # type: ignore[override]
        return {"all": torch.cat([p.detach().reshape(-1) for p in self.parameters()])}

    def load_state_dict(self, entries: Any) -> None:  # type: ignore[override]
        raise NotImplementedError


class Renamed(Flat):
    def state_dict(self) -> Any:  # type: ignore[override]
        return {f"net.{name}": p.detach() for name, p in self.named_parameters()}


class Cloned(Flat):
    def state_dict(self) -> Any:  # type: ignore[override]
        return {f"net.{name}": p.detach().clone() for name, p in self.named_parameters()}


class ClonedAdapter(Leaves):
    """Says half of itself, as clones."""

    def state_dict(self, *arguments: Any, **options: Any) -> Any:
        return {name: tensor.detach().clone() for name, tensor in super().state_dict(*arguments, **options).items()}


class Holder:
    """Keeps a model, or whatever it likes, in words of its own."""

    def __init__(self, say: Callable[[], Any]) -> None:
        self.state_dict = say

    def load_state_dict(self, said: Any) -> None:
        pass


class Point:
    def __init__(self, values: torch.Tensor) -> None:
        self.values = values


hinan.register_codec(Point, "tests.unkept", lambda p: {"values": p.values.detach() * 1}, lambda v: Point(v["values"]))


def warnings_of(state: dict[str, Any], caplog: pytest.LogCaptureFixture, times: int = 3) -> list[str]:
    """What is said of unkept parameters in some captures."""
    capture = Capture(state)
    for _ in range(times):
        capture.take()
    return [r.message.partition(", and neither")[0] for r in caplog.records if " trains " in r.message]


def alone() -> torch.Tensor:
    return torch.zeros(1, requires_grad=True)


@pytest.mark.parametrize(
    ("make", "state", "said"),
    [
        (Leaves, lambda m: {"m": m, "o": SGD(m.parameters())}, "o trains m.base.weight and 1 more"),
        (Leaves, lambda m: {"t": [{"m": m, "o": SGD(m.parameters())}]}, "t.[0].o trains t.[0].m.base.weight and 1 more"),
        (alone, lambda _: {"o": torch.optim.Adam([alone()])}, "o trains group 0, parameter 0 of shape (1,)"),
        (alone, lambda _: {"o": [SGD([alone(), alone()])]}, "o.[0] trains group 0, parameter 0 of shape (1,) and 1 more"),
        (
            lambda: nn.Linear(4, 4),
            lambda m: {"o": SGD(m.parameters())},
            "o trains group 0, parameter 0 of shape (4, 4) and 1 more",
        ),
        (
            lambda: nn.Linear(4, 4),
            lambda m: {"o": SGD(m.parameters()), "s": torch.optim.lr_scheduler.StepLR(SGD([alone()]), 2)},
            "o trains group 0, parameter 0 of shape (4, 4) and 1 more",
        ),
        (
            lambda: nn.Linear(4, 4),
            lambda m: {"o": SGD(m.parameters()), "s": Holder(lambda: {"seen": 3})},
            "o trains group 0, parameter 0 of shape (4, 4)",
        ),
        (ClonedAdapter, lambda m: {"m": m, "o": SGD(m.parameters())}, "o trains m.base.weight"),
        (
            lambda: nn.Linear(2, 2),
            lambda m: {"m": m.weight.detach()[:1], "o": SGD([m.weight])},
            "o trains group 0, parameter 0",
        ),
    ],
)
def test_what_is_trained_and_kept_nowhere_is_said_once(
    make: Callable[[], Any], state: Callable[[Any], dict[str, Any]], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its moments come back beside fresh values. By its name, where it has one."""
    found = warnings_of(state(make()), caplog)
    assert len(found) == 1
    assert found[0].startswith(said)


def clones(model: nn.Module) -> dict[str, Any]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize(
    ("make", "state"),
    [
        (lambda: nn.Linear(4, 4), lambda m: {"m": m, "o": SGD(m.parameters())}),
        (lambda: nn.Linear(4, 4), lambda m: {"t": {"m": m, "o": SGD(m.parameters())}}),
        (lambda: Leaves(frozen=True), lambda m: {"m": m, "o": SGD(m.parameters())}),
        (Flat, lambda m: {"m": m, "o": SGD(m.parameters())}),
        (Renamed, lambda m: {"m": m, "o": SGD(m.parameters())}),
        (Cloned, lambda m: {"m": m, "o": SGD(m.parameters())}),
        (lambda: ClonedAdapter(frozen=True), lambda m: {"m": m, "o": SGD(m.parameters())}),
        (lambda: nn.Linear(4, 4), lambda m: {"m": Holder(m.state_dict), "o": SGD(m.parameters())}),
        (lambda: nn.Linear(4, 4), lambda m: {"m": Holder(lambda: clones(m)), "o": SGD(m.parameters())}),
        (lambda: nn.Linear(4, 4), lambda m: {"m": Point(m.weight), "o": SGD([m.weight])}),
        (alone, lambda a: {"o": SGD([a]), "agent": Holder(lambda: {"log_alpha": a.item()})}),
        (alone, lambda a: {"o": SGD([a]), "a": a}),
        (alone, lambda a: {"o": SGD([a]), "a": [a.detach()]}),
        (lambda: torch.zeros(2, 4), lambda w: {"all": w, "o": SGD([w[0].requires_grad_(), w[1].requires_grad_()])}),
        (alone, lambda _: {"o": SGD([torch.zeros(0, requires_grad=True)])}),
    ],
)
def test_nothing_is_said_of_what_is_kept_or_may_be(
    make: Callable[[], Any], state: Callable[[Any], dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    """Frozen, under another name, in another form, as a clone in words of an object's own, or as a part of what is kept."""
    assert warnings_of(state(make()), caplog) == []


def test_each_parameter_is_said_once_an_optimizer(caplog: pytest.LogCaptureFixture) -> None:
    """Not again as groups come and go; what is new is, also where the count stays, and where it thaws."""
    model = Leaves()
    optim = SGD(model.adapter.parameters())
    capture = Capture({"m": model, "o": optim})
    group = optim.param_groups[0]
    kept, left = list(model.adapter.parameters()), list(model.base.parameters())

    def said() -> list[str]:
        caplog.clear()
        capture.take()
        return [r.message.partition(", and neither")[0] for r in caplog.records if " trains " in r.message]

    assert said() == []
    group["params"] = left
    assert said() == ["o trains m.base.weight and 1 more"]
    group["params"] = kept
    assert said() == []
    group["params"] = left[:1]
    optim.add_param_group({"params": kept})
    assert said() == []
    optim.add_param_group({"params": [frozen := torch.zeros(3)]})
    assert said() == []
    frozen.requires_grad_()
    assert said() == ["o trains group 2, parameter 0 of shape (3,)"]
    assert said() == []


def test_what_is_left_out_is_listed_by_name() -> None:
    """Of modules at any depth, and what only an optimizer holds, frozen or not; with its gradients."""
    nested, top, free = Leaves(), Leaves(frozen=True), torch.zeros(5, requires_grad=True)
    top.register_buffer("mask", torch.ones(10), persistent=False)
    wrapped = nn.DataParallel(nn.Linear(2, 2))
    nested.adapter(torch.zeros(1, 4)).sum().backward()
    _, small, _ = evacuate({"m": top, "t": {"nested": nested}, "d": wrapped, "o": [SGD([free, *nested.parameters()])]})
    assert small["left"] == [
        ["t.nested (gradients)", 40],
        ["m.base.weight", 64],
        ["m.base.bias", 16],
        ["m.mask", 40],
        ["t.nested.base.weight", 64],
        ["t.nested.base.bias", 16],
        ["o.[0]: group 0, parameter 0 of shape (5,)", 20],
    ]
    kept = 2 * 40 + 24
    if not torch.accelerator.is_available():
        assert small["device_memory_bytes"] == kept + sum(size for _, size in small["left"])


def test_a_long_list_of_what_is_left_out_is_cut() -> None:
    class Nothing(nn.Module):
        def state_dict(self, *arguments: Any, **options: Any) -> Any:
            return {}

    model = Nothing()
    model.layers = nn.ModuleList(nn.Linear(1, 1) for _ in range(50))
    _, small, _ = evacuate({"m": model, "n": 1})
    assert len(small["left"]) == 65 and small["left"][-1] == ["36 more tensors", 36 * 4]
