"""Writes saved bits over live tensors: in place, in order, and on two threads where that is worth it."""

from __future__ import annotations

import operator
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, MutableMapping
from functools import partial
from typing import Any

import torch

from hinan.trainer.ports.halves import in_halves
from hinan.trainer.restoring.saved import SavedTensor


class Copies:
    """Neighbouring in-place copies, as one write: long runs of host memory are shared among threads."""

    def __init__(self) -> None:
        self.pairs: list[tuple[torch.Tensor, SavedTensor]] = []

    def __call__(self) -> None:
        if self._can_share:
            # memmove lets the other thread run; what torch copies itself (strides, lazy conjugates) is rare and short.
            in_halves(self.pairs, lambda pair: pair[0].nbytes, write_all)
        else:
            write_all(self.pairs)

    @property
    def _can_share(self) -> bool:
        """All on the host, and no two in one storage: where they overlap, their order decides."""
        storages = {live.untyped_storage().data_ptr() for live, _ in self.pairs}
        return len(storages) == len(self.pairs) and all(live.device.type == "cpu" for live, _ in self.pairs)


def write_all(pairs: Iterable[tuple[torch.Tensor, SavedTensor]]) -> None:
    """Overwrite live tensors, one after the other."""
    for live, saved in pairs:
        saved.write_over(live)


def put_in_order(live: MutableMapping[Any, Any], keys: Iterable[Any]) -> None:
    """Let these members of a mapping of Python's own follow each other in this order; one that is out of it moves them all
    behind the others. A loop may take the first, or draw from them; an OrderedDict is compared by it.

    Invariant:  between two calls into C all members are in: a signal's handler may raise there, and the next restore must
                find the objects that it writes into.
    """
    rank = {key: place for place, key in enumerate(keys)}
    known = [key for key in live if key in rank]
    ordered = sorted(known, key=rank.__getitem__)
    if all(map(operator.is_, known, ordered)):
        return
    if isinstance(live, OrderedDict):
        for key in ordered:
            live.move_to_end(key)
    elif isinstance(live, dict) and type(live) in (dict, defaultdict, Counter):
        whole = {key: item for key, item in live.items() if key not in rank} | {key: live[key] for key in ordered}
        at_once: list[Callable[[], object]] = [live.clear, partial(dict.update, live, whole)]  # a Counter's own would add
        deque(map(operator.call, at_once), maxlen=0)
