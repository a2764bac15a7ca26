"""How large this rank's image will be, told before the first step from what is there, and from what optimizers will make.

Promises:  nothing live is changed or asked: no `state_dict()` of the user's (one of a data loader may draw random numbers),
           no optimizer step. What cannot be told without that is named, and the forecast is then "at least".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from hinan.core.optimizer_state import KNOWN, StateTensor, state_of
from hinan.formats.image import ITEM_BYTES, Entry, lay_out
from hinan.formats.values import child
from hinan.trainer.ports.device import RING_CHUNKS
from hinan.trainer.ports.pieces import CHUNK_BYTES
from hinan.trainer.state.attributes import items_of, says_its_state
from hinan.trainer.state.capture import INLINE_ARRAY_BYTES
from hinan.trainer.state.layout import SAFETENSORS_WORD, make_plan
from hinan.trainer.state.loading_modules import saves_itself
from hinan.trainer.state.loading_optimizers import is_plain
from hinan.trainer.state.modules import unwrap
from hinan.trainer.state.naming import optimizer_names, parameter_names
from hinan.trainer.state.supported import is_supported

OWN_BYTES = 64 << 20
"""Most memory of hinan's own in a trainer beside the slots: buckets, temporaries (docs/design/ram-budget.md)."""

_Trained = tuple[torch.Tensor, Mapping[str, Any]]


@dataclass
class Forecast:
    """What the walk found.

    Attributes:
        image_bytes: of this rank's image after the first step.
        coming_bytes: the part of it that optimizers have yet to make.
        host_bytes: what the first step makes in host memory beside the slots: optimizer state and gradients of CPU
            parameters.
        ring_bytes: pinned chunks that copies from devices go through.
        unknown: what could not be told, in words.
    """

    image_bytes: int = 0
    coming_bytes: int = 0
    host_bytes: int = 0
    ring_bytes: int = 0
    unknown: list[str] = field(default_factory=list)


def forecast(state: Mapping[str, Any]) -> Forecast:
    """The forecast for a state as it is now."""
    walk = _Walk(parameter_names(state))
    for key, value in state.items():
        walk.visit(str(key), value)
    plan = make_plan(walk.tensors)
    there = plan.header.by_name.keys() | plan.header.views.keys()
    coming = [entry for name, entry in walk.coming.items() if name not in there]
    _, header = lay_out([*plan.header.entries, *walk.arrays, *coming], plan.header.views)
    found = walk.found
    found.image_bytes = header.image_bytes
    found.coming_bytes = sum(entry.size_bytes for entry in coming)
    found.ring_bytes = sum(ring_bytes(kind) for kind in {t.device for t in walk.tensors.values()})
    return found


def ring_bytes(device: torch.device) -> int:
    """Pinned host memory for copies from a device; none where the slots themselves are pinned or no device is involved."""
    return 0 if device.type in ("cpu", "cuda") else RING_CHUNKS * CHUNK_BYTES


class _Walk:
    """Collects live tensors, and entries of tensors that are still to come."""

    def __init__(self, known: Mapping[int, str]) -> None:
        self._known = known
        self.tensors: dict[str, torch.Tensor] = {}
        self.arrays: list[Entry] = []
        self.coming: dict[str, Entry] = {}
        self.found = Forecast()

    def visit(self, path: str, value: object) -> None:
        if isinstance(value, torch.Tensor):
            if is_supported(value):
                self.tensors.setdefault(path, value.detach())
        elif isinstance(value, nn.Module):
            self._module(path, unwrap(value))
        elif isinstance(value, Optimizer):
            self._optimizer(path, value)
        elif isinstance(value, np.ndarray):
            if value.nbytes > INLINE_ARRAY_BYTES:
                self.arrays.append(Entry(path, "U8", (value.nbytes,)))
        elif isinstance(value, Mapping):
            for key, item in items_of(value):
                self.visit(child(path, key), item)
        elif isinstance(value, list | tuple | deque):
            for i, item in enumerate(value):
                self.visit(child(path, i), item)
        elif says_its_state(value):
            self.found.unknown.append(f"what {path} ({type(value).__name__}) gives as its state_dict")

    def _module(self, path: str, module: nn.Module) -> None:
        if any(map(nn.parameter.is_lazy, chain(module.parameters(), module.buffers()))):
            self.found.unknown.append(f"what {path} ({type(module).__name__}) makes when it runs first")
        if any(map(saves_itself, module.modules())):
            self.found.unknown.append(f"what {path} ({type(module).__name__}) adds to its state_dict")
        for prefix, owner in module.named_modules(remove_duplicate=False):
            for slots in (owner._parameters, owner._buffers):
                for attribute, tensor in slots.items():
                    if tensor is not None and attribute not in owner._non_persistent_buffers_set:
                        self.visit(".".join(part for part in (path, prefix, attribute) if part), tensor)

    def _optimizer(self, path: str, optimizer: Optimizer) -> None:
        names = optimizer_names(optimizer, self._known)
        for key, entry in optimizer.state.items():
            # By identity: a parameter compares its values, and another key may be of any kind.
            self.visit(f"{path}.{names[id(key)]}" if id(key) in names else child(path, key), entry)
        for i, group in enumerate(optimizer.param_groups):
            self.visit(f"{path}.groups.[{i}]", {k: v for k, v in group.items() if k not in ("params", "param_names")})
        if not is_plain(optimizer):
            self.found.unknown.append(f"what {path} ({type(optimizer).__name__}) gives as its state_dict")
        trained = [
            (p, group)
            for group in optimizer.param_groups
            for p in group["params"]
            if p.requires_grad and not nn.parameter.is_lazy(p)
        ]
        self.found.host_bytes += sum(p.nbytes for p, _ in trained if p.device.type == "cpu" and p.grad is None)
        if not any(optimizer.state.values()):
            self._state_to_come(path, optimizer, trained, names)

    def _state_to_come(
        self, path: str, optimizer: Optimizer, trained: Sequence[_Trained], names: Mapping[int, str]
    ) -> None:
        """State of the parameters that get a gradient; the others never get state either."""
        kind = _known_kind(type(optimizer))
        if kind != type(optimizer).__name__:
            self.found.unknown.append(f"the state that {path} ({type(optimizer).__name__}) makes in its first step")
        for parameter, group in trained:
            for tensor in state_of(kind, group, tuple(parameter.shape)) or ():
                entry = _entry(f"{path}.{names[id(parameter)]}.{tensor.name}", tensor, parameter, group)
                self.coming[entry.name] = entry
                self.found.host_bytes += entry.size_bytes if parameter.device.type == "cpu" else 0


def _known_kind(kind: type) -> str:
    """The name of the class, or of the nearest one it is made from, that is torch.optim's and in the table."""
    own = (c.__name__ for c in kind.__mro__ if c.__module__.startswith("torch.optim") and c.__name__ in KNOWN)
    return next(own, "")


def _entry(name: str, tensor: StateTensor, parameter: torch.Tensor, group: Mapping[str, Any]) -> Entry:
    dtype = parameter.dtype
    if tensor.is_scalar:
        dtype = torch.float32 if group.get("fused") or torch.get_default_dtype() != torch.float64 else torch.float64
    word = SAFETENSORS_WORD.get(dtype)
    if word is None or ITEM_BYTES[word] != dtype.itemsize:
        elements = torch.Size(tensor.shape).numel()
        return Entry(name, "U8", (elements * dtype.itemsize,))
    return Entry(name, word, tensor.shape)
