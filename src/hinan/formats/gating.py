"""Which entries of an image are gated and which are not, from its header and the small values beside it (rule D1).

*Gated*: parameters of a captured optimizer and that optimizer's state; their copy may go on until the optimizer's next
step. *Ungated*: everything else (buffers, moving averages, parameters in no optimizer, a learning rate that is a tensor,
arrays); copied before training goes on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hinan.formats.image import Entry, Header, TensorView
from hinan.formats.values import Json

REPORTED_BYTES = 64 << 20
REPORTED_SHARE = 0.01
"""Ungated bytes above either of these are worth a word: they are a wait at each evacuation."""


@dataclass(frozen=True)
class Gating:
    """The answer for one image.

    Attributes:
        gated: names of gated entries; every other entry is ungated.
        by_place: parameters of optimizers that are known by their place in a group only, because no module at the top of
            the state has them. Should the state hold them under another name, that entry counts as ungated.
    """

    gated: frozenset[str]
    by_place: tuple[str, ...]


def gating(state: Mapping[str, Json], header: Header) -> Gating:
    """The class of every entry.

    Args:
        state: the small values' "state" (docs/formats/values.md).
    """
    parameters = {
        str(name) for found in _tagged(state, "$optimizer") for group in found["groups"] for name in group["params"]
    }
    moments: set[str] = set()
    for found in _tagged(state, "$optimizer"):
        moments |= {*_names([found.get("state"), found.get("other")]), *filter(is_moved_by_step, _names(found.get("said")))}
    names = parameters | moments
    members: dict[str, set[str]] = {entry.name: set() for entry in header.entries}
    for name, view in header.views.items():
        members[view.entry].add(name)
    gated = frozenset(e.name for e in header.entries if _is_gated(header, e, members[e.name], names))
    return Gating(gated, tuple(sorted(parameters - header.by_name.keys() - header.views.keys())))


def is_moved_by_step(name: str) -> bool:
    """Whether a tensor that an optimizer says to be its own moves in its steps alone. A learning rate and other options of
    its groups are moved by schedules, at any time."""
    return ".param_groups." not in name


def is_reported(ungated_bytes: int, image_bytes: int) -> bool:
    """Whether ungated bytes are enough to be worth a word."""
    return ungated_bytes > min(REPORTED_BYTES, REPORTED_SHARE * image_bytes)


def _is_gated(header: Header, entry: Entry, views: set[str], names: set[str]) -> bool:
    """Whether nothing but the optimizer moves an entry's bytes: all its tensors are gated, or one that covers it is.

    A tied parameter is in its group under one name only, and covers the bytes of all its names.
    """
    if entry.name in header.views:  # the entry's bytes are shown by views alone, each perhaps a part of them
        return views <= names

    def covers(view: TensorView) -> bool:
        return view.offset_bytes == 0 and math.prod(view.shape) == math.prod(entry.shape)

    return entry.name in names or any(name in names and covers(header.views[name]) for name in views)


def _names(json: Json) -> Iterator[Json]:
    """Names of the entries that hold the tensors and arrays in here."""
    for tag in ("$tensor", "$ndarray"):
        yield from (payload[0] if tag == "$tensor" else payload for payload in _tagged(json, tag))


def _tagged(json: Json, tag: str) -> Iterator[Json]:
    """The payloads of all objects with this tag, outermost first."""
    if isinstance(json, list):
        for item in json:
            yield from _tagged(item, tag)
    elif isinstance(json, dict):
        if len(json) == 1 and tag in json:
            yield json[tag]
        for item in json.values():
            yield from _tagged(item, tag)
