"""The small values of an image, read as what they are. Nothing of the user's has a part in that: what fails are bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from hinan.core.errors import FormatError
from hinan.formats.records import ManifestRecord
from hinan.formats.values import Json, decode_value


class Small(NamedTuple):
    """A rank's document.

    Attributes:
        state: typed JSON by key of the state.
        rng: states of the global generators.
    """

    state: Mapping[str, Json]
    rng: Any


def parse_small(record: ManifestRecord) -> Small:
    """Raises FormatError: it is no document of ours, or a value in it is malformed."""
    try:
        document = msgspec.json.decode(record.sealed.small)
        state, rng = dict(document["state"]), document["rng"]
    except (msgspec.DecodeError, TypeError, ValueError, LookupError) as error:
        raise FormatError(f"the small values of {record.sealed.step_id} cannot be read ({error})") from None
    for json in state.values():
        decode_value(json, _looked_at)
    return Small(state, load_arrays(rng))


def load_arrays(json: Json) -> Any:
    """Decode values that hold arrays but no tensors (the generators' states)."""
    return decode_value(json, _refuse)


def _looked_at(path: str, tag: str, payload: Json) -> object:
    """What stands for a value that only the state and the program can make; what is plain in it is read, too."""
    if tag == "$module":  # its extra states have names of the user's, which are no tags
        for json in payload["extras"].values():
            decode_value(json, _looked_at)
    else:
        decode_value(payload, _looked_at)
    return object()


def _refuse(path: str, tag: str, payload: Json) -> object:
    raise FormatError(f"generator states hold a value tagged {tag}", tag=tag)
