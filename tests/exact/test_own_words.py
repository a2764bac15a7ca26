"""Modules with a `state_dict` and `load_state_dict` of their own: they are asked, and loaded, as their user would."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from hinan.core.errors import CaptureError, StructureError
from hinan.trainer.state.capture import Capture
from tests.exact.twins import assert_resumes, training
from tests.trainer.helpers import bits, evacuate, install, through


class Square(nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 4)


class Freezes(Square):
    """Gives a snapshot without gradients: harmless, as torch has detached it."""

    def state_dict(self, *arguments: Any, **options: Any) -> Any:
        return {n: v.requires_grad_(False) for n, v in super().state_dict(*arguments, **options).items()}


class Renames(Square):
    def state_dict(self, *arguments: Any, **options: Any) -> Any:
        return {f"my.{n}": v for n, v in super().state_dict(*arguments, **options).items()}

    def load_state_dict(self, entries: Any) -> Any:  # type: ignore[override]
        return super().load_state_dict({n.removeprefix("my."): v for n, v in entries.items()})


class Arrays(Square):
    def state_dict(self, *arguments: Any, **options: Any) -> Any:
        return {n: v.numpy() for n, v in super().state_dict(*arguments, **options).items()}

    def load_state_dict(self, entries: Any) -> Any:  # type: ignore[override]
        return super().load_state_dict({n: torch.from_numpy(v) for n, v in entries.items()})


class InPlace(Square):
    def state_dict(self, *arguments: Any, **options: Any) -> Any:
        entries = super().state_dict(*arguments, **options)
        entries["weight"].mul_(1.0)
        return entries


@pytest.mark.parametrize("kind", [Freezes, Renames, Arrays, InPlace])
def test_what_it_says_is_asked_for_as_its_user_would(kind: type[nn.Module]) -> None:
    """It gets detached tensors; the live ones are as they were, and still those of the optimizer, whatever their names."""

    make = training(kind, optimizer=torch.optim.SGD)
    if kind in (Freezes, Renames):
        assert_resumes(make, at=(1, 3))
    state, step = make()
    step()
    live, _ = make()
    weight = state["model"].weight
    assert bits(through(state, live)["model"].weight) == bits(weight)
    before = weight.requires_grad, id(weight.grad), bits(weight.grad)
    found = Capture(state).take()
    assert (weight.requires_grad, id(weight.grad), bits(weight.grad)) == before
    if kind is not Arrays:
        assert any(tensor is weight for tensor in found.tensors.values())
        assert list(found.gates.values()) == [("optim",)] * 2


def test_tensors_that_only_look_like_the_modules_own_are_kept_as_they_are() -> None:
    """Views of other dtypes, shapes and signs are read otherwise; ties stay ties."""

    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Parameter(torch.randn(2, 2, dtype=torch.complex64))
            self.b, self.none = self.a, nn.Parameter(torch.empty(0))

        def state_dict(self, *arguments: Any, **options: Any) -> Any:
            said = super().state_dict(*arguments, **options)
            return said | {"c": said["a"].conj(), "t": said["a"].t(), "v": torch.view_as_real(said["a"]), "x": said["b"]}

        def load_state_dict(self, entries: Any) -> None:  # type: ignore[override]
            raise NotImplementedError

    model = Views()
    tensors = Capture({"m": model}).take().tensors
    for name, value in model.state_dict().items():
        assert bits(tensors[f"m.{name}"]) == bits(value), name
    assert {n for n, t in tensors.items() if t is model.a} == {"m.a", "m.b", "m.x"}
    assert tensors["m.none"] is model.none


class NoArguments(nn.Module):
    """Legal for the module at the top: torch gives arguments to children alone."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.seen = nn.Linear(4, 2), 0

    def state_dict(self) -> Any:  # type: ignore[override]
        return {"net": self.net.state_dict(), "seen": self.seen}

    def load_state_dict(self, entries: Any) -> None:  # type: ignore[override]
        self.net.load_state_dict(entries["net"])
        self.seen = entries["seen"]


class NoArgumentsFlat(NoArguments):
    def state_dict(self) -> Any:  # type: ignore[override]
        return nn.Module.state_dict(self)

    def load_state_dict(self, entries: Any) -> None:  # type: ignore[override]
        nn.Module.load_state_dict(self, entries)
        self.seen = 3


@pytest.mark.parametrize("kind", [NoArguments, NoArgumentsFlat])
def test_methods_without_arguments_are_called_so(kind: type[NoArguments]) -> None:
    saved, live = kind(), kind()
    saved.seen = 3
    capture = Capture({"m": saved})
    assert capture.take().values == capture.take().values
    through({"m": saved}, {"m": live})
    assert (bits(live.net.weight), bits(live.net.bias), live.seen) == (bits(saved.net.weight), bits(saved.net.bias), 3)


def test_what_cannot_be_called_is_refused_before_the_first_copy() -> None:
    """A module that could be saved and not come back, and one that does not answer: by path, with the way out."""

    class TwoStates(nn.Linear):
        def load_state_dict(self, entries: Any, other: Any) -> Any:  # type: ignore[override]
            return super().load_state_dict(entries)

    class NeedsMore(nn.Linear):
        def state_dict(self, where: Any) -> Any:  # type: ignore[override]
            return super().state_dict()

    class Nothing(nn.Linear):
        def state_dict(self, *arguments: Any, **options: Any) -> Any:
            return None

    class Numbered(nn.Linear):
        def state_dict(self, *arguments: Any, **options: Any) -> Any:
            return {"weight": self.weight, "bias": self.bias, 5: "five"}

    refused = {
        TwoStates: r"load_state_dict\(\) cannot be called",
        NeedsMore: "where",
        Nothing: "NoneType",
        Numbered: "its key 5",
    }
    for kind, what in refused.items():
        with pytest.raises(CaptureError, match=rf"^cfg\.m is a .*{kind.__name__} .*{what}.*put its parts"):
            evacuate({"cfg": {"m": kind(2, 2)}})
    image, small, _ = evacuate({"cfg": {"m": nn.Linear(2, 2)}})
    live = TwoStates(2, 2)
    before = bits(live.weight)
    with pytest.raises(CaptureError, match=r"^cfg\.m is a .*TwoStates"):
        install(image, small, {"cfg": {"m": live}})
    assert bits(live.weight) == before


@pytest.mark.parametrize("kind", ["module", "extra", "object", "optimizer", "scaler"])
def test_what_fails_in_a_load_of_the_users_is_said_with_its_path(kind: str) -> None:
    class Fails:
        def load_state_dict(self, *arguments: Any, **options: Any) -> Any:
            raise KeyError("gone")

    class Object(Fails):
        def state_dict(self) -> Any:
            return {}

    class Module(Fails, nn.Linear):
        pass

    class Extra(nn.Linear):
        def get_extra_state(self) -> Any:
            return 1

        def set_extra_state(self, state: Any) -> None:
            raise KeyError("gone")

    class Optimizer(Fails, torch.optim.SGD):
        pass

    class Scaler(Fails, torch.amp.GradScaler):
        pass

    made: dict[str, Any] = {
        "module": lambda: Module(2, 2), "extra": lambda: nn.Sequential(Extra(2, 2)), "object": Object,
        "optimizer": lambda: Optimizer([nn.Parameter(torch.ones(1))]), "scaler": lambda: Scaler("cpu"),
    }  # fmt: skip
    with pytest.raises(StructureError, match=r"^cfg\.it.* does not load .*KeyError: 'gone'.*written in part") as raised:
        through({"cfg": {"it": made[kind]()}}, {"cfg": {"it": made[kind]()}})
    assert isinstance(raised.value.__cause__, KeyError)
