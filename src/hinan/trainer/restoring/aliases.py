"""New tensors share bytes again where they did when they were saved: with live tensors, or with each other.

Live tensors keep the storage that the program gave them. Tensors that did not exist before the restore (optimizer state,
values in containers that were empty) are made from the image one by one; where two names were one tensor, or one a view of
the other's storage, training may write through the one and read through the other, and copies would part silently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from hinan.formats.image import TensorView

Named = tuple[str, torch.Tensor]


def share_again(
    new: Sequence[Named],
    placed: Mapping[str, torch.Tensor],
    location: Callable[[str], TensorView],
    whole: Callable[[str], torch.Tensor],
) -> None:
    """Point new tensors at the storage that they shared when they were saved; their own copies are dropped.

    Args:
        new: tensors that were made for this restore, by their names in the image; changed in place.
        placed: live tensors that the restore writes, by name.
        location: where a name lies in its entry of the image.
        whole: a copy of an entry's bytes.
    """
    by_entry: dict[str, list[Named]] = {}
    for name, tensor in new:
        by_entry.setdefault(location(name).entry, []).append((name, tensor))
    live: dict[str, list[Named]] = {entry: [] for entry in by_entry}
    for name, tensor in placed.items():
        if (entry := location(name).entry) in live:
            live[entry].append((name, tensor))
    for entry, made in by_entry.items():
        known = live[entry].copy()
        for name, tensor in made:
            if not _join(name, tensor, known, location):
                if len(made) > 1 and tensor.device.type == "cpu" and any(location(n) != location(name) for n, _ in made):
                    _carve(tensor, whole(entry), location(name))
                known.append((name, tensor))


def parted(placed: Mapping[str, torch.Tensor], location: Callable[[str], TensorView]) -> list[tuple[str, str]]:
    """Names that were one tensor when they were saved, and have bytes of their own now.

    Args:
        placed: live tensors that the restore writes, by name.
        location: where a name lies in its entry of the image.
    """
    first: dict[TensorView, str] = {}
    pairs = [(first.setdefault(location(name), name), name) for name, tensor in placed.items() if tensor.numel()]
    return [(a, b) for a, b in pairs if placed[a].data_ptr() != placed[b].data_ptr()]


def _join(name: str, tensor: torch.Tensor, known: Sequence[Named], location: Callable[[str], TensorView]) -> bool:
    """Make a new tensor the same as, or a view of the storage of, one that is known to hold its bytes."""
    at = location(name)
    for other, there in known:
        if tensor.device != there.device:
            continue
        if location(other) == at:
            tensor.set_(there.untyped_storage(), there.storage_offset(), there.shape, there.stride())
            return True
        # Only a tensor whose strides are the saved ones shows where the others lie around it.
        if there.stride() == location(other).stride and _carve(tensor, there, at, location(other).offset_bytes):
            return True
    return False


def _carve(tensor: torch.Tensor, base: torch.Tensor, at: TensorView, base_offset_bytes: int = 0) -> bool:
    """Point a tensor at its place in the storage of `base`, which lies at `base_offset_bytes` of the entry."""
    storage = base.untyped_storage()
    start = base.storage_offset() * base.element_size() + at.offset_bytes - base_offset_bytes
    item = tensor.element_size()
    length = (sum((n - 1) * s for n, s in zip(at.shape, at.stride, strict=True)) + 1) * item
    if start < 0 or start % item or start + length > storage.nbytes():
        return False
    tensor.set_(storage, start // item, at.shape, at.stride)
    return True
