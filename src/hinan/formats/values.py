"""Typed JSON: every small value of a training state as text, and back, without code in the file (docs/formats/values.md).

JSON's own types stand for themselves. Everything else is an object with exactly one key that begins with "$":
`{"$tuple": [1, 2]}`. What has no such form is refused with its path in the state, unless the caller's `leaf` takes it.
"""

from __future__ import annotations

import base64
import math
import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, Flag
from functools import lru_cache
from typing import Any

import numpy as np

from hinan.core.errors import CaptureError, FormatError

Json = Any
Leaf = Callable[[str, object], "Json | None"]
Restore = Callable[[str, str, Json], object]

_PLAIN_KEY = re.compile(r"[^.\[\]\\]+")
_INT_LIMIT = 1 << 53
KEYED = ("$dict", "$ordered", "$default")
"""Tags of mappings whose members are [key, value] pairs."""

_FACTORIES: Mapping[str, type] = {kind.__name__: kind for kind in (dict, list, set, tuple, int, float, str, bool)}
"""What a defaultdict may make and still be one in the file: a type that needs no name to be imported."""
_CONTAINERS = (list, tuple, dict, set, frozenset, deque)
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


def encode_value(value: object, leaf: Leaf, path: str = "", depth: int = 0, made_leaf: Leaf | None = None) -> Json:
    """Typed JSON of a value.

    Args:
        leaf: asked first for every object that is no plain value; returns its JSON, or None for "not mine".
        path: of the value in the state, for messages and for the leaf.
        made_leaf: asked in its place where a restore makes values anew and looks at no live one: for keys, for what is in
            a set or a Counter, and for what is in a container in a tuple. None: the same.
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
    if type(value) is deque:
        return {"$deque": [value.maxlen, encode_value([*value], leaf, path, depth, made_leaf)]}
    return _encode_container(value, leaf, path, depth, made_leaf or leaf)


def _is_text(value: str) -> bool:
    """Whether a string is Unicode text; file names that are not carry lone surrogates, which no JSON can hold."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _encode_container(value: object, leaf: Leaf, path: str, depth: int, made_leaf: Leaf) -> Json:
    def inner(key: object, item: object, ask: Leaf = leaf) -> Json:
        return encode_value(item, ask, child(path, key), depth + 1, made_leaf)

    if isinstance(value, Enum):
        return enum_json(value)
    if type(value) in (list, tuple) and _are_plain_integers(value):  # type: ignore[arg-type]
        return list(value) if type(value) is list else {"$tuple": list(value)}  # type: ignore[call-overload]
    if type(value) is list:
        return [inner(i, item) for i, item in enumerate(value)]
    if type(value) is tuple:
        asked = [made_leaf if isinstance(item, _CONTAINERS) else leaf for item in value]
        return {"$tuple": [inner(i, item, ask) for i, (item, ask) in enumerate(zip(value, asked, strict=True))]}
    if type(value) in (set, frozenset):
        items = sorted(value, key=repr)  # type: ignore[call-overload]
        members = [inner(i, item, made_leaf) for i, item in enumerate(items)]
        return {"$set" if type(value) is set else "$frozenset": members}
    if type(value) is dict and all(type(k) is str and not k.startswith("$") and _is_text(k) for k in value):
        return {k: inner(k, item) for k, item in value.items()}
    if isinstance(value, Mapping) and type(value).__name__ in ("dict", "OrderedDict", "defaultdict", "Counter"):
        ask = made_leaf if isinstance(value, Counter) else leaf
        return dict_json(value, [[inner(k, k, made_leaf), inner(k, item, ask)] for k, item in value.items()])
    if type(value) is slice:
        return {"$slice": [inner(name, getattr(value, name), made_leaf) for name in ("start", "stop", "step")]}
    return _encode_scalar(value, path)


def enum_json(value: Enum) -> Json:
    """A member by its name; a combination of flags, whose name is none of its class's, by its value."""
    kind, said = type(value), value._name_
    if isinstance(value, Flag) and said not in kind.__members__:
        said = encode_value(value._value_, lambda path, leaf: None)
    return {"$enum": [kind.__qualname__, said, kind.__module__]}


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


def decode_value(json: Json, restore: Restore, path: str = "") -> object:
    """The value of typed JSON.

    Args:
        restore: called with (path, tag, payload) for tags that are not this module's own.
        path: of the value, for `restore`.
    Raises:
        FormatError: a malformed payload.
    """
    if isinstance(json, list):
        return _decode_members(json, restore, path)
    if not isinstance(json, dict):
        return json
    tag = next(iter(json), "")
    if len(json) != 1 or not tag.startswith("$"):
        return {key: decode_value(item, restore, child(path, key)) for key, item in json.items()}
    try:
        return _decode_tagged(tag, json[tag], restore, path)
    except (TypeError, ValueError, ArithmeticError, KeyError, IndexError) as error:
        raise FormatError(f"a stored value tagged {tag} is malformed ({error})", tag=tag) from None


def _decode_members(items: Sequence[Json], restore: Restore, path: str) -> list[object]:
    return [
        decode_value(item, restore, child(path, i)) if isinstance(item, list | dict) else item
        for i, item in enumerate(items)
    ]


def _decode_tagged(tag: str, payload: Json, restore: Restore, path: str) -> object:
    def inner(items: Json) -> list[object]:
        return _decode_members(items, restore, path)

    def pairs(items: Json) -> list[tuple[Any, object]]:
        keyed = [(decode_value(key, restore, path), item) for key, item in items]
        return [(key, decode_value(item, restore, child(path, key))) for key, item in keyed]

    known: dict[str, Callable[[], object]] = {
        "$int": lambda: int(payload),
        "$float": lambda: float(payload),
        "$tuple": lambda: tuple(inner(payload)),
        "$deque": lambda: deque(inner(payload[1]), payload[0]),
        "$set": lambda: set(inner(payload)),
        "$frozenset": lambda: frozenset(inner(payload)),
        "$dict": lambda: dict(pairs(payload)),
        "$ordered": lambda: OrderedDict(pairs(payload)),
        "$default": lambda: defaultdict(_FACTORIES[payload[0]], pairs(payload[1])),
        "$counter": lambda: Counter(dict(pairs(payload))),
        "$text": lambda: base64.b64decode(payload).decode("utf-8", "surrogatepass"),
        "$numpy": lambda: _decode_array(payload[0], [], payload[1])[()],
        "$array": lambda: _decode_array(*payload),
        "$bytes": lambda: base64.b64decode(payload),
        "$bytearray": lambda: bytearray(base64.b64decode(payload)),
        "$complex": lambda: complex(float(payload[0]), float(payload[1])),
        "$slice": lambda: slice(*inner(payload)),
    }
    return known[tag]() if tag in known else restore(path, tag, payload)


def stored_dtype(word: str) -> np.dtype[Any]:
    """NumPy's dtype of a word in a file.

    Raises:
        TypeError, ValueError: it is none.
    """
    try:
        return np.dtype(word)
    except SyntaxError as error:  # NumPy reads a word with a comma as a list
        raise ValueError(f"{word!r} is no dtype") from error


def _decode_array(dtype: str, shape: list[int], data: str) -> Any:
    array = np.zeros(shape, dtype=stored_dtype(dtype))
    raw = base64.b64decode(data)
    if len(raw) != array.nbytes:
        raise ValueError(f"{len(raw)} bytes for {array.nbytes}")
    if raw:  # an empty buffer cannot be read from
        array[...] = np.frombuffer(raw, dtype=array.dtype).reshape(shape)
    return array
