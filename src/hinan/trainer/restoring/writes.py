"""Writes saved bits over live tensors: in place, in order, and on two threads where that is worth it."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import Any

import torch

from hinan.trainer.restoring.saved import SavedTensor

WORTH_A_THREAD_BYTES = 32 << 20


class Copies:
    """Neighbouring in-place copies, as one write: long runs of host memory are shared among threads."""

    def __init__(self) -> None:
        self.pairs: list[tuple[torch.Tensor, SavedTensor]] = []

    def __call__(self) -> None:
        sizes = list(accumulate(live.nbytes for live, _ in self.pairs))
        if not (sizes and sizes[-1] >= WORTH_A_THREAD_BYTES and self._can_share):
            write_all(self.pairs)
            return
        middle = bisect_right(sizes, sizes[-1] // 2)
        # memmove lets the other thread run; what torch copies itself (strides, lazy conjugates) is rare and short.
        with ThreadPoolExecutor(1, "hinan-install") as helper:
            other = helper.submit(write_all, self.pairs[middle:])
            write_all(self.pairs[:middle])
            other.result()

    @property
    def _can_share(self) -> bool:
        """All on the host, and no two in one storage: where they overlap, their order decides."""
        storages = {live.untyped_storage().data_ptr() for live, _ in self.pairs}
        return len(storages) == len(self.pairs) and all(live.device.type == "cpu" for live, _ in self.pairs)


def write_all(pairs: Iterable[tuple[torch.Tensor, SavedTensor]]) -> None:
    """Overwrite live tensors, one after the other."""
    for live, saved in pairs:
        saved.write_over(live)


def put_in_order(live: OrderedDict[Any, Any], keys: Iterable[Any]) -> None:
    """Let these members follow each other in this order, behind all others: an OrderedDict is compared by it."""
    for key in keys:
        live.move_to_end(key)
