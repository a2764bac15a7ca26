"""What the loop holds is what comes back: containers, arrays and tensors are written in place, wherever they are."""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from typing import Any

import numpy as np
import pytest
import torch

from hinan.core.errors import StructureError
from hinan.trainer.restoring.install import Matcher
from tests.trainer.helpers import evacuate, install, saved_tensors, through

Pair = namedtuple("Pair", "left right")
BIG = 20_000
"""More elements than travel in the JSON."""


class Weighed(np.ndarray):  # type: ignore[type-arg]
    """An array that may know more than its values."""


def read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("live", "saved"),
    [
        (np.zeros(3), np.array([1.0, -0.0, np.nan])),
        (np.zeros(BIG, np.int64), np.arange(BIG)),
        (np.zeros((BIG, 2))[::-1, 1], np.arange(float(BIG))),
        (np.zeros((4, 6))[1:3, ::2], np.arange(6.0).reshape(2, 3)),
        (np.zeros((4, 3)).T, np.arange(12.0).reshape(3, 4)),
        (np.zeros(()), np.array(3.0)),
        (np.zeros(2, "S3"), np.array([b"ab", b"cde"])),
        (np.zeros(3, ">i4"), np.arange(3, dtype=">i4")),
        (set(), {1, 2}),
        ({1, 5}, {1, 2}),
        (Counter("ab"), Counter("bbc")),
        (bytearray(2), bytearray(b"xy")),
        (bytearray(2), bytearray(b"longer")),
        ([0, 1, 2], [3]),
        ([], [1, [2]]),
        ({}, {"a": 1}),
        (OrderedDict(), OrderedDict(a=1)),
        (defaultdict(int), defaultdict(int, a=1)),
    ],
)
@pytest.mark.parametrize("inside", ["dict", "list", "tuple"])
def test_what_the_loop_holds_is_written_in_place(live: Any, saved: Any, inside: str) -> None:
    live = live.copy() if not isinstance(live, np.ndarray) else live
    put = {"dict": lambda v: {"v": v}, "list": lambda v: [v], "tuple": lambda v: ((v,), "a")}[inside]
    state = {"x": put(live)}
    outer = state["x"]
    through({"x": put(saved)}, state)
    (now,) = (state["x"]["v"],) if inside == "dict" else (state["x"][0],) if inside == "list" else state["x"][0]
    assert now is live
    assert type(now) is type(saved)
    if isinstance(saved, np.ndarray):
        assert now.dtype == saved.dtype and now.tobytes() == saved.tobytes()
    else:
        assert now == saved
    if inside == "tuple":
        assert state["x"][0] is outer[0]


@pytest.mark.parametrize(
    "live",
    [np.zeros(2), np.zeros(3, np.float32), read_only(np.zeros(3)), np.zeros((3, 1)), np.zeros(3).view(Weighed), None, [0]],
)
@pytest.mark.parametrize("times", [1, BIG])
def test_arrays_that_cannot_be_written_are_replaced(live: Any, times: int) -> None:
    saved = np.tile(np.arange(3.0), times)
    state = {"x": live if times == 1 else np.tile(live, times) if isinstance(live, np.ndarray) else live}
    if isinstance(live, np.ndarray) and not live.flags.writeable:
        read_only(state["x"])
    before = state["x"]
    through({"x": saved}, state)
    assert state["x"] is not before and state["x"].dtype == saved.dtype and np.array_equal(state["x"], saved)


def test_tuples_stay_where_all_they_hold_does() -> None:
    """Tensors, containers and generators in tuples, however deep; a named tuple keeps its class."""
    held: list[Any] = [torch.zeros(2), [0], {"a": 0}, torch.Generator(), np.random.default_rng(1)]
    tensor, items, mapping, torchs, numpys = held
    live = {"x": ((tensor,), items, Pair(mapping, (torchs, numpys)))}
    outer = live["x"]
    wanted = torch.Generator().manual_seed(7), np.random.default_rng(8)
    through({"x": ((torch.ones(2),), [1, 2], ({"a": 1}, wanted))}, live)
    assert live["x"] is outer and isinstance(outer[2], Pair)
    assert tensor.tolist() == [1, 1] and items == [1, 2] and mapping == {"a": 1}
    assert torchs.initial_seed() == 7 and numpys.random() == wanted[1].random()


def test_a_tuple_with_another_number_is_a_new_one_around_the_same_objects() -> None:
    items = [0]
    live = {"x": (0, (1.5, items))}
    through({"x": (1, (2.5, [7]))}, live)
    assert live["x"] == (1, (2.5, [7])) and live["x"][1][1] is items


def test_one_object_at_two_places_is_written_once() -> None:
    one = [0]
    live = {"a": one, "b": {"c": (one,)}}
    both = [1, 2, torch.ones(1)]
    through({"a": both, "b": {"c": (both,)}}, live)
    assert live["a"] is live["b"]["c"][0] is one and one[:2] == [1, 2] and len(one) == 3


@pytest.mark.parametrize("kind", [list, set, bytearray, lambda items: np.array(items, np.int8)])
def test_places_that_hold_one_object_and_held_two_get_two(kind: Any) -> None:
    """`best = now = []` at the start, and two lists later on."""
    one = kind([0])
    live = {"a": one, "b": one}
    through({"a": kind([1]), "b": kind([2])}, live)
    assert live["a"] is one and list(live["a"]) == [1]
    assert live["b"] is not one and list(live["b"]) == [2]


def test_arrays_that_look_into_each_other_are_both_written() -> None:
    whole, saved = np.zeros(4), np.arange(4.0)
    live = {"whole": whole, "part": whole[:2], "rest": whole[2:]}
    parts = dict(live)
    through({"whole": saved, "part": saved[:2], "rest": saved[2:]}, live)
    assert all(live[name] is part for name, part in parts.items()) and whole.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("room", [None, 3, 2])
def test_a_deque_that_stands_for_a_list(room: int | None) -> None:
    live = {"x": deque([9], room)}
    held = live["x"]
    through({"x": [1, 2, 3]}, live)
    assert list(live["x"]) == [1, 2, 3] and (live["x"] is held) == (room != 2)


@pytest.mark.parametrize("before", [[], [torch.zeros(2), 7], [0] * 3])
def test_a_deque_takes_what_was_saved_where_it_stands(before: list[Any]) -> None:
    """A window of losses, a replay buffer: the loop holds it. Its tensors go by name, and share what they shared."""
    held = deque(before, 3)
    first = next((item for item in held if isinstance(item, torch.Tensor)), None)
    live = {"x": held, "y": (held, 0)}
    one = torch.ones(2)
    saved = deque([one, [1.5], one], 3)
    image, small, _ = evacuate({"x": saved, "y": (saved, 1)})
    assert small["state"]["x"] == {"$deque": [3, [{"$tensor": ["x.[0]", "cpu"]}, [1.5], {"$tensor": ["x.[2]", "cpu"]}]]}
    install(image, small, live)
    assert live["x"] is live["y"][0] is held and len(held) == 3 and held[1] == [1.5] and live["y"][1] == 1
    assert held[0].tolist() == [1, 1] and held[0].data_ptr() == held[2].data_ptr() and (first is None or held[0] is first)


def test_a_deque_where_none_stands_is_made_anew() -> None:
    saved = {"x": deque([1, torch.ones(1)], 4), "y": {1: (2, deque([{3}]))}, "z": deque()}
    live = through(saved, {"x": [0], "y": {}, "z": deque([1])})
    assert type(live["x"]) is deque and live["x"].maxlen == 4 and live["x"][0] == 1 and live["x"][1].tolist() == [1]
    assert live["y"] == saved["y"] and type(live["y"][1][1]) is deque and live["z"] == deque()


def test_a_deque_of_another_length_at_most_is_refused_by_path() -> None:
    """It would drop members that the saved one keeps, or the other way round."""
    live = {"a": [0], "x": {"y": deque([1], 2)}}
    image, small, _ = evacuate({"a": [1], "x": {"y": deque([1], 3)}})
    with pytest.raises(StructureError, match=r"^x\.y was saved as a deque with maxlen=3 and has maxlen=2 now"):
        install(image, small, live)
    assert live == {"a": [0], "x": {"y": deque([1], 2)}}


def test_a_buffer_that_something_looks_into_keeps_its_length() -> None:
    live = {"x": bytearray(2)}
    with memoryview(live["x"]):
        through({"x": bytearray(b"ab")}, live)
        with pytest.raises(StructureError, match="x was saved with 3 bytes and has 2 now"):
            through({"x": bytearray(b"abc")}, live)


def test_nothing_is_written_before_all_is_compared() -> None:
    live = {"a": np.zeros(BIG), "b": {1}, "c": (bytearray(1), [0]), "d": {"x": 0, "y": 0}, "model": torch.nn.Linear(2, 2)}
    image, small, _ = evacuate(
        {"a": np.ones(BIG), "b": {2}, "c": (bytearray(b"1"), []), "d": {"x": 1}, "model": torch.nn.Linear(3, 3)}
    )
    with pytest.raises(StructureError):
        install(image, small, live)
    assert not live["a"].any() and live["b"] == {1} and live["c"] == (b"\0", [0]) and live["d"] == {"x": 0, "y": 0}


def test_an_interrupt_leaves_what_the_next_restore_writes_into() -> None:
    """A handler may raise between any two instructions of the writes."""
    saved: dict[str, Any] = {
        "d": {"b": [1, 2], "t": (torch.ones(2), {7})},
        "l": [np.ones(3), Counter("aa")],
        "c": 1,
        "q": deque([5, [6]], 2),
    }
    image, small, _ = evacuate(saved)

    def raised_at(count: int) -> bool:
        held: list[Any] = [[0, 1, 2], torch.zeros(2), {1}, np.zeros(3), Counter("b"), deque([0, 0], 2)]
        live: dict[str, Any] = {
            "d": {"gone": 0, "t": (held[1], held[2]), "b": held[0]},
            "l": [held[3], held[4], 9],
            "c": 0,
            "q": held[5],
        }
        outer = live["d"], live["l"]
        writes = Matcher(saved_tensors(image), live).match(small["state"], live)

        def trace(frame: Any, event: str, argument: object) -> Any:
            nonlocal count
            frame.f_trace_opcodes = "restoring" in frame.f_code.co_filename
            count -= event == "opcode"
            if not count:
                raise KeyboardInterrupt
            return trace

        interrupted = False
        sys.settrace(trace)
        try:
            for write in writes:
                write()
        except KeyboardInterrupt:
            interrupted = True
        finally:
            sys.settrace(None)
            torch.set_grad_enabled(True)  # a `with torch.no_grad()` may have been left before it was entered
        if interrupted:
            install(image, small, live)
        assert (live["d"], live["l"]) == outer and live["d"] is outer[0] and live["l"] is outer[1]
        assert live["q"] is held[5] and list(held[5]) == [5, [6]]
        assert live["d"]["b"] is held[0] and held[0] == [1, 2] and list(live["d"]) == ["b", "t"]
        assert (
            live["d"]["t"][0] is held[1] and held[1].tolist() == [1, 1] and live["d"]["t"][1] is held[2] and held[2] == {7}
        )
        assert (
            live["l"][0] is held[3]
            and held[3].tolist() == [1, 1, 1]
            and live["l"][1] is held[4]
            and held[4] == Counter("aa")
        )
        assert len(live["l"]) == 2 and live["c"] == 1
        return interrupted

    count = 1
    while raised_at(count):
        count += 7
    assert count > 100


def test_tensors_that_were_two_and_are_one_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """With the same values nothing is refused; from now on they move together."""
    one = torch.zeros(2)
    through({"now": torch.ones(2), "best": torch.ones(2)}, {"now": one, "best": one})
    assert "restore.tied now and best were two tensors" in caplog.text
    caplog.clear()
    tied = torch.ones(2)
    through({"now": tied, "best": tied}, {"now": one, "best": one})
    assert "restore.tied" not in caplog.text
