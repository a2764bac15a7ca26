"""Finds schedulers and scalers that move after `evac.step()`: every image would hold them one move behind (rule D4)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from hinan.formats.values import child
from hinan.trainer.evacuating.watching import version
from hinan.trainer.ports.worker import log_aside
from hinan.trainer.state.attributes import items_of

Mark = tuple[object, ...]


class LateMovers:
    """Compares three moments of the first evacuation: the gate before it, its boundary, the gate after it.

    What stood still between optimizer step and boundary, and moved between boundary and the next optimizer step, moves
    late. (So does one that is meant to move at the start of an iteration; resumed, that one is right all the same.)
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._state = state
        self._at_gate: dict[str, Mark] = {}
        self._at_boundary: dict[str, Mark] | None = None
        self._is_done = False

    def at_gate(self) -> None:
        """The first optimizer step of an iteration is about to begin."""
        if self._is_done:
            return
        now = dict(_marks(self._state))
        if self._at_boundary is None:
            self._at_gate = now
            return
        self._is_done = True
        for name, boundary in self._at_boundary.items():
            if self._at_gate.get(name) == boundary != now.get(name):
                log_aside(
                    logging.WARNING,
                    "%s moves after evac.step(): what is evacuated is one move behind. Make evac.step() the last statement "
                    "of the iteration, unless it is meant to move at the start of the next one", name,
                )  # fmt: skip

    def at_evacuation(self) -> None:
        """The state is evacuated at this boundary."""
        if self._at_boundary is None and self._at_gate:
            self._at_boundary = dict(_marks(self._state))


def _marks(value: object, path: str = "") -> Iterator[tuple[str, Mark]]:
    """What moves when a scheduler or scaler moves. Never `.item()`: that would wait for the device."""
    if isinstance(value, LRScheduler):
        # Schedulers of schedulers have no counters of their own, or only one of the two.
        inner = (mark for _, mark in _marks(getattr(value, "_schedulers", ())))
        yield path, (getattr(value, "last_epoch", None), getattr(value, "_step_count", None), *inner)
    elif isinstance(value, torch.amp.GradScaler):
        tensors = (value._scale, value._growth_tracker)
        yield path, tuple(None if t is None else (id(t), version(t)) for t in tensors)
    elif isinstance(value, Mapping):
        for i, (key, item) in enumerate(items_of(value)):
            # A parameter as a key is called by its place: its repr would wait for the device.
            yield from _marks(item, child(path, i if isinstance(key, torch.Tensor) else key))
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for i, item in enumerate(value):
            yield from _marks(item, child(path, i))
