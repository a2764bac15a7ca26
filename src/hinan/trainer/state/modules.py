"""Tensors of a module by name: looked up once, read afresh at each evacuation, checked against the module's structure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from hinan.trainer.state.calling_modules import load_module, refuse_unloadable, said_by_module
from hinan.trainer.state.loading_modules import loads_itself, saves_itself


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
    """Where each name of a module's state_dict lives, and which of them only the module itself can load.

    `state_dict()` is called once per structure. Where torch alone makes it, later reads go straight to the owners; where a
    method or hook of the user's has a part in it (he may say something else each time), later reads call it again.

    Attributes:
        given: names of tensors that the module's own `load_state_dict` must be given as copies: all those of a module that
            saves or loads itself, with its children, and what is no parameter or buffer under its own name.
    """

    def __init__(self, module: nn.Module, path: str) -> None:
        """
        Args:
            path: of the module in the state, for messages.
        Raises:
            CaptureError: the module cannot say its state, or take it.
        """
        self._module, self._path = module, path
        self._shape = _structure(module)
        entries = said_by_module(module, path)
        self._versions = getattr(entries, "_metadata", None)
        tensors = [name for name, value in entries.items() if isinstance(value, torch.Tensor)]
        self._extras = [name for name in entries if name not in set(tensors)]
        places = _places(module)
        self._places = {n: places[n] for n in tensors if n in places and places[n][0][places[n][1]] is entries[n]}
        by_name = dict(module.named_modules(remove_duplicate=False))
        self._saving = {name for name, owner in by_name.items() if saves_itself(owner)}
        self._loading = {name for name, owner in by_name.items() if loads_itself(owner, is_root=owner is module)}
        own = self._saving | self._loading
        self.given = {n for n in tensors if n not in self._places or not own.isdisjoint(_owners(n))}
        if not self.is_plain:
            refuse_unloadable(module, path)

    @property
    def is_plain(self) -> bool:
        """Whether to load the module is to write its parameters, buffers and extra states, and nothing else."""
        return not (self.given or self._saving or self._loading)

    def is_its_own(self, name: str) -> bool:
        """Whether a name is that of the parameter or buffer itself."""
        return name in self._places

    def is_saved_by_torch(self, name: str) -> bool:
        """Whether the saved tensor is the parameter as it was; who saves himself may have given it another form."""
        return self._saving.isdisjoint(_owners(name))

    def still_holds(self) -> bool:
        """Whether the module has the parameters and buffers it had, and nobody else has begun to save it."""
        return _structure(self._module) == self._shape

    def read(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """(tensors by name, other values by name), in state_dict order."""
        if self._saving or any(n not in self._places for n in self.given):
            entries = said_by_module(self._module, self._path)
            tensors = {n: v for n, v in entries.items() if isinstance(v, torch.Tensor)}
            return tensors, {n: v for n, v in entries.items() if n not in tensors}
        extras = {n: self._module.get_submodule(n.rpartition(".")[0]).get_extra_state() for n in self._extras}
        return {n: owner[attribute] for n, (owner, attribute) in self._places.items()}, extras

    def load(self, entries: dict[str, Any]) -> None:
        """Let the module load itself. It is told that its entries are of the versions that it has now, as they are."""
        loaded = OrderedDict(entries)
        if self._versions is not None:
            loaded._metadata = self._versions  # type: ignore[attr-defined]
        load_module(self._module, loaded)


def _owners(name: str) -> Iterator[str]:
    """Names of the modules that a parameter is below, the root's included."""
    while name:
        name = name.rpartition(".")[0]
        yield name


def _structure(module: nn.Module) -> list[tuple[Any, ...]]:
    """What must stay equal for a name's place to stay right: modules, their children by name, which slots are filled, and
    who has hooked into the saving.

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
        hooks = len(m._state_dict_hooks), len(m._state_dict_pre_hooks), "state_dict" in m.__dict__
        found.append((m, parameters, buffers, hooks, *m._modules.items()))
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
