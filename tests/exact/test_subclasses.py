"""Tensor subclasses: those with bytes of their own are kept, wrappers of other tensors are refused by name."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from hinan.core.errors import CaptureError, StructureError
from hinan.trainer.attempt.forecast import forecast
from hinan.trainer.state.capture import Capture
from tests.exact.twins import evacuated, restored
from tests.trainer.helpers import through

Parts = dict[str, Any]


def test_a_wrapper_of_tensors_is_refused_by_name() -> None:
    """As parameter and as moment: its address is null, and a copy from there would end the trainer."""
    two = TwoTensor(torch.ones(3), torch.ones(3))
    model = nn.Module()
    model.weight = nn.Parameter(two)
    assert forecast({"model": model}).image_bytes == forecast({}).image_bytes
    with pytest.raises(CaptureError, match=r"model\.weight is a TwoTensor.*__torch_dispatch__.*Keep those instead"):
        Capture({"model": model}).take()
    plain = nn.Linear(3, 1)
    optim = torch.optim.SGD(plain.parameters())
    optim.state[plain.weight]["m"] = two
    with pytest.raises(CaptureError, match=r"optim\.plain\.weight\.m is a TwoTensor"):
        Capture({"plain": plain, "optim": optim}).take()


def test_a_live_wrapper_of_tensors_is_refused_by_name_as_a_parameter_and_replaced_as_a_moment() -> None:
    """The state was saved before its weights were converted."""

    def made(weight: torch.Tensor, moment: torch.Tensor) -> Parts:
        model = nn.Linear(3, 3, bias=False)
        optim = torch.optim.SGD(model.parameters())
        optim.state[model.weight]["m"] = moment
        model.weight.data = weight
        return {"model": model, "optim": optim}

    ones = torch.ones(3, 3)
    live = through(made(ones, ones), made(torch.zeros(3, 3), TwoTensor(ones, ones)))
    assert live["optim"].state[live["model"].weight]["m"].tolist() == ones.tolist()
    converted = made(ones, ones)
    converted["model"].weight = nn.Parameter(TwoTensor(ones, ones))
    converted["optim"] = torch.optim.SGD(converted["model"].parameters())
    with pytest.raises(StructureError, match=r"model\.weight was saved .* is a TwoTensor now.* after restore"):
        through(made(ones, ones), converted)


class Tagged(torch.Tensor):
    """A subclass that has bytes of its own."""


def test_a_moments_class_is_not_kept_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """Bits are. A parameter of such a class is written where it is, and nothing is said of it."""

    def made() -> Parts:
        model = nn.Linear(3, 1)
        model.register_buffer("also", torch.zeros(2).as_subclass(Tagged))
        return {"model": model, "optim": torch.optim.SGD(model.parameters(), momentum=0.9)}

    saved = made()
    saved["optim"].state[saved["model"].weight]["momentum_buffer"] = torch.ones(1, 3).as_subclass(Tagged)
    capture = Capture(saved)
    with caplog.at_level(logging.WARNING, "hinan"):
        capture.take()
        capture.take()
    words = [r.getMessage() for r in caplog.records]
    assert len(words) == 1
    assert words[0].startswith("optim.model.weight.momentum_buffer is a Tagged; a restore makes optim's tensors anew")
    image, small = evacuated(saved)
    live = made()
    restored(image, small, live)
    assert type(live["model"].also) is Tagged
    moment = live["optim"].state[live["model"].weight]["momentum_buffer"]
    assert type(moment) is torch.Tensor and moment.tolist() == [[1, 1, 1]]
