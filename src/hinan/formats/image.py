"""The image: a rank's evacuated tensors as one valid safetensors file (docs/formats/image.md).

Owns:      the order of entries, the header, and where each byte lies.
Promises:  what it lays out, `safetensors.safe_open` opens; data starts at a multiple of 4096 and so does the end, so that
           a file can be written with O_DIRECT from the slot itself; no holes, no overlaps.
Never:     touches tensors. It knows names, dtypes by their safetensors word, shapes and lengths.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import msgspec

from hinan.core.errors import FormatError, FormatFromFuture

ALIGNMENT_BYTES = 4096
PADDING_NAME = "__hinan_padding__"
LAYOUT_VERSION = 1
_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 100_000_000  # the limit safetensors itself sets

SMALL_BYTES = 1 << 20
"""Tensors below this size lie side by side."""

_MALFORMED = (
    msgspec.DecodeError, AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError,
)  # fmt: skip
"""What reading a header that somebody else wrote may run into."""

ITEM_BYTES: Mapping[str, int] = {
    "F64": 8, "I64": 8, "U64": 8, "C64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2,
    "I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One run of bytes in an image, shown by safetensors readers as a tensor.

    Attributes:
        dtype: safetensors word; what safetensors cannot say is stored as U8 and described by a view.
        offset: first byte, from the start of the file.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int = 0

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class TensorView:
    """A tensor that is not shown as an entry of its own: a tie, a view, a stride or dtype that safetensors cannot say.

    Attributes:
        entry: name of the entry that holds its bytes.
        dtype: torch's word, e.g. "bfloat16".
        stride: in elements of `dtype`.
        offset_bytes: from the first byte of the entry.
    """

    entry: str
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset_bytes: int


@dataclass(frozen=True)
class Header:
    """A parsed header: where everything is. `entries` excludes the padding."""

    entries: tuple[Entry, ...]
    views: Mapping[str, TensorView]
    data_start: int
    image_bytes: int

    @cached_property
    def by_name(self) -> Mapping[str, Entry]:
        """Entries by name."""
        return {entry.name: entry for entry in self.entries}


def lay_out(entries: Iterable[Entry], views: Mapping[str, TensorView]) -> tuple[bytes, Header]:
    """Order the entries, place them, and make the header's bytes (padded up to where data starts).

    Larger items come first, so every entry is aligned to its item size without a hole. Among equals the small tensors come
    last, side by side, so that a device can gather them and send them at once.
    """
    ordered = sorted(entries, key=lambda e: (-ITEM_BYTES[e.dtype], e.size_bytes < SMALL_BYTES))
    data_bytes = sum(e.size_bytes for e in ordered)
    padding = -data_bytes % ALIGNMENT_BYTES
    if padding:
        ordered.append(Entry(PADDING_NAME, "U8", (padding,)))
    # Offsets in a safetensors header count from where data starts, so they do not depend on the header's length.
    described: dict[str, Any] = {"__metadata__": _metadata(views)}
    relative = 0
    for entry in ordered:
        end = relative + entry.size_bytes
        described[entry.name] = {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": (relative, end)}
        relative = end
    text = msgspec.json.encode(described)
    data_start = -(-(_LENGTH_BYTES + len(text)) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    text = text.ljust(data_start - _LENGTH_BYTES, b" ")
    raw = len(text).to_bytes(_LENGTH_BYTES, "little") + text
    return raw, parse_header(raw, data_start + relative, "layout")


def _metadata(views: Mapping[str, TensorView]) -> dict[str, str]:
    text = msgspec.json.encode({"version": LAYOUT_VERSION, "views": views}).decode()
    return {"format": "pt", "hinan": text}


def header_bytes(prefix: bytes | memoryview, name: str) -> int:
    """Length of the header, including its length field, from the first 8 bytes of a file.

    Raises:
        FormatError: not a safetensors file.
    """
    length = int.from_bytes(bytes(prefix[:_LENGTH_BYTES]), "little")
    if len(prefix) < _LENGTH_BYTES or not 2 <= length <= _MAX_HEADER_BYTES:
        raise FormatError(f"{name} is not a safetensors file: its header length is {length}", file=name)
    return _LENGTH_BYTES + length


def parse_header(raw: bytes, image_bytes: int, name: str) -> Header:
    """Read a header.

    Args:
        raw: the header with its length field.
        image_bytes: length of the whole file.
        name: of the file, for messages.
    Raises:
        FormatError: not safetensors, holes, overlaps, or a wrong file length.
        FormatFromFuture: laid out by a newer hinan.
    """
    try:
        described = msgspec.json.decode(raw[_LENGTH_BYTES:])
        meta = msgspec.json.decode(described.pop("__metadata__", {}).get("hinan", '{"version": 1, "views": {}}'))
        if meta["version"] > LAYOUT_VERSION:
            raise FormatFromFuture(
                f"{name} has layout version {meta['version']}, this hinan reads up to {LAYOUT_VERSION}: "
                "install a newer hinan",
                file=name,
            )
        views = msgspec.convert(meta["views"], dict[str, TensorView])
        placed = _place(described, len(raw))
    except _MALFORMED as error:
        raise FormatError(f"{name} has no readable safetensors header ({error})", file=name) from None
    _check_no_holes(placed, len(raw), image_bytes, name)
    return Header(tuple(e for e in placed if e.name != PADDING_NAME), views, len(raw), image_bytes)


class _Described(msgspec.Struct):
    dtype: str
    shape: tuple[Annotated[int, msgspec.Meta(ge=0)], ...]
    data_offsets: tuple[int, int]


def _place(described: Mapping[str, Any], data_start: int) -> list[Entry]:
    items = [(name, msgspec.convert(item, _Described)) for name, item in described.items()]
    placed = []
    for name, item in sorted(items, key=lambda named: named[1].data_offsets):
        start, end = item.data_offsets
        entry = Entry(name, item.dtype, item.shape, data_start + start)
        if entry.size_bytes != end - start:
            raise ValueError(f"{name}: {end - start} bytes for shape {entry.shape} of {entry.dtype}")
        placed.append(entry)
    return placed


def _check_no_holes(entries: Sequence[Entry], data_start: int, image_bytes: int, name: str) -> None:
    at = data_start
    for entry in entries:
        if entry.offset != at:
            raise FormatError(f"{name}: {entry.name} starts at byte {entry.offset}, expected {at}", file=name)
        at += entry.size_bytes
    if at != image_bytes:
        raise FormatError(f"{name} has {image_bytes} bytes, its header describes {at}", file=name)
