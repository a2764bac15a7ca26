"""Typed JSON: every small value of a training state as text, and back, without code in the file (docs/formats/values.md).

JSON's own types stand for themselves. Everything else is an object with exactly one key that begins with "$":
`{"$tuple": [1, 2]}`. What has no such form is refused with its path in the state, unless the caller's `leaf` takes it.
"""

from __future__ import annotations

import base64
import math
import re
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np

from hinan.core.errors import CaptureError, FormatError

Json = Any
Leaf = Callable[[str, object], "Json | None"]
Restore = Callable[[str, Json], object]

_PLAIN_KEY = re.compile(r"[^.\[\]\\]+")
_INT_LIMIT = 1 << 53
KEYED = ("$dict", "$ordered", "$default")
"""Tags of mappings whose members are [key, value] pairs."""

_FACTORIES: Mapping[str, type] = {kind.__name__: kind for kind in (dict, list, set, tuple, int, float, str, bool)}
"""What a defaultdict may make and still be one in the file: a type that needs no name to be imported."""
MAX_DEPTH = 100


def child(path: str, key: object) -> str:
    """Path of a member: `optim.lr` for a text key, `optim.[3]` for any other, with special characters escaped."""
    return _named(path, key) if type(key) in (str, int) else _join(path, f"[{key!r}]")


@lru_cache(maxsize=1 << 16, typed=True)
def _named(path: str, key: str | int) -> str:
    """Remembered, because a state is walked again and again; only for keys that hold nothing alive."""
    if isinstance(key, str) and key and _is_text(key):
        return _join(path, key if _PLAIN_KEY.fullmatch(key) else re.sub(r"([.\[\]\\])", r"\\\1", key))
    return _join(path, f"[{key!r}]")


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def encode_value(value: object, leaf: Leaf, path: str = "", depth: int = 0) -> Json:
    """Typed JSON of a value.

    Args:
        leaf: asked first for every object that is no plain value; returns its JSON, or None for "not mine".
        path: of the value in the state, for messages and for the leaf.
    Raises:
        CaptureError: names the path, the type and the way out.
    """
    if depth > MAX_DEPTH:
        raise CaptureError(f"{path} is nested more than {MAX_DEPTH} deep; does the state contain itself?", path=path)
    if value is None or type(value) is bool:
        return value
    if type(value) is str:
        return value if _is_text(value) else {"$text": base64.b64encode(value.encode("utf-8", "surrogatepass")).decode()}
    if type(value) is int:
        return value if abs(value) < _INT_LIMIT else {"$int": str(value)}
    if type(value) is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if (taken := leaf(path, value)) is not None:
        return taken
    return _encode_container(value, leaf, path, depth)


def _is_text(value: str) -> bool:
    """Whether a string is Unicode text; file names that are not carry lone surrogates, which no JSON can hold."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _encode_container(value: object, leaf: Leaf, path: str, depth: int) -> Json:
    def inner(key: object, item: object) -> Json:
        return encode_value(item, leaf, child(path, key), depth + 1)

    def members(items: Sequence[object]) -> list[Json]:
        return list(items) if _are_plain_integers(items) else [inner(i, item) for i, item in enumerate(items)]

    if isinstance(value, Enum):
        return {"$enum": [type(value).__qualname__, value.name]}
    if type(value) is list:
        return members(value)
    if type(value) is tuple:
        return {"$tuple": members(value)}
    if type(value) in (set, frozenset):
        items = sorted(value, key=repr)  # type: ignore[call-overload]
        return {"$set" if type(value) is set else "$frozenset": [inner(i, item) for i, item in enumerate(items)]}
    if type(value) is dict and all(type(k) is str and not k.startswith("$") and _is_text(k) for k in value):
        return {k: inner(k, item) for k, item in value.items()}
    if isinstance(value, Mapping) and type(value).__name__ in ("dict", "OrderedDict", "defaultdict", "Counter"):
        return dict_json(
            value, [[encode_value(k, leaf, child(path, k), depth + 1), inner(k, item)] for k, item in value.items()]
        )
    if type(value) is slice:
        return {"$slice": [inner(name, getattr(value, name)) for name in ("start", "stop", "step")]}
    return _encode_scalar(value, path)


def dict_json(value: Mapping[Any, Any], pairs: list[list[Json]]) -> Json:
    """A mapping of one of Python's own kinds, from the JSON of its [key, value] pairs."""
    made = next(
        (n for n, kind in _FACTORIES.items() if isinstance(value, defaultdict) and value.default_factory is kind), ""
    )
    if made:
        return {"$default": [made, pairs]}
    return {{"OrderedDict": "$ordered", "Counter": "$counter"}.get(type(value).__name__, "$dict"): pairs}


def _are_plain_integers(items: Sequence[Any]) -> bool:
    """Whether JSON holds all members as they are. Generators and samplers have hundreds to millions of them."""
    return set(map(type, items)) == {int} and min(items) > -_INT_LIMIT and max(items) < _INT_LIMIT


def _encode_scalar(value: object, path: str) -> Json:
    if isinstance(value, np.generic) and value.dtype.kind in "biufcSUmM":
        return {"$numpy": [value.dtype.str, base64.b64encode(value.tobytes()).decode()]}
    if type(value) is np.ndarray and value.dtype.kind in "biufcSUmM":
        packed = np.ascontiguousarray(value)
        return {"$array": [packed.dtype.str, list(value.shape), base64.b64encode(packed.tobytes()).decode()]}
    if type(value) is bytes or type(value) is bytearray:
        return {"$bytes" if type(value) is bytes else "$bytearray": base64.b64encode(value).decode()}
    if type(value) is complex:
        return {"$complex": [repr(value.real), repr(value.imag)]}
    raise CaptureError(
        f"{path or 'the state'} holds a {type(value).__module__}.{type(value).__qualname__}, which cannot be stored "
        "without code in the file. Give its state_dict() or plain values instead, leave it out, or register a codec "
        "with hinan.register_codec.",
        path=path,
        type=f"{type(value).__module__}.{type(value).__qualname__}",
    )


def decode_value(json: Json, restore: Restore) -> object:
    """The value of typed JSON.

    Args:
        restore: called with (tag, payload) for tags that are not this module's own.
    Raises:
        FormatError: an unknown tag or a malformed payload.
    """
    if isinstance(json, list):
        return [decode_value(item, restore) for item in json]
    if not isinstance(json, dict):
        return json
    tag = next(iter(json), "")
    if len(json) != 1 or not tag.startswith("$"):
        return {key: decode_value(item, restore) for key, item in json.items()}
    try:
        return _decode_tagged(tag, json[tag], restore)
    except (TypeError, ValueError, ArithmeticError, KeyError, IndexError) as error:
        raise FormatError(f"a stored value tagged {tag} is malformed ({error})", tag=tag) from None


def _decode_tagged(tag: str, payload: Json, restore: Restore) -> object:
    def inner(items: Json) -> list[object]:
        return [decode_value(item, restore) for item in items]

    known: dict[str, Callable[[], object]] = {
        "$int": lambda: int(payload),
        "$float": lambda: float(payload),
        "$tuple": lambda: tuple(inner(payload)),
        "$set": lambda: set(inner(payload)),
        "$frozenset": lambda: frozenset(inner(payload)),
        "$dict": lambda: {key: value for key, value in (inner(pair) for pair in payload)},  # noqa: C416
        "$ordered": lambda: OrderedDict((key, value) for key, value in map(inner, payload)),
        "$default": lambda: defaultdict(_FACTORIES[payload[0]], {k: v for k, v in map(inner, payload[1])}),  # noqa: C416
        "$counter": lambda: Counter({key: value for key, value in (inner(pair) for pair in payload)}),  # noqa: C416
        "$text": lambda: base64.b64decode(payload).decode("utf-8", "surrogatepass"),
        "$numpy": lambda: _decode_array(payload[0], [], payload[1])[()],
        "$array": lambda: _decode_array(*payload),
        "$bytes": lambda: base64.b64decode(payload),
        "$bytearray": lambda: bytearray(base64.b64decode(payload)),
        "$complex": lambda: complex(float(payload[0]), float(payload[1])),
        "$slice": lambda: slice(*inner(payload)),
    }
    return known[tag]() if tag in known else restore(tag, payload)


def _decode_array(dtype: str, shape: list[int], data: str) -> Any:
    array = np.zeros(shape, dtype=np.dtype(dtype))
    raw = base64.b64decode(data)
    if len(raw) != array.nbytes:
        raise ValueError(f"{len(raw)} bytes for {array.nbytes}")
    if raw:  # an empty buffer cannot be read from
        array[...] = np.frombuffer(raw, dtype=array.dtype).reshape(shape)
    return array
