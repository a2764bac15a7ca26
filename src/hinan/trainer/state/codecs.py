"""Codecs that the user registers for types that hinan cannot store by itself: object to plain values and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hinan.core.errors import ConfigError


@dataclass(frozen=True)
class Codec:
    """How one type travels: `encode` gives plain values (or tensors in them), `decode` makes the object again."""

    kind: type
    name: str
    encode: Callable[[Any], object]
    decode: Callable[[Any], object]


_by_name: dict[str, Codec] = {}


def register_codec(kind: type, name: str, encode: Callable[[Any], object], decode: Callable[[Any], object]) -> None:
    """Let the state hold objects of `kind`.

    Args:
        name: what the file calls it; stable over versions of your code. The file holds no code: `decode` must be
            registered again before `restore()`.
        encode: object to plain values; the result may hold tensors, lists, dicts and plain values.
        decode: the same values back to an object.
    Raises:
        ConfigError: the name belongs to another type already.
    """
    known = _by_name.get(name)
    if known is not None and known.kind is not kind:
        raise ConfigError(f"codec name {name!r} belongs to {known.kind.__qualname__} already; choose another")
    _by_name[name] = Codec(kind, name, encode, decode)


def codec_for(value: object) -> Codec | None:
    """The codec of a value's exact type, if one was registered."""
    return next((codec for codec in _by_name.values() if type(value) is codec.kind), None)


def codec_named(name: str) -> Codec | None:
    """The codec a file asks for; None if it is not registered in this process."""
    return _by_name.get(name)
