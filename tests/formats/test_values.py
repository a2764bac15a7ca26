"""Typed JSON: every value comes back equal, of the same type, to the last bit, and no code with it."""

from __future__ import annotations

import math
import random
from collections import Counter, OrderedDict, defaultdict, deque
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hinan.core.errors import CaptureError, FormatError
from hinan.formats.values import MAX_DEPTH, child, decode_value, encode_value


def refuse(path: str, tag: str, payload: object) -> object:
    raise FormatError(f"unknown tag {tag}")


def round_trip(value: object) -> Any:
    """Through text, as a file holds it."""
    return decode_value(msgspec.json.decode(msgspec.json.encode(encode_value(value, lambda path, leaf: None))), refuse)


def same(a: Any, b: Any) -> bool:
    """Equal in type and bits, also where == would not say so (nan, -0.0, True and 1, order of keys)."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        pairs = zip(a.items(), b.items(), strict=False)
        return len(a) == len(b) and all(same(x[0], y[0]) and same(x[1], y[1]) for x, y in pairs)
    if isinstance(a, deque) and a.maxlen != b.maxlen:
        return False
    if isinstance(a, list | tuple | deque):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, np.ndarray | np.generic):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return bool(a == b)


scalars = (
    st.none() | st.booleans() | st.integers() | st.integers(-(2**300), 2**300) | st.floats() | st.complex_numbers()
    | st.text() | st.binary() | st.binary().map(bytearray)
    | st.sampled_from([-0.0, 5e-324, 2**53, -(2**53), 2**63, 1e308, "", "$x", "\ud800", "\0"])
)  # fmt: skip
numbers = st.sampled_from(["?", "i1", "<i4", ">i8", "u2", "<f2", "<f4", ">f8", "c8", "c16", "g"]).flatmap(
    lambda word: st.lists(st.integers(0, 127), min_size=0, max_size=6).map(lambda v: np.array(v).astype(word))
)
arrays = numbers | numbers.map(lambda a: a.reshape(1, -1)) | numbers.map(lambda a: a[::-1]) | numbers.map(
    lambda a: np.zeros((0, 3), a.dtype)
)  # fmt: skip
generics = numbers.filter(len).map(lambda a: a[0]) | st.sampled_from(
    [
        np.str_("a"),
        np.str_(""),
        np.bytes_(b""),
        np.bytes_(b"x"),
        np.datetime64("2026-11-29"),
        np.float32("nan"),
        np.float64(-0.0),
    ]
)
keys = (
    st.none() | st.booleans() | st.integers() | st.text() | st.tuples(st.integers(), st.text()) | st.floats(allow_nan=False)
)
values = st.recursive(
    scalars | arrays | generics | st.frozensets(st.integers() | st.text()) | st.sets(st.integers()),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.builds(deque, st.lists(inner, max_size=4), st.none() | st.integers(4, 6))
        | st.dictionaries(st.text(), inner, max_size=4)
        | st.dictionaries(st.text().map("$".__add__), inner, max_size=2)
        | st.dictionaries(keys, inner, max_size=4)
        | st.dictionaries(st.text(), inner, max_size=4).map(OrderedDict)
        | st.dictionaries(keys, st.integers(), max_size=4).map(Counter)
    ),
    max_leaves=12,
)


@settings(max_examples=400, deadline=None)
@given(values)
def test_every_value_comes_back_as_it_was(value: object) -> None:
    """Nested values of every kind that can be stored come back with their types, signs, bits and order of keys."""
    back = round_trip(value)
    assert same(value, back), (value, back)


def test_generators_of_random_numbers() -> None:
    """The states of Python's and NumPy's generators draw the same numbers after the way through text."""
    python, legacy, modern = random.Random(3), np.random.RandomState(3), np.random.default_rng(3)
    python.gauss(), legacy.normal(), modern.normal()
    states = round_trip({"python": python.getstate(), "legacy": legacy.get_state(), "modern": modern.bit_generator.state})
    other = random.Random(), np.random.RandomState(), np.random.default_rng()
    other[0].setstate(states["python"])
    other[1].set_state(states["legacy"])
    other[2].bit_generator.state = states["modern"]
    assert [other[0].gauss(), other[1].normal(), other[2].normal()] == [python.gauss(), legacy.normal(), modern.normal()]


def test_a_default_dict_becomes_a_dict_of_its_items() -> None:
    """A defaultdict's factory is code; its items are kept."""
    assert round_trip(defaultdict(list, {"a": [1], 2: []})) == {"a": [1], 2: []}


class Mine:
    """A class of the user's."""


class Ring(deque[int]):
    """A subclass that may hold more than its members."""


class Named(tuple[int, ...]):
    """A subclass that plain JSON would flatten."""


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Mine(), "Mine"), (Mine, "type"), (Named((1,)), "Named"), (Ring(), "Ring"),
        (Fraction(1, 3), "Fraction"), (print, "builtin_function"),
        (np.array([Mine()]), "ndarray"), (np.ma.masked_array([1, 2], [True, False]), "MaskedArray"),
        (np.zeros(1, "i4,f4"), "ndarray"), (np.zeros(1, "i4,f4")[0], "void"), (iter([]), "list_iterator"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_cannot_be_stored_is_refused_with_its_path(value: object, kind: str) -> None:
    """What would need code, or would lose a part of itself, is refused with its path, its type and the way out."""
    with pytest.raises(CaptureError, match=rf"opt\.\[3\]\.x\\\.y holds a .*{kind}.*hinan.register_codec") as caught:
        encode_value({3: {"x.y": value}}, lambda path, leaf: None, "opt")
    assert caught.value.evidence["path"] == r"opt.[3].x\.y"


def test_a_state_that_contains_itself_is_refused() -> None:
    """A cycle ends as an error that says what it suspects, not as a stack overflow."""
    value: list[Any] = []
    value.append(value)
    with pytest.raises(CaptureError, match=f"more than {MAX_DEPTH} deep; does the state contain itself"):
        encode_value(value, lambda path, leaf: None, "loop")


key_paths = st.lists(st.text(max_size=4) | st.integers(-3, 3) | st.none() | st.booleans(), min_size=1, max_size=3)


@settings(max_examples=300)
@given(a=key_paths, b=key_paths)
def test_paths_are_unique(a: list[object], b: list[object]) -> None:
    """Two places in a state never have one name: "a.b" beside a -> b, 3 beside "3", "[3]" and "[3]" the key."""

    def path(keys: list[object]) -> str:
        at = "state"
        for key in keys:
            at = child(at, key)
        return at

    assert (path(a) == path(b)) == ([(type(k), k) for k in a] == [(type(k), k) for k in b])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.tuples(
            st.sampled_from(
                ["$int", "$float", "$tuple", "$set", "$dict", "$ordered", "$counter", "$numpy", "$array", "$bytes",
                 "$bytearray", "$complex", "$slice", "$text", "$frozenset", "$deque", "$nothing"]
            ),
            inner,
        ).map(lambda pair: {pair[0]: pair[1]})
    ),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(json_values)
@example({"$numpy": [",", None]})
@example({"$deque": [None]})
def test_a_malformed_value_is_a_format_error(json: object) -> None:
    """Whatever stands in a file in the place of typed JSON, reading it gives a value or a FormatError, nothing else."""
    try:
        decode_value(json, refuse)
    except FormatError as error:
        assert "$" in str(error)
