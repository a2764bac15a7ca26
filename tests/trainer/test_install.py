"""Live objects get exactly what was saved, or nothing at all."""

from __future__ import annotations

import copy
import enum
import logging
import random
import threading
from collections import Counter, OrderedDict
from typing import Any

import numpy as np
import pytest
import torch

import hinan
from hinan.core.errors import CaptureError, StructureError
from hinan.trainer.ports import halves
from hinan.trainer.restoring import writes
from hinan.trainer.restoring.saved import HUGE_BYTES, SavedTensor
from hinan.trainer.state.capture import Capture
from tests.trainer.helpers import bits, evacuate, install, through, trained


class Color(enum.Enum):
    RED = 1
    BLUE = 2


def test_saving_changes_nothing_live() -> None:
    """A-OPT-3, rule D8: an optimizer without state has none after an evacuation, and tensors keep storage and version."""
    state = trained(steps=0)
    before = {n: (t.data_ptr(), t._version, t.is_shared()) for n, t in state["model"].state_dict(keep_vars=True).items()}
    rng = torch.get_rng_state()
    evacuate(state)
    assert len(state["optim"].state) == 0
    after = {n: (t.data_ptr(), t._version, t.is_shared()) for n, t in state["model"].state_dict(keep_vars=True).items()}
    assert before == after
    assert torch.equal(rng, torch.get_rng_state())


def test_plain_values_go_back_into_the_same_containers() -> None:
    """Dicts and lists are changed in place, tensors in them too; every kind of plain value keeps its type."""
    values: dict[str, Any] = {
        "int": 3, "big": 2**70, "float": 0.1, "nan": float("nan"), "minus_zero": -0.0, "inf": float("-inf"), "none": None,
        "text": "ü$", "bytes": b"\0x", "tuple": (1, (2, "a")), "complex": 1 - 2j, "set": {1, 2}, "$key": {"$tuple": 1},
        "int_keys": {1: "a", "1": "b", (2, 3): 4}, "ordered": OrderedDict(b=1, a=2), "counter": Counter("aab"),
        "dtype": torch.float16, "size": torch.Size([2, 3]), "device": torch.device("cpu"), "numpy": np.float32(0.1),
        "array": np.arange(6, dtype=np.uint32).reshape(2, 3), "large": np.arange(20000.0), "slice": slice(1, None, 2),
        "random": random.getstate(), "rng": np.random.get_state(), "pcg": np.random.default_rng(3).bit_generator.state,
        "a.b": torch.ones(1), "a": {"b": torch.zeros(1)}, "list": [1, [torch.full((2,), 5.0)]], "color": Color.BLUE,
    }  # fmt: skip
    live = copy.deepcopy(values) | {"int": 0, "color": Color.RED, "list": [9, [torch.zeros(2)], "extra"]}
    inner, kept = live["list"], live["list"][1][0]
    through({"v": values}, {"v": live})
    assert live["list"] is inner
    assert live["list"][1][0] is kept
    assert bits(kept) == bits(values["list"][1][0])
    assert len(live["list"]) == 2
    assert repr({k: v for k, v in live.items() if k != "large"}) == repr({k: v for k, v in values.items() if k != "large"})
    assert {k: type(v) for k, v in live.items()} == {k: type(v) for k, v in values.items()}
    assert np.array_equal(live["large"], values["large"])


def test_generators_and_statefuls() -> None:
    """A torch.Generator and a scheduler in the state draw and step on as the saved ones do."""
    saved, live = torch.Generator().manual_seed(7), torch.Generator().manual_seed(1)
    torch.rand(5, generator=saved)
    optim = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    a = torch.optim.lr_scheduler.MultiStepLR(optim, [2, 4])
    for _ in range(3):
        optim.step()
        a.step()
    b = torch.optim.lr_scheduler.MultiStepLR(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0), [2, 4])
    through({"g": saved, "s": a}, {"g": live, "s": b})
    assert torch.equal(torch.rand(3, generator=live), torch.rand(3, generator=saved))
    assert b.state_dict() == a.state_dict()
    b.optimizer.step()
    b.step()  # a Counter that came back as a dict would raise here


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.update(extra=1), "extra"),
        (lambda s: s.pop("optim"), "optim"),
        (lambda s: s.update(model=torch.nn.Linear(4, 4)), r"model\."),
        (lambda s: s.update(model=trained()["model"].double()), "float64"),
        (lambda s: s.update(optim=torch.optim.SGD([s["model"][0].weight], lr=0.1)), "group 0"),
        (lambda s: s.update(model=3), "module"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(change: Any, message: str) -> None:
    """A-TRUST-3, A-TRUST-4: names, shapes, dtypes and kinds must match; the message names the place; nothing changed."""
    saved, live = trained(), trained(steps=1)
    change(live)
    before = (
        {k: bits(v) for k, v in live["model"].state_dict().items()} if isinstance(live["model"], torch.nn.Module) else {}
    )
    image, small, _ = evacuate(saved)
    with pytest.raises(StructureError, match=message):
        install(image, small, live)
    if before:
        assert before == {k: bits(v) for k, v in live["model"].state_dict().items()}


def test_a_new_option_keeps_its_default_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A-FORMAT-2: a group option that the saved optimizer did not have stays, and is named."""
    saved, live = trained(), trained(steps=0)
    del saved["optim"].param_groups[0]["amsgrad"]
    with caplog.at_level(logging.WARNING, "hinan"):
        through(saved, live)
    assert "optim.amsgrad" in caplog.text
    assert live["optim"].param_groups[0]["amsgrad"] is False


def test_values_that_need_code_are_refused_with_their_path() -> None:
    """No pickle: a function, an object, a plain DataLoader are refused by path and type, with the way out."""
    for value, name in ((lambda: 1, "function"), (object(), "object")):
        with pytest.raises(CaptureError, match=rf"cfg\.x\.\[0\].*{name}.*register_codec"):
            evacuate({"cfg": {"x": [value]}})
    with pytest.raises(CaptureError, match="StatefulDataLoader"):
        evacuate({"data": torch.utils.data.DataLoader([1, 2])})


def test_a_registered_codec_carries_an_object() -> None:
    """A codec turns an object into plain values and tensors, and back; its name is what the file holds."""

    class Point:
        def __init__(self, x: int, t: torch.Tensor) -> None:
            self.x, self.t = x, t

    hinan.register_codec(Point, "tests.point", lambda p: {"x": p.x, "t": p.t}, lambda v: Point(v["x"], v["t"]))
    live = {"p": Point(0, torch.zeros(2))}
    through({"p": Point(3, torch.ones(2))}, live)
    assert live["p"].x == 3
    assert bits(live["p"].t) == bits(torch.ones(2))


def test_module_hooks_and_extra_state() -> None:
    """A state_dict hook that renames entries, and get_extra_state, are honoured both ways."""

    class Extra(torch.nn.Linear):
        note: Any = "fresh"

        def get_extra_state(self) -> Any:
            return {"note": self.note}

        def set_extra_state(self, state: Any) -> None:
            self.note = state["note"]

    saved, live = Extra(2, 2), Extra(2, 2)
    saved.note = ("saved", 3)
    through({"m": saved}, {"m": live})
    assert live.note == ("saved", 3)

    class Renamed(torch.nn.Linear):
        def __init__(self) -> None:
            super().__init__(2, 2)
            self._register_state_dict_hook(lambda m, d, p, meta: d.update({p + "kernel": d.pop(p + "weight")}))
            self._register_load_state_dict_pre_hook(lambda d, p, *rest: d.update({p + "weight": d.pop(p + "kernel")}))

    a, b = Renamed(), Renamed()
    through({"m": a}, {"m": b})
    assert bits(a.weight) == bits(b.weight)

    class Both(Renamed, Extra):
        pass

    a, b = Both(), Both()
    a.note = "saved"
    through({"m": a}, {"m": b})
    assert (bits(a.weight), b.note) == (bits(b.weight), "saved")


def test_an_extra_state_that_was_not_saved_is_said(caplog: pytest.LogCaptureFixture) -> None:
    class Extra(torch.nn.Linear):
        def get_extra_state(self) -> Any:
            return 3

        def set_extra_state(self, state: Any) -> None:
            raise AssertionError

    with caplog.at_level(logging.WARNING, "hinan"):
        through({"m": torch.nn.Sequential(torch.nn.Linear(2, 2))}, {"m": torch.nn.Sequential(Extra(2, 2))})
    assert [r.message for r in caplog.records] == ["restore.default m.0._extra_state was not saved; its value stays"]


@pytest.mark.parametrize("tied", [True, False])
def test_a_tie_that_is_gone_is_said(tied: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Both get its values, and training would part them."""

    def make(tied: bool) -> torch.nn.Module:
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
        if tied:
            model[1].weight, model[1].bias = model[0].weight, model[0].bias
        return model

    saved, live = make(tied=True), make(tied)
    with caplog.at_level(logging.WARNING, "hinan"):
        through({"m": saved, "row": saved[0].weight[0]}, {"m": live, "row": live[0].weight[0]})
    assert bits(live[1].weight) == bits(saved[0].weight)
    assert [r.message.partition(";")[0] for r in caplog.records] == [
        "restore.untied m.0.weight and m.1.weight were one tensor when they were saved, and are two now (2 such pairs)"
    ] * (not tied)


@pytest.mark.parametrize("overlap", [False, True])
def test_copies_in_two_threads_are_those_of_one(overlap: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large copies are shared by two threads; live tensors in one storage are written in order, by one."""
    monkeypatch.setattr(halves, "WORTH_A_THREAD_BYTES", 1)
    base = torch.zeros(600)
    lives = [base[:400], base[200:]] if overlap else [torch.zeros(n) for n in (5, 1, 0, 300, 2)]
    saved = [torch.rand(t.shape) for t in lives]
    copies, threads = writes.Copies(), set()
    copies.pairs = list(zip(lives, map(SavedTensor, saved), strict=True))
    write = SavedTensor.write_over
    monkeypatch.setattr(
        SavedTensor, "write_over", lambda self, live: (threads.add(threading.current_thread().name), write(self, live))
    )
    copies()
    assert (threads == {threading.current_thread().name}) is overlap
    assert len(threads) == (1 if overlap else 2)
    if overlap:
        assert bits(base) == bits(torch.cat([saved[0][:200], saved[1]]))
    else:
        assert [bits(t) for t in lives] == [bits(t) for t in saved]


def test_a_large_new_tensor_is_a_copy_of_its_own() -> None:
    """A fresh optimizer's moments do not look into the image, whatever way they were copied."""
    saved = torch.rand(HUGE_BYTES // 4 + 3)
    made = SavedTensor(saved).copy()
    assert bits(made) == bits(saved)
    saved.zero_()
    assert float(made.sum()) > 0


def test_names_that_are_gone_are_forgotten() -> None:
    """A state keyed by the step never uses a name twice; what is remembered of them stays bounded."""
    state: dict[str, Any] = {"t": {}}
    capture = Capture(state)
    for step in range(6000):
        state["t"] = {f"step {step}": torch.zeros(1), "more": {str(step): [torch.ones(1)]}}
        capture.take()
    assert len(capture._leaves) + len(capture._many_known) < 1200
