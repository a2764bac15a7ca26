"""From live tensors to an image: which bytes are copied once, and how each tensor is found in them again (rule D7).

The unit is the storage interval. A tensor alone on its bytes becomes an entry in logical (C) order, so that any reader of
safetensors shows the right values whatever its strides. Tensors that share bytes (ties, views) share one entry: the one
that covers them all, or, where none does, the raw interval; the others are views into it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter, eq

import torch

from hinan.core.errors import CaptureError
from hinan.formats.image import ITEM_BYTES, Entry, Header, TensorView, lay_out
from hinan.formats.records import fact_sum

SAFETENSORS_WORD: dict[torch.dtype, str] = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint64: "U64", torch.uint32: "U32", torch.uint16: "U16", torch.uint8: "U8", torch.bool: "BOOL",
    torch.complex64: "C64", torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
}  # fmt: skip
"""Dtypes that safetensors can say. Others are stored as U8, and a view tells the true dtype and shape."""


def dtype_word(dtype: torch.dtype) -> str:
    """torch's own word for a dtype, e.g. "bfloat16"."""
    return str(dtype).removeprefix("torch.")


@dataclass(frozen=True)
class Part:
    """One entry's source. No tensor is referenced here: a plan outlives the evacuation it was made for.

    Attributes:
        members: names of the state's tensors that share these bytes; the first is the source.
        device: where they are.
        address: of the first byte.
        offset, size_bytes: where they go in the image.
        is_flat: whether they lie at `address` just as they go into the image; otherwise they are rearranged on the way.
        is_raw: whether a storage interval is copied rather than the source tensor's own elements.
        is_lazy: whether the values lie nowhere (a conjugated or negated view) and are made when they are copied.
    """

    entry: str
    members: tuple[str, ...]
    device: torch.device
    address: int
    offset: int
    size_bytes: int
    is_flat: bool
    is_raw: bool
    is_lazy: bool


@dataclass(frozen=True)
class Plan:
    """How one structure at its addresses becomes an image: header bytes, and the place of each part, in image order."""

    raw_header: bytes
    header: Header
    header_sum: str
    parts: tuple[Part, ...]

    @property
    def image_bytes(self) -> int:
        return self.header.image_bytes


_FACTS: Sequence[Callable[[torch.Tensor], object]] = (
    torch.Tensor.data_ptr, attrgetter("dtype"), attrgetter("shape"),
    torch.Tensor.stride, torch.Tensor.is_conj, torch.Tensor.is_neg,
)  # fmt: skip
"""What of a tensor decides on its place in a plan."""


class Planner:
    """Makes plans, and keeps the last one while structure and addresses stay as they were."""

    def __init__(self) -> None:
        self._last: tuple[list[str], list[list[object]], Plan] | None = None

    def plan(self, tensors: Mapping[str, torch.Tensor]) -> Plan:
        """The plan for these live tensors. Addresses, offsets and strides are read anew at each call."""
        names, live = list(tensors), list(tensors.values())
        if self._last is None or names != self._last[0] or not _are(live, self._last[1]):
            facts = [list(map(fact, live)) for fact in _FACTS]
            self._last = names, facts, make_plan(tensors)  # at once: a handler of a signal may raise anywhere
        return self._last[2]


def _are(live: Sequence[torch.Tensor], facts: Sequence[Sequence[object]]) -> bool:
    """Compared one by one, and let go: twenty thousand shapes and strides that live at once have the interpreter collect
    garbage over all of torch every few evacuations, in the trainer's thread."""
    return all(all(map(eq, map(fact, live), before)) for fact, before in zip(_FACTS, facts, strict=True))


def make_plan(tensors: Mapping[str, torch.Tensor]) -> Plan:
    """Group tensors by the bytes they share, and lay the entries out.

    Raises:
        CaptureError: one of them has been freed. Whoever read at its address would end the process.
    """
    for name, tensor in tensors.items():
        if not has_its_bytes(tensor):
            raise CaptureError(
                f"{name} of shape {tuple(tensor.shape)} has a storage of {tensor.untyped_storage().nbytes()} bytes: it was "
                "freed or cut by resize_(). Give it its bytes back before evac.step(), or leave it out of the state",
                path=name,
            )
    entries: list[Entry] = []
    views: dict[str, TensorView] = {}
    sources: dict[str, _Source] = {}
    for group in _groups(tensors):
        entry, source, of_group = _entry(group)
        entries.append(entry)
        sources[entry.name] = source
        views |= of_group
    raw, header = lay_out(entries, views)
    parts = tuple(_part(entry, sources[entry.name]) for entry in header.entries if entry.size_bytes)
    return Plan(raw, header, fact_sum(raw), parts)


def _part(entry: Entry, source: _Source) -> Part:
    members, tensor, is_raw = source
    is_lazy = tensor.is_conj() or tensor.is_neg()
    is_flat = is_raw or (tensor.is_contiguous() and not is_lazy)
    return Part(
        entry.name, members, tensor.device, tensor.data_ptr(), entry.offset, entry.size_bytes, is_flat, is_raw, is_lazy
    )


def has_its_bytes(tensor: torch.Tensor) -> bool:
    """Whether a strided tensor's storage reaches to its last element. One that was freed (`resize_(0)`) has no address."""
    if tensor.numel() == 0:
        return True
    start = tensor.storage_offset() * tensor.element_size()
    return tensor.untyped_storage().nbytes() >= start + extent_bytes(tensor)


def extent_bytes(tensor: torch.Tensor) -> int:
    """Bytes from a tensor's first element to the end of its last, in its storage."""
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def in_order(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor with the strides of its shape. A dimension of size 1 may carry any stride, which counts as
    contiguous and yet cannot be viewed as bytes; others are returned as they are."""
    stride = contiguous_stride(tensor.shape)
    if tensor.numel() == 0 or tensor.stride() == stride or not tensor.is_contiguous():
        return tensor
    return tensor.as_strided(tensor.shape, stride)


def packed_stride(tensor: torch.Tensor) -> list[int] | None:
    """Strides of torch's own copy of a tensor where they are not the plain ones: a dense permutation keeps its order."""
    if tensor.is_contiguous():
        return None
    stride = torch.empty_like(tensor, device="meta").stride()
    return list(stride) if stride != contiguous_stride(tensor.shape) else None


Named = tuple[str, torch.Tensor]
_Source = tuple[tuple[str, ...], torch.Tensor, bool]
"""Names of the members, the one whose bytes are copied first; its tensor; whether it is a raw interval."""


def _groups(tensors: Mapping[str, torch.Tensor]) -> list[list[Named]]:
    """Tensors whose byte ranges overlap, directly or through others, in state order of their first members."""
    alone: list[list[Named]] = []
    spans: list[tuple[str, int, int, int, Named]] = []
    for index, (name, tensor) in enumerate(tensors.items()):
        if tensor.numel() == 0 or tensor.is_conj() or tensor.is_neg():
            # Lazily conjugated or negated views have values that no byte range holds; they are copied by value.
            alone.append([(name, tensor)])
        else:
            start = tensor.data_ptr()
            spans.append((str(tensor.device), start, start + extent_bytes(tensor), index, (name, tensor)))
    spans.sort(key=lambda span: span[:4])
    groups: list[list[tuple[int, Named]]] = []
    device, end = "", 0
    for where, start, stop, index, named in spans:
        if where != device or start >= end:
            groups.append([])
            device, end = where, stop
        groups[-1].append((index, named))
        end = max(end, stop)
    ordered = sorted((sorted(group, key=lambda item: item[0]) for group in groups), key=lambda group: group[0][0])
    return [[named for _, named in group] for group in ordered] + alone


def _entry(group: Sequence[Named]) -> tuple[Entry, _Source, dict[str, TensorView]]:
    """The entry that holds a group's bytes, its source, and the views of the members it does not show by itself."""
    name, first = group[0]
    if all(_same_view(first, tensor) for _, tensor in group):
        entry = _logical_entry(name, first)
        members = tuple(n for n, _ in group)
        stride = contiguous_stride(first.shape)
        views = {n: TensorView(name, dtype_word(first.dtype), tuple(first.shape), stride, 0) for n in members[1:]}
        if entry.dtype != SAFETENSORS_WORD.get(first.dtype):
            views[name] = TensorView(name, dtype_word(first.dtype), tuple(first.shape), stride, 0)
        return entry, (members, first, False), views
    return _shared_entry(group)


def _shared_entry(group: Sequence[Named]) -> tuple[Entry, _Source, dict[str, TensorView]]:
    lowest, low = min(group, key=lambda item: item[1].data_ptr())
    start = low.data_ptr()
    total_bytes = max(t.data_ptr() + extent_bytes(t) for _, t in group) - start
    cover = next(
        (
            (n, t)
            for n, t in group
            if t.is_contiguous() and t.numel() * t.element_size() == total_bytes and t.dtype in SAFETENSORS_WORD
        ),
        None,
    )
    if cover is not None:
        first, base = cover
        entry = _logical_entry(first, base)
    else:
        first, base = lowest, low
        entry = Entry(group[0][0], "U8", (total_bytes,))
    views = {
        n: TensorView(entry.name, dtype_word(t.dtype), tuple(t.shape), tuple(t.stride()), t.data_ptr() - start)
        for n, t in group
        if cover is None or n != entry.name
    }
    members = (first, *(n for n, _ in group if n != first))
    return entry, (members, base, cover is None), views


def _logical_entry(name: str, tensor: torch.Tensor) -> Entry:
    word = SAFETENSORS_WORD.get(tensor.dtype)
    if word is None or ITEM_BYTES[word] != tensor.element_size():
        return Entry(name, "U8", (tensor.numel() * tensor.element_size(),))
    return Entry(name, word, tuple(tensor.shape))


def _same_view(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.data_ptr() == b.data_ptr() and a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride()


def contiguous_stride(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of the plain (C) order."""
    stride, step = [], 1
    for size in reversed(shape):
        stride.append(step)
        step *= max(1, size)
    return tuple(reversed(stride))
