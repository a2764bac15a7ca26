"""Data loaders that keep a position (torchdata's StatefulDataLoader): what their own state_dict leaves to chance.

Asked before its first iteration, such a loader makes its iterator to answer: it draws from a generator and starts workers.
Saving must change nothing (rule D8), so it is not asked then. After `load_state_dict` it makes the iterator only when the
loop asks for it, and draws again: after the generators were put back, or from a generator of its own that it leaves one
draw behind, so that the next epoch has another order. So the iterator is made at once, and its generators come after it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader


def keeps_position(value: object) -> bool:
    """Whether a value is a data loader that says and takes its position."""
    return isinstance(value, DataLoader) and hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def loader_values(loader: Any) -> dict[str, Any]:
    """Position and generators of a loader; {} is the position before the first iteration."""
    started = loader._iterator is not None
    position = loader.state_dict() if started else getattr(loader, "next_iter_state", None) or {}
    return {"position": position, "generators": _generators(loader)}


def load_loader(loader: Any, position: Any, generators: list[torch.Generator]) -> None:
    """Take a position, make the iterator that goes on from it, and only then put the generators back."""
    loader.load_state_dict(position)
    if position:
        loader.state_dict()  # makes the iterator, which the next `iter(loader)` returns
    for live, saved in zip(_generators(loader), generators, strict=False):
        live.set_state(saved.get_state())


def _generators(loader: Any) -> list[torch.Generator]:
    """The loader's own generator and its sampler's, each once; a batch sampler of the user's may hold one, too."""
    holders = (loader, loader.sampler, getattr(loader.batch_sampler, "sampler", None))
    found = [getattr(holder, "generator", None) for holder in holders]
    return list({id(g): g for g in found if isinstance(g, torch.Generator)}.values())
