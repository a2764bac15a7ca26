"""Whether live tensors are what they were: torch counts changes in place; where that will not do, bits are compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from operator import attrgetter

import torch
from torch import nn

from hinan.formats.digest import digest
from hinan.trainer.ports.halves import in_halves
from hinan.trainer.ports.rawmemory import bytes_of
from hinan.trainer.state.layout import has_its_bytes, in_order


class Watched:
    """Tensors, and what they were when this was made.

    One list of each fact, not a tuple a tensor: ten thousand new containers every time have the interpreter collect garbage
    over all of torch every few evacuations, in the trainer's thread.
    """

    def __init__(self, tensors: Iterable[tuple[str, torch.Tensor]], *, exactly: bool = False) -> None:
        """
        Args:
            tensors: live ones, by name; they are kept.
            exactly: note their bits too: what changes without being counted is seen as well. Reads all of them, here and in
                `moved`. They are looked at through an alias: a parameter that merely gets another storage leaves the bytes
                that a copy would read alone.
        """
        self._names: list[str] = []
        self._tensors: list[torch.Tensor] = []
        for name, tensor in tensors:
            self._names.append(name)
            self._tensors.append(tensor.detach() if exactly else tensor)
        self._versions = _versions(self._tensors)
        self._bits = bits_of_all(self._tensors) if exactly else None

    def moved(self) -> str | None:
        """Name of a tensor that was changed since."""
        return self._first(self._versions, _versions(self._tensors)) or (
            None if self._bits is None else self._first(self._bits, bits_of_all(self._tensors))
        )

    def _first(self, before: Sequence[object], now: Sequence[object]) -> str | None:
        if before == now:
            return None
        return next(name for name, one, other in zip(self._names, before, now, strict=True) if one != other)


def version(tensor: torch.Tensor) -> int:
    """torch's count of in-place changes. A tripwire, not a proof: `.data` writes, fused steps and graphs do not count."""
    # A parameter of a lazy module that has not run answers next to nothing.
    return -1 if nn.parameter.is_lazy(tensor) or tensor.is_inference() else tensor._version


_VERSION = attrgetter("_version")


def _versions(tensors: Sequence[torch.Tensor]) -> list[int]:
    """`version` of each; of ten thousand in a millisecond."""
    try:
        return list(map(_VERSION, tensors))
    except RuntimeError:  # one of them, made in inference mode, is not counted
        return list(map(version, tensors))


def bits_of_all(tensors: Sequence[torch.Tensor]) -> list[str]:
    """`bits` of each. Host memory is read by two threads; work on a device belongs into the stream of the calling one."""
    if all(tensor.device.type == "cpu" for tensor in tensors):
        return [*chain(*in_halves(tensors, lambda tensor: tensor.nbytes, lambda some: [bits(t) for t in some]))]
    return [bits(tensor) for tensor in tensors]


def bits(tensor: torch.Tensor) -> str:
    """A digest of a tensor's bits; on a device one that is made there. What was freed has none, and differs from what was
    there."""
    if not has_its_bytes(tensor):
        return ""
    if tensor.device.type != "cpu":
        return str(torch.hash_tensor(tensor.detach()).item())
    ordered = in_order(tensor.detach().resolve_conj().resolve_neg().contiguous())
    return digest_of(ordered.reshape(-1).view(torch.uint8))


def digest_of(flat: torch.Tensor) -> str:
    """Digest of a flat uint8 tensor's bytes."""
    here = flat.cpu()
    return digest(bytes_of(here))
