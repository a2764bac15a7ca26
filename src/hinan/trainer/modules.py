"""Tensors of a module by name: looked up once, read afresh at each evacuation, checked against the module's structure."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

_EXTRA_STATE = "_extra_state"


def unwrap(module: nn.Module) -> nn.Module:
    """The module inside DDP and torch.compile wrappers, so that names do not depend on how it is run."""
    while True:
        if isinstance(module, nn.parallel.DistributedDataParallel | nn.DataParallel):
            module = module.module
        elif hasattr(module, "_orig_mod") and isinstance(module._orig_mod, nn.Module):
            module = module._orig_mod
        else:
            return module


class ModuleTensors:
    """Where each name of a module's state_dict lives.

    `state_dict()` is called once per structure. Where every tensor in it is a parameter or buffer under its own name,
    later reads go straight to the owners; where a hook renames or replaces entries, later reads call `state_dict()` again.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._shape = _structure(module)
        names = module.state_dict(keep_vars=True)
        places = _places(module)
        self._extras = [n for n in names if not isinstance(names[n], torch.Tensor)]
        self._places = {n: places[n] for n in names if n in places and places[n][0][places[n][1]] is names[n]}
        self._plain = len(self._places) + len(self._extras) == len(names)

    @property
    def is_plain(self) -> bool:
        """Whether the names are exactly the module's own parameters, buffers and extra states."""
        return self._plain

    def still_holds(self) -> bool:
        """Whether the module has the parameters and buffers it had."""
        return _structure(self._module) == self._shape

    def read(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """(tensors by name, other values by name), in state_dict order."""
        if not self._plain:
            entries = self._module.state_dict(keep_vars=True)
            tensors = {n: v for n, v in entries.items() if isinstance(v, torch.Tensor)}
            return tensors, {n: v for n, v in entries.items() if n not in tensors}
        extras = {n: self._module.get_submodule(n.rpartition(".")[0]).get_extra_state() for n in self._extras}
        return {n: owner[attribute] for n, (owner, attribute) in self._places.items()}, extras


def _structure(module: nn.Module) -> list[tuple[Any, ...]]:
    """What must stay equal for a name's place to stay right: modules, their children by name, and which slots are filled.

    Modules are held, not their ids: a new layer may get the address of one that is gone.
    """
    found: list[tuple[Any, ...]] = []
    waiting: list[nn.Module | None] = [module]
    seen = set()
    while waiting:
        m = waiting.pop()
        if m is None or m in seen:
            continue
        seen.add(m)
        waiting += m._modules.values()
        parameters = [k for k, v in m._parameters.items() if v is not None]
        buffers = [k for k, v in m._buffers.items() if v is not None]
        found.append((m, parameters, buffers, *m._modules.items()))
    return found


def _places(module: nn.Module) -> dict[str, tuple[dict[str, Any], str]]:
    """Each parameter and buffer by every name it has: the dictionary that owns it and its key there."""
    places: dict[str, tuple[dict[str, Any], str]] = {}
    for prefix, owner in module.named_modules(remove_duplicate=False):
        for slots in (owner._parameters, owner._buffers):
            for attribute, value in slots.items():
                if value is not None:
                    places[f"{prefix}.{attribute}" if prefix else attribute] = (slots, attribute)
    return places
