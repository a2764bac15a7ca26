"""Dicts come back with their keys, and in the order that they were saved in."""

from __future__ import annotations

import logging
import random
import sys
from collections import Counter, OrderedDict, defaultdict
from typing import Any

import numpy as np
import pytest
import torch

from hinan.trainer.restoring import writes
from hinan.trainer.state.capture import Capture
from tests.trainer.helpers import through


@pytest.mark.parametrize("kind", [OrderedDict, dict, lambda **items: defaultdict(list, items)])
def test_members_of_a_dict_come_back_in_their_order(kind: Any) -> None:
    """A-FORMAT-3: they stand in the order they were saved in, behind an object that is new; all objects stay."""
    saved = {"d": kind(c=1, a=kind(z=1, y=2), b=torch.ones(2))}
    inner, kept = kind(y=0, z=0), torch.zeros(2)
    live = {"d": kind(own=torch.nn.Linear(1, 1), a=inner, b=kept)}
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
    own = torch.nn.Linear(1, 1)
    live = {"d": {"a": 0, "own": own, "b": 0}}
    through({"d": {"a": 1, "b": 2}}, live)
    assert list(live["d"].items()) == [("a", 1), ("own", own), ("b", 2)]


@pytest.mark.parametrize("kind", [dict, OrderedDict, Counter, lambda items: defaultdict(int, items)])
def test_keys_that_were_taken_out_do_not_come_back(kind: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A queue of work that is done must not be handed out again. One warning says which, however many."""
    live = {"todo": kind({f"shard{i}": i for i in range(9)})}
    queue = live["todo"]
    saved = {"todo": kind({f"shard{i}": i for i in (7, 8)})}
    with caplog.at_level(logging.WARNING, "hinan"):
        through(saved, live)
    assert live["todo"] is queue and dict(queue) == {"shard7": 7, "shard8": 8}
    assert len(caplog.records) == 1
    assert "todo comes back as it was saved, without 7 of its keys now: todo.shard0, todo.shard1" in caplog.text
    assert "shard3, …" in caplog.text and "after restore()" in caplog.text


def test_objects_that_are_new_in_a_dict_stay(caplog: pytest.LogCaptureFixture) -> None:
    """What loads a state, draws numbers or is trained is an object of the program's, also inside a container."""
    weight = torch.zeros(1, requires_grad=True)
    own: dict[str, Any] = {
        "model": torch.nn.Linear(1, 1), "optim": torch.optim.SGD([weight]), "inner": {"models": [torch.nn.Linear(1, 1)]},
        "rng": np.random.default_rng(1), "draws": (random.Random(1),), "torch": torch.Generator(), "weight": weight,
    }  # fmt: skip
    live = {"d": {"a": 0, **own, "data": {"b": [torch.zeros(1)]}}}
    with caplog.at_level(logging.WARNING, "hinan"):
        through({"d": {"a": 1}}, live)
    assert live["d"] == {"a": 1, **own}
    assert all(f"d.{name} was not saved; its value stays" in caplog.text for name in own)


@pytest.mark.parametrize("kind", [dict, Counter])
def test_an_interrupt_leaves_all_members_of_a_dict_that_is_put_in_order(kind: Any) -> None:
    """A handler may raise between any two instructions; the next restore must find the objects that it writes into."""

    def raised_at(count: int) -> bool:
        live = kind({"a": 0, "b": 1, "c": 2})

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


@pytest.mark.parametrize("keys", [("a", "b"), (1, 2), ("$x", "b"), ("\udcff", "b"), (True, None)])
def test_dicts_of_tensors_keep_their_keys(keys: tuple[object, ...]) -> None:
    """Whatever the keys are, and also at the second evacuation, which takes a shorter way."""
    saved = {"d": dict(zip(keys, (torch.ones(2), torch.zeros(2)), strict=True))}
    capture = Capture(saved)
    assert capture.take().values == capture.take().values
    live = through(saved, {"d": {}})
    assert list(live["d"]) == list(keys)
    assert torch.equal(live["d"][keys[0]], torch.ones(2))
