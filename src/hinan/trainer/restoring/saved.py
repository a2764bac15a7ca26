"""The tensors of an image in host memory, and the only ways in which their bits leave it: copied, or taken out of it.

Invariant:  no tensor over an image leaves this module. Whoever gets one (a `load_state_dict`, a hook, a codec) may keep it,
            write into it, or hand it to a forked worker; and the memory of an image is none to keep: it is the arena's, or
            ends with the restore, and children do not inherit it. `SavedTensor` therefore is no tensor.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import torch

from hinan.core.errors import BudgetError, FormatError
from hinan.core.units import format_bytes
from hinan.formats.image import Header, TensorView
from hinan.host.signals import ours
from hinan.tiers.mapping import take_out, use_huge_pages
from hinan.trainer.ports.hostport import copy_bits
from hinan.trainer.state.layout import SAFETENSORS_WORD, contiguous_stride, dtype_word, in_order

_TORCH_DTYPE = {word: dtype for dtype, word in SAFETENSORS_WORD.items()}

HUGE_BYTES = 4 << 20
"""Copies from here on ask for huge pages."""
ADOPTED_BYTES = 4 << 20
"""Of tensors from here on a copy costs more than keeping the pages on their edges."""
MOST_ADOPTED = 8192
"""Each takes two or three of the mappings that a process may have (vm.max_map_count: 65,530 by default). The rest is
copied, into memory whose mappings the system merges."""
TORCH_ALIGNMENT_BYTES = 64
"""What torch's own allocator gives. A matrix product may round otherwise where its operands lie otherwise."""


class SavedTensor:
    """One tensor of an image: what it is like, and its bits, which are copied."""

    def __init__(self, view: torch.Tensor, name: str = "a tensor") -> None:
        self._view, self._name = view, name
        self.dtype, self.shape, self.is_contiguous = view.dtype, view.shape, view.is_contiguous()

    def is_like(self, live: torch.Tensor) -> bool:
        """Whether a live tensor has values, and its dtype and shape."""
        return not torch.nn.parameter.is_lazy(live) and (live.dtype, live.shape) == (self.dtype, self.shape)

    def copy(self, device: torch.device | str = "cpu") -> torch.Tensor:
        """A tensor of its own with the same bits."""
        with self._room():
            return new_copy(self._view) if str(device) == "cpu" else self._view.to(device, copy=True)

    def laid_out(self, strides: Sequence[int], device: torch.device | str = "cpu") -> torch.Tensor:
        """A copy with other strides."""
        with self._room():
            new = torch.empty_strided(self.shape, strides, dtype=self.dtype, device="cpu")
            copy_bits(new, self._view)
            return new.to(device)

    def array(self) -> np.ndarray[Any, Any]:
        """A copy as an array of NumPy's."""
        with self._room():
            return self._view.numpy().copy()

    @property
    def dtype_and_shape_as_array(self) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """What it is like to NumPy. Of tensors that were saved from an array alone: torch has dtypes that NumPy lacks."""
        return self._view.numpy().dtype, tuple(self.shape)

    @contextmanager
    def _room(self) -> Iterator[None]:
        """Say which tensor found no room: torch and NumPy say a number of bytes at most."""
        try:
            yield
        except ours(MemoryError, RuntimeError) as error:
            raise BudgetError(
                f"there is no room for a copy of {self._name} ({format_bytes(self._view.nbytes)}): {error}. Raise the "
                "limit on this process's memory (ulimit -v, the container's, the device's) or on its mappings "
                "(vm.max_map_count), or give what else takes it up; what is saved stands",
                tensor=self._name,
            ) from error

    def write_over(self, live: torch.Tensor) -> None:
        """Overwrite a live tensor with the saved bits, in place. A plain one: a subclass would see the image."""
        with torch.no_grad():
            if live.device.type == "cpu":
                copy_bits(live, self._view)
            else:
                live.copy_(self._view)

    def write_over_array(self, live: np.ndarray[Any, Any]) -> None:
        """Overwrite a live array of NumPy's with the saved bits, in place."""
        np.copyto(live, self._view.numpy())

    def is_same(self, other: SavedTensor) -> bool:
        """Whether two have the same values, bit for bit."""
        if (self.dtype, self.shape) != (other.dtype, other.shape):
            return False
        a, b = (in_order(one._view.contiguous()).reshape(-1).view(torch.uint8) for one in (self, other))
        return torch.equal(a, b)


class SavedTensors:
    """The tensors of an image by name."""

    def __init__(self, image: memoryview, header: Header, *, is_ours: bool = False) -> None:
        """
        Args:
            is_ours: the image was read into memory of this process (`anonymous`), where nobody else will write.
        """
        self._image, self._header, self._is_ours = image, header, is_ours
        self._adopted: dict[str, torch.Tensor] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._header.views or name in self._header.by_name

    def __getitem__(self, name: str) -> SavedTensor:
        # What was adopted is no longer in the image.
        return SavedTensor(self._adopted[name] if name in self._adopted else self._view(name), name)

    def adopt(self, name: str) -> torch.Tensor | None:
        """The tensor itself, for the state to keep; None where it must be copied. Each is given away once.

        Ownership: its memory is taken out of the image and is its own: it is given back when the tensor and all views of it
        are gone, whatever else lives.
        """
        entry = self._header.by_name.get(name)
        if not self._is_ours or len(self._adopted) >= MOST_ADOPTED:
            return None
        if entry is None or name in self._header.views or name in self.shared:
            return None
        if entry.size_bytes < ADOPTED_BYTES or entry.offset % TORCH_ALIGNMENT_BYTES or name in self._adopted:
            return None
        memory = take_out(self._image[entry.offset : entry.offset + entry.size_bytes])
        if memory is None:
            self._is_ours = False  # the system cannot, and each further attempt would leave a mapping behind
            return None
        self._adopted[name] = torch.frombuffer(memory, dtype=_TORCH_DTYPE[entry.dtype]).reshape(entry.shape)
        return self._adopted[name]

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

    def _view(self, name: str) -> torch.Tensor:
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

    def _flat(self, offset: int, size_bytes: int, dtype: torch.dtype) -> torch.Tensor:
        if size_bytes == 0:
            return torch.empty(0, dtype=dtype, device="cpu")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # "not writable": nobody writes into it
            return torch.frombuffer(self._image, dtype=dtype, count=size_bytes // dtype.itemsize, offset=offset)


def _offset(flat: torch.Tensor, dtype: torch.dtype) -> int:
    return flat.storage_offset() * flat.element_size() // dtype.itemsize


def new_copy(saved: torch.Tensor) -> torch.Tensor:
    """A copy in new host memory; a large one in huge pages where the system has them, and by memmove."""
    if saved.nbytes < HUGE_BYTES or not saved.is_contiguous():
        return saved.clone()
    made = torch.empty_like(saved)
    use_huge_pages(made.data_ptr(), made.nbytes)
    copy_bits(made, saved)
    return made
