"""Optimizer state that a live optimizer has already: written in place where it fits and is nobody else's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from hinan.trainer.restoring.saved import SavedTensor, SavedTensors
from hinan.trainer.restoring.writes import Copies


@dataclass(frozen=True)
class Moment:
    """A tensor of an optimizer's state that may be written in place, if it fits and nobody else's bytes are its own."""

    entry: dict[Any, object]
    key: object
    live: torch.Tensor
    saved_as: list[Any]
    parameter: torch.Tensor
    copies: Copies

    def fits(self, saved: SavedTensor) -> bool:
        """Whether it is what a new tensor would be: same dtype, shape and device, all of its storage, no subclass."""
        live = self.live
        _, device_type, *strides = self.saved_as
        device = torch.device("cpu") if device_type == "cpu" else self.parameter.device
        return (
            not strides
            and type(live) is torch.Tensor
            and (live.dtype, live.shape, live.device) == (saved.dtype, saved.shape, device)
            and live.is_contiguous() and saved.is_contiguous and not live.requires_grad
            and live.untyped_storage().nbytes() == live.nbytes
        )  # fmt: skip


def settle(
    moments: list[Moment], tensors: SavedTensors, taken: set[int], make: Callable[[list[Any], torch.Tensor], torch.Tensor]
) -> None:
    """Decide, when all that is written in place is known, which moments are too; the others become new tensors.

    Args:
        taken: storages that something else is written into.
        make: a new tensor from how it was saved, near a parameter.
    """
    owners = Counter(moment.live.untyped_storage().data_ptr() for moment in moments)
    for moment in moments:
        name = moment.saved_as[0]
        storage = moment.live.untyped_storage().data_ptr()
        alone = owners[storage] == 1 and storage not in taken
        was_alone = tensors.location(name).entry not in tensors.shared
        if alone and was_alone and moment.fits(tensors[name]):
            moment.copies.pairs.append((moment.live.detach(), tensors[name]))
        else:
            moment.entry[moment.key] = make(moment.saved_as, moment.parameter)
