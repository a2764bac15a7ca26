"""What could be saved and not come back is refused at the save, by path; what fails in an object's own words says whose."""

from __future__ import annotations

import signal
from collections import defaultdict
from typing import Any

import pytest
import torch
from torch import nn

import hinan
from hinan.core.errors import BudgetError, CaptureError, StructureError
from hinan.trainer.attempt.forecast import forecast
from hinan.trainer.evacuating.gate import Gate
from hinan.trainer.evacuating.lateness import LateMovers
from tests.trainer.helpers import evacuate, install


class Plain:
    """Says what it is given."""

    def __init__(self, said: Any = None) -> None:
        self.said = said

    def state_dict(self) -> Any:
        return self.said

    def load_state_dict(self, state: Any) -> None:
        self.said = state


class Two(Plain):
    def load_state_dict(self, state: Any, strict: bool) -> None:  # type: ignore[override]
        raise NotImplementedError


class ByKeyword(Plain):
    def load_state_dict(self, *, state_dict: Any) -> None:  # type: ignore[override]
        raise NotImplementedError


class TwoOptimizer(torch.optim.SGD):
    def load_state_dict(self, state_dict: Any, more: Any) -> None:  # type: ignore[override]
        raise NotImplementedError


class TwoScaler(torch.amp.GradScaler):
    def load_state_dict(self, state_dict: Any, more: Any) -> None:  # type: ignore[override]
        raise NotImplementedError


class OnlyGets(nn.Linear):
    def get_extra_state(self) -> Any:
        return {"n": 1}


class SetsTwo(OnlyGets):
    def set_extra_state(self, state: Any, more: Any) -> None:  # type: ignore[override]
        raise NotImplementedError


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Two(), r"cfg\.x is a Two whose load_state_dict\(\) cannot be called with the state alone"),
        (ByKeyword(), r"cfg\.x is a ByKeyword whose load_state_dict\(\) cannot be called"),
        (TwoOptimizer([torch.zeros(1)], lr=1.0), r"cfg\.x is a TwoOptimizer whose"),
        (TwoScaler("cpu"), r"cfg\.x is a TwoScaler whose"),
        (nn.Sequential(OnlyGets(2, 2)), r"cfg\.x\.0\._extra_state is .* OnlyGets that has no set_extra_state\(\)"),
        (SetsTwo(2, 2), r"cfg\.x\._extra_state is .* SetsTwo whose set_extra_state\(\) cannot be called"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_what_could_not_take_its_state_back_is_refused_at_the_save(value: Any, message: str) -> None:
    with pytest.raises(CaptureError, match=f"^{message}"):
        evacuate({"cfg": {"x": value}})


def test_objects_that_only_live_ones_take_are_refused_where_values_are_made_anew() -> None:
    """A module or an optimizer in what a state_dict() says, in a set or deep in a tuple: refused at the save, by path."""
    for value, name in ((nn.Linear(2, 2), "Linear"), (torch.optim.SGD([torch.zeros(1)], lr=1.0), "SGD")):
        for place, path in (
            (Plain({"a": [value]}), r"x\.a\.\[0\]"), ({value}, r"x\.\[0\]"), ((1, [value]), r"x\.\[1\]\.\[0\]"),
        ):  # fmt: skip
            with pytest.raises(CaptureError, match=rf"^{path} is a .*{name} where .* Put it into the state, beside"):
                evacuate({"x": place})
    evacuate({"x": (1, nn.Linear(2, 2)), "y": [{"z": nn.Linear(2, 2)}]})


class Fails:
    """Raises what it is told, wherever it is asked."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def fail(self, *arguments: Any) -> Any:
        raise self.error

    state_dict = fail

    def load_state_dict(self, state: Any) -> None:
        raise NotImplementedError


class FailingExtra(nn.Linear):
    fails = False

    def get_extra_state(self) -> Any:
        return Fails(KeyError("not ready")).fail() if self.fails else {}

    def set_extra_state(self, state: Any) -> None:
        raise NotImplementedError


class Coded(Plain):
    """Carried by a codec that fails."""


class Closed(dict[str, Any]):
    """A mapping whose items cannot be asked for."""

    def values(self) -> Any:
        raise KeyError("not ready")

    items = __iter__ = values


hinan.register_codec(Coded, "tests.asking", Fails(KeyError("not ready")).fail, Coded)


def test_what_raises_as_it_is_asked_is_said_with_its_path() -> None:
    """A state_dict(), an encode(), an extra state that has answered before, and whatever else is asked."""
    from hinan.trainer.state.capture import Capture

    odd = type("Odd", (Plain,), {"state_dict": property(Fails(KeyError("not ready")).fail)})
    for value, path in (
        (Fails(KeyError("not ready")), r"cfg\.x"), (Coded(), r"cfg\.x"), (odd(), r"cfg\.x"), (Closed(), "cfg"),
    ):  # fmt: skip
        with pytest.raises(CaptureError, match=rf"^{path} .*KeyError: 'not ready'"):
            evacuate({"cfg": {"x": value}})
        Gate({"cfg": {"x": value}}).close()
        LateMovers({"cfg": {"x": value}}).at_gate()
        forecast({"cfg": {"x": value}})
    module = nn.Sequential(FailingExtra(2, 2))
    capture = Capture({"m": module})
    capture.take()
    module[0].fails = True  # type: ignore[assignment]
    with pytest.raises(CaptureError, match=r"^m\.0\._extra_state .*get_extra_state\(\) does not answer: KeyError"):
        capture.take()


class Attributes(dict[str, Any]):
    """The usual dict with attributes: what is no key raises a KeyError."""

    __getattr__ = dict.__getitem__


class Growing(defaultdict[str, Any]):
    """One that makes what it is asked for."""

    __getattr__ = defaultdict.__getitem__


class Never:
    """No attribute but what its class has."""

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


@pytest.mark.parametrize("value", [Attributes(n=1), Growing(dict, n=1), Never()], ids=lambda value: type(value).__name__)
def test_what_answers_to_any_attribute_in_a_way_of_its_own_is_refused_by_its_class(value: Any) -> None:
    """By the path of itself, wherever it stands, with the way out; nothing is made in it. A forecast goes past it."""
    for state, path in (
        ({"x": value}, "x"), ({"x": {"cfg": [value]}}, r"x\.cfg\.\[0\]"), ({"x": Plain({"cfg": value})}, r"x\.cfg"),
    ):  # fmt: skip
        with pytest.raises(CaptureError, match=rf"^{path} holds a .*{type(value).__name__}, which .* plain values instead"):
            evacuate(state)
        forecast(state)
    assert not isinstance(value, dict) or list(value) == ["n"]


def test_a_dict_with_attributes_takes_a_dict_that_was_saved() -> None:
    live: dict[str, Any] = {"x": Attributes(n=0, cfg=Attributes(a=0), gone=Attributes(b=1))}
    held = live["x"], live["x"]["cfg"]
    image, small, _ = evacuate({"x": {"n": 1, "cfg": {"a": 2}}})
    install(image, small, live)
    assert live["x"] is held[0] and live["x"]["cfg"] is held[1] and live["x"] == {"n": 1, "cfg": {"a": 2}}
    image, small, _ = evacuate({"x": Plain({"n": 1})})
    with pytest.raises(StructureError, match="x was saved from a stateful, and is a Attributes now"):
        install(image, small, live)


def test_errors_of_hinan_and_of_a_signals_handler_pass() -> None:
    own = BudgetError("no room")
    with pytest.raises(BudgetError, match="no room"):
        evacuate({"s": Fails(own)})

    def handler(number: int, frame: object) -> None:
        raise KeyError("from the handler")

    class Interrupted(Fails):
        def state_dict(self) -> Any:
            signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(KeyError, match="from the handler"):
            evacuate({"s": Interrupted(own)})
    finally:
        signal.signal(signal.SIGUSR1, before)


class Unhashable:
    """What a codec of another version gives."""

    __hash__ = None  # type: ignore[assignment]


def test_a_set_that_cannot_hold_what_a_codec_gives_is_said_with_its_path() -> None:
    hinan.register_codec(Hashable := type("Hashable", (), {}), "tests.hashed", lambda v: 1, lambda v: Unhashable())
    image, small, _ = evacuate({"cfg": {"s": {Hashable()}}})
    with pytest.raises(StructureError, match=r"^cfg\.s cannot be made from what was saved: .*unhashable"):
        install(image, small, {"cfg": {"s": set()}})


class Stubborn(dict[str, Any]):
    """A live mapping whose members cannot be asked for."""

    def __getitem__(self, key: str) -> Any:
        raise OSError(5, "a file of its own")


def test_what_the_live_state_raises_as_it_is_compared_is_said_with_its_path() -> None:
    """It is no damage of the bytes, whatever it raises."""
    image, small, _ = evacuate({"cfg": {"inner": {"a": 1}}, "w": torch.ones(1)})
    live = {"cfg": {"inner": Stubborn(a=2)}, "w": torch.zeros(1)}
    with pytest.raises(
        StructureError, match=r"^cfg\.inner\.a cannot be compared with what was saved: OSError.*file of its own"
    ):
        install(image, small, live)
    assert float(live["w"]) == 0.0  # type: ignore[arg-type]


@pytest.mark.parametrize("inner", [lambda o: torch.optim.lr_scheduler.StepLR(o, 1), lambda o: torch.amp.GradScaler("cpu")])
def test_an_object_that_says_its_state_has_no_place_in_what_another_one_says(inner: Any) -> None:
    """A scheduler that its warm-up holds, say: it would come back as a dict."""

    class Warmup:
        def __init__(self) -> None:
            self.after = inner(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1))

        def state_dict(self) -> dict[str, Any]:
            return {"after": self.after}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.after = state["after"]

    with pytest.raises(CaptureError, match=r"warmup.*after is a .* where a restore makes every value anew"):
        evacuate({"warmup": Warmup()})
