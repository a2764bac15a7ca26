"""The host's port: one thread stands for the side stream, `memmove` for the DMA engine.

Promises:  copies enqueued on the thread run in order and hold no lock of Python's while they move bytes; what a trainer
           waits for is a real join, because host memory knows no stream that could be made to wait.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from hinan.host.signals import ours
from hinan.trainer.ports.pieces import Piece
from hinan.trainer.ports.rawmemory import memory
from hinan.trainer.ports.waking import Once
from hinan.trainer.ports.worker import Worker

memmove = ctypes.memmove
"""One long call without the interpreter's lock. Looked up at each copy, so that a test can hold one in its middle."""
HERE = "here"
"""The trainer's own "stream": what is enqueued on it is done when the call returns."""


class CpuPort:
    """Host memory to host memory."""

    mode, why = "memmove", "the state is in host memory"
    overlaps = by_address = True

    def __init__(self) -> None:
        self._worker = Worker("hinan-copy")
        self._failure: Exception | None = None

    def current_stream(self) -> Any:
        return HERE

    def side_stream(self) -> Any:
        return self._worker

    def record(self, stream: Any) -> Any:
        passed = Once()
        if stream is HERE:
            passed.set()
        else:
            stream.put(passed.set)
        return passed

    def wait(self, stream: Any, event: Any) -> None:
        if stream is HERE:
            event.wait()
        elif not event.is_set():
            stream.put(event.wait)

    def reach(self, event: Any) -> None:
        event.wait()

    def join(self, event: Any) -> None:
        event.wait()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def copy(self, stream: Any, slot: Any, pieces: Sequence[Piece]) -> list[torch.Tensor]:
        # Addresses are taken now, while nothing has changed; the pieces' tensors keep the memory behind them.
        base = slot.address
        moves = [(base + p.offset, p.address, p.size_bytes) for p in pieces if p.is_flat]
        odd = [(slot.bytes_at(p.offset, p.size_bytes), p.tensor) for p in pieces if not p.is_flat]

        def work() -> None:
            try:
                for move in moves:
                    memmove(*move)
                for target, source in odd:
                    copy_bits(target.view(source.dtype).view(source.shape), source)
            except ours(Exception) as error:  # told to whoever joins
                self._failure = error

        if stream is HERE:
            work()
        else:
            stream.put(work)
        return []

    def pin(self, address: int, size_bytes: int) -> None:
        return None

    def unpin(self, address: int) -> None:
        return None

    def end(self) -> None:
        self._worker.end()


def copy_bits(destination: torch.Tensor, source: torch.Tensor) -> None:
    """Copy between host tensors of equal shape and dtype, bit for bit, in this thread alone."""
    lazy = any(t.is_conj() or t.is_neg() for t in (destination, source))
    if destination.is_contiguous() and source.is_contiguous() and not lazy:
        # Why: memmove releases the GIL and is about twice as fast as a single-threaded torch copy.
        memmove(destination.data_ptr(), source.data_ptr(), source.numel() * source.element_size())
    elif lazy:
        destination.copy_(source)
    else:
        # Why: torch would start a second team of OpenMP threads in a helper thread; NumPy copies in this one.
        np.copyto(_as_integers(destination), _as_integers(source))


def _as_integers(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """A host tensor's bits as integers NumPy knows, whatever the dtype; valid as long as the caller keeps the tensor."""
    plain = tensor.detach()
    if plain.dtype is torch.complex128:
        plain = torch.view_as_real(plain)
    size = plain.element_size()
    strides = [n * size for n in plain.stride()]
    reach_bytes = sum((n - 1) * step for n, step in zip(plain.shape, strides, strict=True)) + size if plain.numel() else 0
    return np.ndarray(plain.shape, f"i{size}", memory(plain.data_ptr(), reach_bytes), strides=strides)
