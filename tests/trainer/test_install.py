"""Live objects get exactly what was saved, or nothing at all."""

from __future__ import annotations

import copy
import enum
import logging
import random
import sys
import threading
from collections import Counter, OrderedDict, defaultdict
from typing import Any

import numpy as np
import pytest
import torch

import hinan
from hinan.core.errors import CaptureError, StructureError
from hinan.trainer.restoring import writes
from hinan.trainer.restoring.install import Matcher
from hinan.trainer.restoring.saved import HUGE_BYTES, SavedTensor
from hinan.trainer.state.capture import Capture
from tests.trainer.helpers import bits, evacuate, install, saved_tensors, through


class Color(enum.Enum):
    RED = 1
    BLUE = 2


def trained(optimizer: type[torch.optim.Optimizer] = torch.optim.AdamW, steps: int = 3, **options: Any) -> dict[str, Any]:
    """A model and optimizer after some steps."""
    torch.manual_seed(steps)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    optim = optimizer(model.parameters(), lr=0.01, **options)
    for _ in range(steps):
        model(torch.randn(8, 4)).square().mean().backward()
        optim.step()
        optim.zero_grad()
    return {"model": model, "optim": optim}


def same_optimizer(a: torch.optim.Optimizer, b: torch.optim.Optimizer) -> None:
    """State by parameter position, and options, are bit-equal with equal dtypes and shapes."""
    for p, q in zip(a.param_groups[0]["params"], b.param_groups[0]["params"], strict=True):
        assert list(a.state[p]) == list(b.state[q])
        for name, value in a.state[p].items():
            other = b.state[q][name]
            if isinstance(value, torch.Tensor):
                assert (value.dtype, value.shape, value.device) == (other.dtype, other.shape, other.device)
                assert bits(value) == bits(other)
            else:
                assert value == other
    options = [{k: v for k, v in g.param_groups[0].items() if k != "params"} for g in (a, b)]
    assert options[0] == options[1]


def test_a_fresh_optimizer_gets_its_moments() -> None:
    """A-OPT-6: an untouched AdamW takes moments and step as they were saved, 0-dim float32 steps included (A-OPT-5)."""
    saved, live = trained(), trained(steps=0)
    through(saved, live)
    same_optimizer(saved["optim"], live["optim"])
    for name, tensor in saved["model"].state_dict().items():
        assert bits(live["model"].state_dict()[name]) == bits(tensor)


def test_moments_keep_their_own_dtype() -> None:
    """D8: float32 moments of bfloat16 parameters are not cast to bfloat16."""

    def make() -> dict[str, Any]:
        p = torch.nn.Parameter(torch.randn(4).bfloat16())
        return {"p": [p], "optim": torch.optim.AdamW([p])}

    saved, live = make(), make()
    entry = saved["optim"].state[saved["p"][0]]
    entry.update(step=torch.tensor(2.0), exp_avg=torch.randn(4), exp_avg_sq=torch.rand(4))
    through(saved, live)
    found = live["optim"].state[live["p"][0]]
    assert found["exp_avg"].dtype == torch.float32
    assert bits(found["exp_avg"]) == bits(entry["exp_avg"])


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


def test_partly_stepped_and_top_level_optimizer_state() -> None:
    """A-OPT-1, A-OPT-7: parameters without state stay without; state under a plain key, ints and None survive."""
    model = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)])
    optim = torch.optim.Adam(model.parameters())
    model[0](torch.ones(1, 2)).sum().backward()
    optim.step()
    optim.state["k"] = torch.tensor(7)
    optim.state[model[0].weight]["note"] = None
    live_model = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)])
    live = torch.optim.Adam(live_model.parameters())
    through({"m": model, "o": optim}, {"m": live_model, "o": live})
    assert int(live.state["k"]) == 7
    assert live.state[live_model[0].weight]["note"] is None
    assert set(live.state) == {live_model[0].weight, live_model[0].bias, "k"}


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


@pytest.mark.parametrize("kind", [OrderedDict, dict, lambda **items: defaultdict(list, items)])
def test_members_of_a_dict_come_back_in_their_order(kind: Any) -> None:
    """A-FORMAT-3: they stand in the order they were saved in, behind those that were not saved; all objects stay."""
    saved = {"d": kind(c=1, a=kind(z=1, y=2), b=torch.ones(2))}
    inner, kept = kind(y=0, z=0), torch.zeros(2)
    live = {"d": kind(own=0, a=inner, b=kept)}
    outer = live["d"]
    through(saved, live)
    assert live["d"] is outer and list(outer) == ["own", "c", "a", "b"]
    assert outer["a"] is inner and list(inner.items()) == [("z", 1), ("y", 2)]
    assert outer["b"] is kept and kept.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("keys", [("c", "a", "b"), (3, 1, 2), ("$c", "a", "b"), ("models", "c", "b"), ("parameters",)])
def test_dicts_of_tensors_and_of_objects_come_back_in_their_order(keys: tuple[Any, ...]) -> None:
    """Whatever the keys are; also one whose order has changed between two evacuations, and whose JSON was remembered."""
    model = torch.nn.Linear(2, 2)
    if keys == ("parameters",):
        keys = tuple(model.parameters())[::-1]

    def made(order: tuple[Any, ...]) -> dict[str, Any]:
        return {"d": {k: torch.nn.Linear(1, 1) if k == "models" else torch.zeros(2) for k in order}, "model": model}

    saved, live = made(keys[::-1]), made(keys[::-1])
    members = dict(live["d"])
    capture = Capture(saved)
    capture.take()
    saved["d"][keys[-1]] = saved["d"].pop(keys[-1])
    order = list(saved["d"])
    assert capture.take().values == Capture(saved).take().values
    through(saved, live)
    assert [id(k) if isinstance(k, torch.Tensor) else k for k in live["d"]] == [
        id(k) if isinstance(k, torch.Tensor) else k for k in order
    ]
    assert all(live["d"][key] is members[key] for key in order)


def test_a_dict_that_is_in_order_keeps_what_is_its_own_where_it_is() -> None:
    live = {"d": {"a": 0, "own": 0, "b": 0}}
    through({"d": {"a": 1, "b": 2}}, live)
    assert list(live["d"].items()) == [("a", 1), ("own", 0), ("b", 2)]


def test_an_interrupt_leaves_all_members_of_a_dict_that_is_put_in_order() -> None:
    """A handler may raise between any two instructions; the next restore must find the objects that it writes into."""

    def raised_at(count: int) -> bool:
        live = {"a": 0, "b": 1, "c": 2}

        def trace(frame: Any, event: str, argument: object) -> Any:
            nonlocal count
            frame.f_trace_opcodes = True
            count -= event == "opcode"
            if not count:
                raise KeyboardInterrupt
            return trace

        sys.settrace(trace)
        try:
            writes.put_in_order(live, ["b", "a", "c"])
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(None)
            assert dict(sorted(live.items())) == {"a": 0, "b": 1, "c": 2}
        assert list(live) == ["b", "a", "c"]
        return False

    count = 1
    while raised_at(count):
        count += 1
    assert count > 50


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


def moments(state: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors of an optimizer's state."""
    return [value for entry in state["optim"].state.values() for value in entry.values()]


def test_moments_that_fit_are_written_in_place() -> None:
    """A live optimizer keeps its tensors, with the saved bits in them; nothing is written before the writes are called."""
    saved, live = trained(), trained(steps=1)
    mine, before = moments(live), [bits(m) for m in moments(live)]
    image, small, _ = evacuate(saved)
    writes = Matcher(saved_tensors(image), live).match(small["state"], live)
    assert [bits(m) for m in mine] == before
    for write in writes:
        write()
    assert all(a is b for a, b in zip(moments(live), mine, strict=True))
    same_optimizer(saved["optim"], live["optim"])


@pytest.mark.parametrize("kind", ["dtype", "shape", "strided", "part", "shared", "captured", "parameter", "subclass"])
def test_a_moment_that_does_not_fit_or_is_not_its_own_is_replaced(kind: str) -> None:
    """Another dtype, shape or layout, a part of a larger storage, one shared with another moment, a captured tensor or the
    parameter itself: the live tensor stays as it is, and the optimizer gets a new one."""
    saved, live = trained(), trained(steps=1)
    weight = live["model"][0].weight
    entry = live["optim"].state[weight]
    other: Any = torch.full_like(weight, 7.0)
    match kind:
        case "dtype":
            other = other.double()
        case "shape":
            other = other[:2].clone()
        case "strided":
            other = other.T.contiguous().T
        case "part":
            other = torch.full((3, *weight.shape), 7.0)[1]
        case "shared":
            live["optim"].state[live["model"][2].weight]["exp_avg_sq"] = other[:2]
        case "captured":
            saved["more"], live["more"] = torch.full_like(weight, 3.0), other
        case "parameter":
            other = weight.detach()
        case "subclass":
            other = torch.nn.Parameter(other, requires_grad=False)
    entry["exp_avg"] = other
    through(saved, live)
    assert live["optim"].state[weight]["exp_avg"] is not other
    same_optimizer(saved["optim"], live["optim"])
    expected = {"captured": saved.get("more"), "parameter": saved["model"][0].weight}.get(kind, torch.full_like(other, 7.0))
    assert bits(other) == bits(expected)


@pytest.mark.parametrize("overlap", [False, True])
def test_copies_in_two_threads_are_those_of_one(overlap: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large copies are shared by two threads; live tensors in one storage are written in order, by one."""
    monkeypatch.setattr(writes, "WORTH_A_THREAD_BYTES", 1)
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


def test_a_moment_that_is_a_parameter_nobody_captured_is_replaced() -> None:
    """An optimizer whose parameters are in no module: its moments never write into them."""
    p, q = torch.nn.Parameter(torch.full((3,), 1.0)), torch.nn.Parameter(torch.full((3,), 2.0))
    saved, live = torch.optim.SGD([p], momentum=0.9), torch.optim.SGD([q], momentum=0.9)
    saved.state[p]["momentum_buffer"] = torch.full((3,), 5.0)
    live.state[q]["momentum_buffer"] = q.detach()
    through({"optim": saved}, {"optim": live})
    assert q.tolist() == [2.0] * 3
    assert live.state[q]["momentum_buffer"].tolist() == [5.0] * 3


@pytest.mark.parametrize("keys", [("a", "b"), (1, 2), ("$x", "b"), ("\udcff", "b"), (True, None)])
def test_dicts_of_tensors_keep_their_keys(keys: tuple[object, ...]) -> None:
    """Whatever the keys are, and also at the second evacuation, which takes a shorter way."""
    saved = {"d": dict(zip(keys, (torch.ones(2), torch.zeros(2)), strict=True))}
    capture = Capture(saved)
    assert capture.take().values == capture.take().values
    live = through(saved, {"d": {}})
    assert list(live["d"]) == list(keys)
    assert torch.equal(live["d"][keys[0]], torch.ones(2))


def test_names_that_are_gone_are_forgotten() -> None:
    """A state keyed by the step never uses a name twice; what is remembered of them stays bounded."""
    state: dict[str, Any] = {"t": {}}
    capture = Capture(state)
    for step in range(6000):
        state["t"] = {f"step {step}": torch.zeros(1), "more": {str(step): [torch.ones(1)]}}
        capture.take()
    assert len(capture._leaves) + len(capture._many_known) < 1200
