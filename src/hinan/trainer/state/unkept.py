"""Which tensors of a state's modules and optimizers are in no image, by what is truly kept: their memory, under any name.

A module says itself what it is, and need not say all of it; an optimizer trains what its groups hold, whoever owns that.

What an object gives in its own words (a clone, all weights in one flat tensor, a number) may be a copy of any tensor, and
nobody else can tell. So nothing is said of a tensor that has no more elements than all objects give in their own words.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import torch

from hinan.formats.values import Json
from hinan.trainer.state.layout import extent_bytes, has_its_bytes
from hinan.trainer.state.modules import unwrap
from hinan.trainer.state.naming import modules_of, moments_of, optimizers_of
from hinan.trainer.state.supported import is_supported

Named = tuple[str, torch.Tensor]


class Memory:
    """The bytes that lie behind some tensors."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        self._starts: dict[torch.device, list[int]] = {}
        self._ends: dict[torch.device, list[int]] = {}
        spans: dict[torch.device, list[tuple[int, int]]] = {}
        for tensor in filter(_has_memory, tensors):
            spans.setdefault(tensor.device, []).append((tensor.data_ptr(), tensor.data_ptr() + extent_bytes(tensor)))
        for device, found in spans.items():
            starts, ends = self._starts.setdefault(device, []), self._ends.setdefault(device, [])
            for start, end in sorted(found):
                if ends and start <= ends[-1]:
                    ends[-1] = max(ends[-1], end)
                else:
                    starts.append(start)
                    ends.append(end)

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether all of a tensor lies in there."""
        at = bisect_right(self._starts.get(tensor.device, []), tensor.data_ptr()) - 1
        return at >= 0 and tensor.data_ptr() + extent_bytes(tensor) <= self._ends[tensor.device][at]


def unkept(state: Mapping[str, Any], kept: Mapping[str, torch.Tensor], words: Iterable[Json]) -> dict[int, Named]:
    """Tensors of modules and of groups of optimizers of which nothing is in the image: by identity, with their names.

    Args:
        kept: the tensors in the image, by name.
        words: what objects have said in words of their own, as typed JSON.
    """
    named = names_of(state)
    memory = Memory(kept.values())
    missing = {i: (n, t) for i, (n, t) in named.items() if _has_memory(t) and not memory.holds(t)}
    if not missing:
        return {}
    known = Memory(chain((tensor for _, tensor in named.values()), moments_of(state)))
    copies = sum(_elements(said, kept, known) for said in words)
    return {identity: (name, tensor) for identity, (name, tensor) in missing.items() if tensor.numel() > copies}


def names_of(state: Mapping[str, Any]) -> dict[int, Named]:
    """Parameters and buffers of all modules of the state, and what else its optimizers train, by identity. A tensor has the
    first of its names, without those of wrappers; one of no module is called by its place in the groups."""
    names: dict[int, Named] = {}
    for path, module in modules_of(state):
        for part in (unwrap(module), module):  # a wrapper may have parameters of its own
            for name, tensor in chain(part.named_parameters(), part.named_buffers()):
                names.setdefault(id(tensor), (f"{path}.{name}", tensor))
    for path, optimizer in optimizers_of(state):
        for i, group in enumerate(optimizer.param_groups):
            for j, tensor in enumerate(group["params"]):
                names.setdefault(id(tensor), (f"{path}: group {i}, parameter {j} of shape {tuple(tensor.shape)}", tensor))
    return names


def _has_memory(tensor: torch.Tensor) -> bool:
    return is_supported(tensor) and tensor.numel() > 0 and has_its_bytes(tensor)


def _elements(said: Json, kept: Mapping[str, torch.Tensor], known: Memory) -> int:
    """At most how many numbers are in typed JSON that are not those of known tensors."""
    if isinstance(said, dict):
        if name := said.get("$tensor", [None])[0] or said.get("$ndarray"):
            return 0 if known.holds(kept[name]) else kept[name].numel()
        return sum(_elements(item, kept, known) for item in said.values())
    if isinstance(said, list):
        return sum(_elements(item, kept, known) for item in said)
    return len(said) if isinstance(said, str) else 1  # bytes and small arrays travel as text
