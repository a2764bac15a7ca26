"""The data: the Python standard library's own source text, byte by byte, in a shuffled order with a position.

Promises:  the same machine gives the same text; `state_dict` holds all that decides the next batch.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

import torch

VOCABULARY = 256


def library_text() -> bytes:
    """The modules at the top of the standard library, in the order of their names."""
    root = Path(sysconfig.get_path("stdlib"))
    return b"\n".join(path.read_bytes() for path in sorted(root.glob("*.py")))


class Text:
    """Windows of a text in a shuffled order, shared out over the ranks; a new order each epoch."""

    def __init__(self, text: bytes, context: int, batch: int, seed: int, rank: int = 0, world_size: int = 1) -> None:
        """
        Args:
            context: bytes in a window, without the one that follows.
            batch: windows in a batch of one rank.
        """
        self._bytes = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        self._context, self._batch, self._seed = context, batch, seed
        self._rank, self._world_size = rank, world_size
        self._windows = (len(text) - 1) // context
        self.epoch, self.position = 0, 0
        self._order = self._shuffled()

    def __len__(self) -> int:
        """Windows in an epoch."""
        return self._windows

    def next_batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The next windows of this rank and the bytes that follow each byte: two (batch, context) tensors, int64."""
        taken = self._batch * self._world_size
        if self.position + taken > self._windows:
            self.epoch, self.position = self.epoch + 1, 0
            self._order = self._shuffled()
        first = self.position + self._rank * self._batch
        self.position += taken
        starts = self._order[first : first + self._batch] * self._context
        windows = self._bytes[starts[:, None] + torch.arange(self._context + 1)].long()
        return windows[:, :-1], windows[:, 1:]

    def state_dict(self) -> dict[str, Any]:
        """Epoch and position; the order follows from the seed and the epoch."""
        return {"epoch": self.epoch, "position": self.position, "seed": self._seed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a position."""
        self.epoch, self.position, self._seed = state["epoch"], state["position"], state["seed"]
        self._order = self._shuffled()

    def _shuffled(self) -> torch.Tensor:
        # A generator of its own: shuffling must not draw from the one that dropout uses.
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + self.epoch)
        return torch.randperm(self._windows, generator=generator)
