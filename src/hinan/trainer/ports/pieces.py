"""Pieces of an image on their way from live tensors into a slot, and how a device sends them: chunks and buckets.

A large tensor goes in chunks, so that no single copy keeps training's own small reads waiting. Small ones that lie side by
side in the image are first gathered on the device, because each copy that Python starts costs more than their bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch

from hinan.formats.image import SMALL_BYTES
from hinan.trainer.state.layout import Part, in_order

CHUNK_BYTES = 32 << 20
BUCKET_BYTES = 64 << 20
"""Device memory that a bucket may take; the only device memory an evacuation adds besides rearranged tensors."""


class Piece(NamedTuple):
    """One part of an image with its live source. (A tuple, because ten thousand are made at an evacuation.)

    Attributes:
        entry: name of the part in the image.
        tensor: the source; for a gated piece an alias that keeps the bytes alive until they have been copied, also when
            the trainer puts another storage under the parameter meanwhile.
        is_flat: whether the bytes lie at `address` just as they go into the image.
    """

    entry: str
    offset: int
    size_bytes: int
    tensor: torch.Tensor
    address: int
    is_flat: bool
    is_raw: bool = False


def piece(part: Part, source: torch.Tensor, *, outlives: bool) -> Piece:
    """A part with the tensor that is its source now.

    Args:
        outlives: the trainer goes on before it is copied.
    """
    if part.is_lazy:
        # No byte range holds the values of a lazily conjugated or negated view: they are made now, for this evacuation.
        made = source.detach().resolve_conj().resolve_neg().contiguous()
        return Piece(part.entry, part.offset, part.size_bytes, made, made.data_ptr(), True)
    alias = source.detach() if outlives else source
    return Piece(part.entry, part.offset, part.size_bytes, alias, part.address, part.is_flat, part.is_raw)


def flat_bytes(source: Piece) -> torch.Tensor:
    """The bytes of a piece as a flat uint8 tensor on its device; a temporary where they are rearranged."""
    tensor = source.tensor.detach()
    if source.is_raw:
        storage = tensor.untyped_storage()
        flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
        start = source.address - storage.data_ptr()
        return flat.set_(storage, start, (source.size_bytes,))  # type: ignore[call-overload, no-any-return]
    return in_order(tensor.contiguous()).reshape(-1).view(torch.uint8)


def transfers(pieces: Iterable[Piece]) -> Iterator[tuple[int, torch.Tensor]]:
    """(offset in the image, flat bytes on the device) of each single copy. Call it on the stream that copies."""
    for run in _runs(pieces):
        source = flat_bytes(run[0]) if len(run) == 1 else torch.cat([flat_bytes(small) for small in run])
        for start in range(0, len(source), CHUNK_BYTES):
            yield run[0].offset + start, source[start : start + CHUNK_BYTES]


def _runs(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Small pieces side by side in the image together, up to a bucket; every other piece alone."""
    run: list[Piece] = []
    for one in pieces:
        fits = (
            run
            and one.size_bytes < SMALL_BYTES
            and run[-1].size_bytes < SMALL_BYTES
            and run[-1].offset + run[-1].size_bytes == one.offset
            and one.offset + one.size_bytes - run[0].offset <= BUCKET_BYTES
        )
        if not fits and run:
            yield run
            run = []
        run.append(one)
    if run:
        yield run
