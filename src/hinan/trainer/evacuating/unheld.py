"""Tensors that are remembered without being held: not by their memory, and not by a weak reference to them either.

torch exchanges the contents of two tensors (`torch.utils.swap_tensors`, and `module.to()` by setting) only where nobody
has a weak reference to them. Their storages may have one: the storage is what a content lies in, and goes with it.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import torch

from hinan.host.signals import ours

Trace = weakref.ref[torch.UntypedStorage]


def trace(tensor: torch.Tensor) -> Trace | None:
    """What a tensor's content is known by, as long as it is there; None for one without a storage that torch shows.

    Not by an address or an id: the next content may get the same.
    """
    try:
        return weakref.ref((tensor._values() if tensor.is_sparse else tensor).untyped_storage())
    except ours(NotImplementedError):  # a layout of its own; whoever asks must not fail by it
        return None


def is_of(tensor: torch.Tensor, traced: Trace | None) -> bool:
    """Whether a tensor has the content that was traced."""
    now = trace(tensor)
    return traced is not None and now is not None and (held := now()) is not None and held is traced()


@dataclass(frozen=True)
class Unheld:
    """A strided tensor that may be looked at again if its memory is still there. Whatever it was swapped for is not it."""

    storage: Trace
    dtype: torch.dtype
    offset: int
    size: torch.Size
    stride: tuple[int, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Unheld:
        """Remember a tensor."""
        storage = weakref.ref(tensor.untyped_storage())
        return cls(storage, tensor.dtype, int(tensor.storage_offset()), tensor.size(), tensor.stride())

    def alias(self) -> torch.Tensor | None:
        """A tensor of the same memory, with a version of its own; None if the memory is gone, or has become too small."""
        storage = self.storage()
        # Ordering: the length first. torch would grow a storage that was resized under the tensor.
        if storage is None or storage.nbytes() < self._end * self.dtype.itemsize:
            return None
        return torch.empty(0, dtype=self.dtype, device=storage.device).set_(storage, self.offset, self.size, self.stride)

    @property
    def _end(self) -> int:
        """One behind the last element, from the start of the storage."""
        last = sum((n - 1) * step for n, step in zip(self.size, self.stride, strict=True))
        return self.offset + last + 1 if self.size.numel() else 0
