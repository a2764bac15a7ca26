"""Host memory looked at by its address, so that nothing about the tensor that lies there changes (rule D8).

`tensor.numpy()`, DLPack and the buffer protocol all leave a mark: torch never resizes a storage again that it has once lent
out, and a loop that frees and regrows its weights would fail, because somebody had looked at them.
"""

from __future__ import annotations

import ctypes

import torch

_WRITABLE = 0x200  # PyBUF_WRITE
_view = ctypes.pythonapi.PyMemoryView_FromMemory
_view.argtypes, _view.restype = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int), ctypes.py_object


def memory(address: int, size_bytes: int) -> memoryview:
    """Some bytes of this process, writable. Ownership: the caller keeps what lies there as long as the view is used."""
    if size_bytes == 0:
        return memoryview(b"")  # what is empty may have no address at all
    view: memoryview = _view(address, size_bytes, _WRITABLE)
    return view


def bytes_of(flat: torch.Tensor) -> memoryview:
    """The bytes of a contiguous host tensor. Ownership: as above; the tensor must not be a temporary of the call."""
    return memory(flat.data_ptr(), flat.numel() * flat.element_size())
