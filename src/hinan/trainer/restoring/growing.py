"""Tensors of the loop's that have another shape than they were saved with: a memory that grows, as a list may.

Such a tensor gets the saved values, and room for them, in place: the loop may hold it. That is possible only where nobody
else looks at its bytes. All others keep the shape that the program gave them; saved with another one, they are refused.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from hinan.trainer.restoring.holders import holders
from hinan.trainer.restoring.saved import SavedTensor
from hinan.trainer.state.naming import moments_of
from hinan.trainer.state.supported import is_supported


def can_grow(live: torch.Tensor, saved: SavedTensor) -> bool:
    """Whether a live tensor differs from the saved one in its shape alone, and has all of an own storage."""
    if type(live) is not torch.Tensor or not is_supported(live) or live.is_conj() or live.is_neg():
        return False
    if live.dtype != saved.dtype or live.shape == saved.shape or live.requires_grad or live.is_inference():
        return False
    storage = live.untyped_storage()
    # An array's cannot be resized, other processes would not follow, and a view has a base that would stay behind.
    is_lent = not storage.resizable() or (live.device.type == "cpu" and live.is_shared())  # type: ignore[no-untyped-call]
    return not (is_lent or live._is_view()) and live.nbytes == storage.nbytes()


def is_alone(path: str, live: torch.Tensor, state: Mapping[str, object]) -> bool:
    """Whether a tensor stands in a container of the state, and its storage nowhere else in the state."""
    at = holders(state)
    storage = live.untyped_storage()._cdata
    others = (tensor for place, tensor in at.items() if place != path)
    known = (t for t in (*others, *moments_of(state)) if is_supported(t))
    return at.get(path) is live and all(t.untyped_storage()._cdata != storage for t in known)


def take_storage(live: torch.Tensor, new: torch.Tensor) -> None:
    """Let a tensor be what another one is; all in one call."""
    live.set_(new.untyped_storage(), new.storage_offset(), new.shape, new.stride())
