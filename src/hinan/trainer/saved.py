"""The tensors of an image in host memory: looked at, and handed out only where nobody else owns the bytes."""

from __future__ import annotations

import warnings
from functools import cached_property

import torch

from hinan.core.errors import FormatError
from hinan.formats.image import Header, TensorView
from hinan.tiers.mapping import keep_only
from hinan.trainer.layout import SAFETENSORS_WORD, contiguous_stride, dtype_word

_TORCH_DTYPE = {word: dtype for dtype, word in SAFETENSORS_WORD.items()}

ADOPTED_BYTES = 4 << 20
"""Of tensors from here on a copy costs more than keeping the pages on their edges."""
TORCH_ALIGNMENT_BYTES = 64
"""What torch's own allocator gives. A matrix product may round otherwise where its operands lie otherwise."""


class SavedTensors:
    """Tensors of an image by name, as views over its bytes. They must be copied; `adopt` alone hands one out."""

    def __init__(self, image: memoryview, header: Header, *, is_ours: bool = False) -> None:
        """
        Args:
            is_ours: the image was read into memory of this process (`anonymous`), where nobody else will write.
        """
        self._image, self._header, self._is_ours = image, header, is_ours
        self._adopted: dict[str, tuple[int, int]] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._header.views or name in self._header.by_name

    def __getitem__(self, name: str) -> torch.Tensor:
        view = self._header.views.get(name)
        if view is None:
            if name not in self._header.by_name:
                raise FormatError(f"the image has no tensor {name!r}, although its values refer to it", tensor=name)
            entry = self._header.by_name[name]
            return self._flat(entry.offset, entry.size_bytes, _TORCH_DTYPE[entry.dtype]).reshape(entry.shape)
        entry = self._header.by_name[view.entry]
        dtype = getattr(torch, view.dtype)
        whole = self._flat(entry.offset, entry.size_bytes, torch.uint8)
        storage_offset, odd = divmod(view.offset_bytes, dtype.itemsize)
        if odd:
            whole, storage_offset = whole[view.offset_bytes :].clone(), 0
        tensor = torch.empty(0, dtype=dtype, device="cpu")
        return tensor.set_(whole.untyped_storage(), storage_offset + _offset(whole, dtype), view.shape, view.stride)

    def adopt(self, name: str) -> torch.Tensor | None:
        """The tensor itself, for the state to keep; None where it must be copied. Each is given away once.

        Ownership: it keeps the memory of the whole image mapped; `let_go` gives back the pages of all that is not adopted.
        """
        entry = self._header.by_name.get(name)
        if not self._is_ours or entry is None or name in self._header.views or name in self.shared:
            return None
        if entry.size_bytes < ADOPTED_BYTES or entry.offset % TORCH_ALIGNMENT_BYTES or name in self._adopted:
            return None
        self._adopted[name] = (entry.offset, entry.offset + entry.size_bytes)
        return self[name]

    def let_go(self) -> None:
        """Nothing will be looked at any more: what was adopted stays, the rest of an image of ours is given back."""
        if self._adopted:
            keep_only(self._image, sorted(self._adopted.values()))

    @cached_property
    def shared(self) -> frozenset[str]:
        """Entries in which more than one tensor lies."""
        return frozenset(view.entry for name, view in self._header.views.items() if view.entry != name)

    def location(self, name: str) -> TensorView:
        """Where a tensor lies in its entry of the image."""
        if (view := self._header.views.get(name)) is not None:
            return view
        entry = self._header.by_name[name]
        return TensorView(name, dtype_word(_TORCH_DTYPE[entry.dtype]), entry.shape, contiguous_stride(entry.shape), 0)

    def whole(self, name: str) -> torch.Tensor:
        """A copy of an entry's bytes."""
        entry = self._header.by_name[name]
        return self._flat(entry.offset, entry.size_bytes, torch.uint8).clone()

    def _flat(self, offset: int, size_bytes: int, dtype: torch.dtype) -> torch.Tensor:
        if size_bytes == 0:
            return torch.empty(0, dtype=dtype, device="cpu")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # "not writable": nobody writes into it
            return torch.frombuffer(self._image, dtype=dtype, count=size_bytes // dtype.itemsize, offset=offset)


def _offset(flat: torch.Tensor, dtype: torch.dtype) -> int:
    return flat.storage_offset() * flat.element_size() // dtype.itemsize
