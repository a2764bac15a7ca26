"""What an evacuation says about itself beside the state: generators, what was left out, the memory it was taken from.

Read by `hinan show` (what is kept, what is left, which ratio) and by a restore (the generators).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from hinan.formats.values import Json, encode_value
from hinan.trainer.state.capture import Captured
from hinan.trainer.state.naming import modules_of, optimizer_names, optimizers_of, parameter_names
from hinan.trainer.state.outside import bytes_of, named_entries
from hinan.trainer.state.rng import rng_state
from hinan.trainer.state.unkept import unkept

MOST_NAMED = 64
"""Tensors that are left out and named one by one; this list is written at every evacuation."""


class Inventory:
    """The part of a sealed record's `small` that is not the user's state. What was left out is counted once a layout."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._state = state
        self._layout = ""
        self._left: list[tuple[str, int]] = []
        self._host_bytes = 0

    def small(self, captured: Captured, layout: str) -> dict[str, Json]:
        """All small values of one evacuation.

        Args:
            layout: sum of the image's header; what was left out is counted again when it has changed.
        """
        if layout != self._layout:
            self._layout, self._left = layout, left_out(self._state, captured)
            self._host_bytes = storage_bytes(captured.tensors) + sum(size for _, size in self._left)
        return {
            "state": captured.values,
            "rng": encode_value(rng_state(), lambda path, value: None, "rng"),
            "left": self._left,
            "device_memory_bytes": self._memory_in_use(),
        }

    def _memory_in_use(self) -> int:
        """Device memory in use, in bytes; for a state on the CPU what is kept and left out together."""
        return int(torch.accelerator.memory_allocated()) if torch.accelerator.is_available() else self._host_bytes


def left_out(state: Mapping[str, Any], captured: Captured) -> list[tuple[str, int]]:
    """What is not in the image, with its bytes: gradients (one sum a module), what an optimizer still holds of parameters
    that are nobody's (`outside`), and tensors of modules and optimizers that nobody keeps (`unkept`)."""
    left: list[tuple[str, int]] = []
    known = parameter_names(state)
    for path, optimizer in optimizers_of(state):
        _, entries = named_entries(optimizer, optimizer_names(optimizer, known), known)
        left += [(f"{path} (state of parameters in none of its groups)", bytes_of(entries))] if entries else []
    seen: set[int] = set()
    for path, module in modules_of(state):
        parameters = {id(p): p for p in module.parameters() if p.grad is not None and id(p) not in seen}
        seen |= parameters.keys()
        grads = sum(_held_bytes(p.grad) for p in parameters.values() if p.grad is not None)
        left += [(f"{path} (gradients)", grads)] if grads else []
    others = list(unkept(state, captured.tensors, captured.words).values())
    left += [(name, tensor.nbytes) for name, tensor in others[:MOST_NAMED]]
    rest = sum(tensor.nbytes for _, tensor in others[MOST_NAMED:])
    return [*left, (f"{len(others) - MOST_NAMED} more tensors", rest)] if rest else left


def _held_bytes(gradient: torch.Tensor) -> int:
    """Bytes of a gradient; one from a sparse embedding has indices and values, and no `nbytes`."""
    if gradient.layout is torch.strided:
        return gradient.nbytes
    return sum(t.nbytes for t in (gradient._indices(), gradient._values())) if gradient.layout is torch.sparse_coo else 0


def storage_bytes(tensors: Mapping[str, torch.Tensor]) -> int:
    """Bytes of the storages behind these tensors, each once."""
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors.values()}.values())
