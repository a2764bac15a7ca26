"""Modules that get names and shapes while they train: who loads himself takes them; what torch loads must fit before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.ao.quantization import observer

from hinan.core.errors import StructureError
from tests.exact.twins import assert_resumes, everything, training
from tests.trainer.helpers import evacuate, install, through


class LazyExtra(nn.Linear):
    """Has nothing to say before its first forward."""

    cache: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache = torch.zeros(()) if self.cache is None else self.cache + 1
        return super().forward(x) * (self.cache + 1)

    def get_extra_state(self) -> Any:
        return self.cache

    def set_extra_state(self, state: Any) -> None:
        self.cache = state


class CannotYet(LazyExtra):
    """Cannot even be asked."""

    def get_extra_state(self) -> Any:
        assert self.cache is not None
        return self.cache


class LateName(nn.Linear):
    ema: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.ema = torch.zeros(2) if self.ema is None else self.ema + 1
        return super().forward(x) * (self.ema.sum() + 1)

    def state_dict(self, *arguments: Any, **options: Any) -> Any:
        return super().state_dict(*arguments, **options) | ({} if self.ema is None else {"ema": self.ema})

    def load_state_dict(self, entries: Any, strict: bool = True) -> Any:  # type: ignore[override]
        self.ema = entries.pop("ema", None)
        return super().load_state_dict(entries, strict)


class NeedsTraining(LateName):
    def state_dict(self, *arguments: Any, **options: Any) -> Any:
        assert self.ema is not None
        return super().state_dict(*arguments, **options)


class Bank(nn.Linear):
    """A memory that grows with each step."""

    bank: torch.Tensor

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.register_buffer("bank", torch.zeros(0, sizes[1]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        self.bank = torch.cat([self.bank, y.detach()[:1]])
        return y + self.bank.mean(0)


class SizesItsPart(Bank):
    def _load_from_state_dict(self, entries: Any, prefix: str, *rest: Any) -> None:
        self.bank = torch.empty_like(entries[f"{prefix}bank"])
        super()._load_from_state_dict(entries, prefix, *rest)


class SizesByHook(Bank):
    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.register_load_state_dict_pre_hook(self.fit)

    @staticmethod
    def fit(module: Any, entries: dict[str, Any], prefix: str, *rest: Any) -> None:
        module.bank = torch.empty_like(entries[f"{prefix}bank"])


class SizesAll(Bank):
    def load_state_dict(self, entries: Any, strict: bool = True) -> Any:  # type: ignore[override]
        self.bank = torch.empty_like(entries["bank"])
        return super().load_state_dict(entries, strict)


CHILDREN = (LazyExtra, CannotYet, SizesItsPart, SizesByHook)


@pytest.mark.parametrize(("kind", "is_child"), [(k, False) for k in (LateName, NeedsTraining, SizesAll)] + [
    (k, c) for k in CHILDREN for c in (False, True)])  # fmt: skip
def test_what_comes_with_training_comes_back(kind: type[nn.Linear], is_child: bool) -> None:
    def build() -> nn.Module:
        own = kind(4, 2)
        return nn.Sequential(nn.Linear(4, 4), own) if is_child else own

    make = training(build, optimizer=torch.optim.SGD)
    if kind in (CannotYet, NeedsTraining):  # comparing it asks it, too
        (saved, step), (live, _) = make(), make()
        step()
        through(saved, live)
        assert everything(live) == everything(saved)
        return
    assert_resumes(make, at=(1, 3))


@pytest.mark.parametrize("kind", [
    observer.MinMaxObserver, observer.PerChannelMinMaxObserver, observer.MovingAveragePerChannelMinMaxObserver,
    observer.HistogramObserver,
])  # fmt: skip
def test_torchs_observers(kind: Callable[[], nn.Module]) -> None:
    saved, live = nn.Sequential(kind()), nn.Sequential(kind())
    saved(torch.randn(3, 4))
    through({"m": saved}, {"m": live})
    assert everything({"m": live}) == everything({"m": saved})


def refused(saved: nn.Module, live: nn.Module, match: str) -> None:
    """By path, and before anything was written."""
    state: dict[str, Any] = {"first": torch.ones(2), "m": live}
    image, small, _ = evacuate({"first": torch.zeros(2), "m": saved})
    with pytest.raises(StructureError, match=match):
        install(image, small, state)
    assert torch.equal(state["first"], torch.ones(2))


def test_what_torch_loads_must_fit_beforehand() -> None:
    """A model of another size is found before anything is written, also beside a part that loads itself."""

    def beside(layer: nn.Module) -> nn.Module:
        return nn.Sequential(SizesItsPart(4, 2), layer)

    for around in (nn.Sequential, beside):
        at = r"m\.1" if around is beside else r"m\.0"
        refused(
            around(nn.Linear(3, 2)), around(nn.Linear(4, 2)), rf"{at}\.weight was saved as .*\(2, 3\) and is .*\(2, 4\)"
        )
        refused(around(nn.Linear(3, 2)), around(nn.Linear(3, 2, bias=False)), rf"{at}\.bias is saved but not in the live")
        refused(around(nn.Linear(3, 2, bias=False)), around(nn.Linear(3, 2)), rf"{at}\.bias is in the live .*not saved")
        refused(around(LazyExtra(3, 2)), around(nn.Linear(3, 2)), rf"{at}\._extra_state is saved but not in the live")
    bare = nn.Linear(4, 2, bias=False)
    trained = CannotYet(4, 2)
    trained(torch.ones(1, 4))
    trained.bias = None  # type: ignore[assignment]
    refused(trained, CannotYet(4, 2), r"m\.bias is in the live .*not saved")
    refused(bare, CannotYet(4, 2), r"m\.bias is in the live .*not saved")


def test_an_extra_state_that_was_not_saved_is_not_missed() -> None:
    """As in a module that torch loads: it keeps its value."""

    class New(nn.Linear):
        note = "fresh"

        def get_extra_state(self) -> Any:
            return self.note

        def set_extra_state(self, state: Any) -> None:
            self.note = state

    for part in (nn.ReLU, lambda: SizesItsPart(2, 2)):
        saved, live = nn.Sequential(nn.Linear(2, 2), part()), nn.Sequential(New(2, 2), part())
        through({"m": saved}, {"m": live})
        assert live[0].note == "fresh"
        assert torch.equal(live[0].weight, saved[0].weight)


def test_what_another_module_lacks_is_said_by_its_load() -> None:
    """It cannot say what it has before it was trained: then torch misses what was not saved, as it does alone."""
    saved = NeedsTraining(4, 2, bias=False)
    saved(torch.ones(1, 4))
    with pytest.raises(StructureError, match=r"(?s)^m is a NeedsTraining that does not load .*Missing key.*bias"):
        through({"m": saved}, {"m": NeedsTraining(4, 2)})


def test_a_shape_that_its_load_does_not_take_is_said_with_its_path() -> None:
    class Notes(nn.Linear):
        def load_state_dict(self, *arguments: Any, **options: Any) -> Any:
            return super().load_state_dict(*arguments, **options)

    with pytest.raises(StructureError, match=r"(?s)^m is a .*Notes that does not load .*size mismatch for weight"):
        through({"m": Notes(3, 2)}, {"m": Notes(4, 2)})
