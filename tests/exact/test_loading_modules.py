"""Modules that save or load themselves: by their own methods and hooks, and still with the tensors that are trained."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from hinan.core.errors import StructureError
from hinan.trainer.attempt.forecast import forecast
from hinan.trainer.state.modules import ModuleTensors
from tests.exact.twins import Step, assert_resumes
from tests.trainer.helpers import evacuate, install, through


class Scaled(nn.Module):
    """What it computes with is derived from a buffer, and no part of its state_dict."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 2)
        self.register_buffer("scale", torch.ones(4))
        self.rebuild()

    def rebuild(self) -> None:
        self.inverse = 1 / self.scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.scale.mul_(1.25)
        self.rebuild()
        y: torch.Tensor = self.lin(x * self.inverse)
        return y


class PostHook(Scaled):
    def __init__(self) -> None:
        super().__init__()
        self.register_load_state_dict_post_hook(lambda module, keys: module.rebuild())


class LoadStateDict(Scaled):
    def load_state_dict(self, *arguments: Any, **options: Any) -> Any:
        found = super().load_state_dict(*arguments, **options)
        self.rebuild()
        return found


class LoadsItsPart(Scaled):
    def _load_from_state_dict(self, *arguments: Any) -> None:
        super()._load_from_state_dict(*arguments)
        self.rebuild()


class PreHook(Scaled):
    def __init__(self) -> None:
        super().__init__()
        self._register_load_state_dict_pre_hook(self._before)

    def _before(self, entries: dict[str, Any], prefix: str, *rest: Any) -> None:
        self.inverse = 1 / entries[prefix + "scale"]


class Noted(Scaled):
    """An entry that is no tensor, without get_extra_state."""

    gain = 1.0

    def state_dict(self, *arguments: Any, **options: Any) -> Any:
        entries = super().state_dict(*arguments, **options)
        entries["gain"] = self.gain
        return entries

    def load_state_dict(self, entries: Any, *rest: Any, **options: Any) -> Any:
        self.gain = entries.pop("gain")
        found = super().load_state_dict(entries, *rest, **options)
        self.rebuild()
        return found


class SavesItsPart(LoadsItsPart):
    gain = 1.0

    def _save_to_state_dict(self, entries: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(entries, prefix, keep_vars)
        entries[prefix + "gain"] = self.gain

    def _load_from_state_dict(self, entries: dict[str, Any], prefix: str, *rest: Any) -> None:
        self.gain = entries.pop(prefix + "gain")
        super()._load_from_state_dict(entries, prefix, *rest)


class Version2(LoadsItsPart):
    """Takes states of no or an older version for ones in other units."""

    _version = 2

    def _load_from_state_dict(self, entries: dict[str, Any], prefix: str, about: dict[str, Any], *rest: Any) -> None:
        if about.get("version", 1) < 2:
            entries[prefix + "scale"] = entries[prefix + "scale"] * 100
        super()._load_from_state_dict(entries, prefix, about, *rest)


OF_A_CHILD_TOO = (PostHook, LoadsItsPart, PreHook, SavesItsPart, Version2)


@pytest.mark.parametrize(("kind", "is_child"), [(k, False) for k in (LoadStateDict, Noted)] + [
    (k, c) for k in OF_A_CHILD_TOO for c in (False, True)])  # fmt: skip
def test_a_module_loads_itself(kind: type[Scaled], is_child: bool) -> None:
    """What it derives as it is loaded is that of the saved values, not of the fresh module."""

    def make() -> tuple[dict[str, Any], Step]:
        own = kind()
        model = nn.Sequential(nn.Linear(4, 4), own) if is_child else own
        optim = torch.optim.AdamW(model.parameters(), lr=0.01)

        def step() -> torch.Tensor:
            optim.zero_grad()
            loss = (model(torch.randn(3, 4)) * own.inverse.sum() * getattr(own, "gain", 1.0)).square().mean()
            loss.backward()
            optim.step()
            if hasattr(own, "gain"):
                own.gain *= 0.9
            return loss.detach()

        return {"model": model, "optim": optim}, step

    straight, resumed = assert_resumes(make, at=(1, 3))
    ends = [state["model"][1] if is_child else state["model"] for state in (straight, resumed)]
    assert torch.equal(ends[0].inverse, ends[1].inverse)


def test_what_is_derived_is_there_before_the_first_forward() -> None:
    for kind in (LoadStateDict, Noted, *OF_A_CHILD_TOO):
        saved, live = kind(), kind()
        saved(torch.ones(1, 4))
        through({"m": saved}, {"m": live})
        assert torch.equal(live.inverse, saved.inverse), kind


class Kept(nn.Linear):
    """Keeps the very tensors that it is given."""

    def load_state_dict(self, entries: Any, strict: bool = True, assign: bool = False) -> Any:
        return super().load_state_dict(entries, strict, assign=True)


def test_only_modules_that_load_themselves_and_their_children_are_given_copies() -> None:
    """A child's own way of loading must not cost a copy of all of a large model."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(PostHook(), nn.Linear(2, 2)), nn.Linear(2, 2))
    assert set(filter(ModuleTensors(model, "model").is_given, model.state_dict())) == {
        "1.0.lin.weight",
        "1.0.lin.bias",
        "1.0.scale",
    }


def test_torchs_own_modules_are_written_in_place() -> None:
    """BatchNorm brings old states up to date, parametrizations hook into the loading: neither changes one of today."""
    model = nn.Sequential(
        nn.BatchNorm1d(4), nn.InstanceNorm1d(4, affine=True), nn.MultiheadAttention(4, 2), nn.LSTM(4, 4),
        nn.TransformerEncoderLayer(4, 2, 8), nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)),
        nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)), nn.utils.parametrizations.orthogonal(nn.Linear(4, 4)),
        nn.utils.spectral_norm(nn.Linear(4, 4)), torch.optim.swa_utils.AveragedModel(nn.Linear(4, 4)),
        torch.compile(nn.Linear(4, 4), backend="eager"),
    )  # fmt: skip
    assert ModuleTensors(model, "model").is_plain(model.state_dict())


@pytest.mark.parametrize("held_by", ["optimizer", "another module", "a list", "a key", "nobody"])
def test_a_module_that_keeps_what_it_is_given_parts_from_nobody_in_silence(held_by: str) -> None:
    """A model that loads with assign=True is no longer the one that its optimizer trains."""

    def make() -> dict[str, Any]:
        model = Kept(4, 4)
        match held_by:
            case "optimizer":
                return {"model": model, "optim": torch.optim.SGD(model.parameters(), lr=0.1)}
            case "another module":
                other = nn.Linear(4, 4)
                other.weight = model.weight
                return {"other": nn.Sequential(other), "model": model}
            case "a list":
                return {"model": model, "list": [model.weight]}
            case "a key":
                return {"model": model, "averages": {model.weight: torch.zeros(4, 4)}}
        return {"model": model}

    if held_by == "nobody":
        saved, live = make(), make()
        through(saved, live)
        assert torch.equal(saved["model"].weight, live["model"].weight)
        return
    with pytest.raises(StructureError, match=r"model\.weight .*were one tensor.*assign=True"):
        through(make(), make())


def test_another_dtype_is_refused_before_anything_is_written() -> None:
    """As for a module that is written in place: its own loading would cast."""
    saved, live = PostHook(), PostHook().double()
    image, small, _ = evacuate({"m": saved})
    before = live.lin.weight.detach().clone()
    with pytest.raises(StructureError, match=r"m\.scale was saved as torch\.float32"):
        install(image, small, {"m": live})
    assert torch.equal(live.lin.weight, before)


def test_the_forecast_says_what_it_cannot_tell() -> None:
    assert forecast({"m": PostHook()}).unknown == []
    assert forecast({"m": nn.Sequential(SavesItsPart())}).unknown == ["what m (Sequential) adds to its state_dict"]
