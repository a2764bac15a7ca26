"""Tensors of a module by name: looked up once, read afresh at each evacuation, checked against the module's structure."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch import nn

from hinan.trainer.state.calling_modules import load_module, refuse_unloadable, said_by_module
from hinan.trainer.state.loading_modules import has_extra_state, loads_itself, saves_itself
from hinan.trainer.state.places import owners_of, places_of, structure_of


def unwrap(module: nn.Module) -> nn.Module:
    """The module inside DDP and torch.compile wrappers, so that names do not depend on how it is run."""
    while (inner := _wrapped(module)) is not None:
        module = inner
    return module


def _wrapped(module: nn.Module) -> nn.Module | None:
    """The module that a wrapper only runs. One with anything of its own beside it is a module like any other."""
    is_parallel = isinstance(module, nn.parallel.DistributedDataParallel | nn.DataParallel)
    inner = module._modules.get("module" if is_parallel else "_orig_mod")
    if inner is None or len(module._modules) > 1 or module._parameters or module._buffers:
        return None
    is_own = has_extra_state(module) or saves_itself(module) or loads_itself(module, is_root=True)
    return None if is_own else inner


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
        self._shape = structure_of(module)
        entries = said_by_module(module, path)
        self._versions = getattr(entries, "_metadata", None)
        tensors = [name for name, value in entries.items() if isinstance(value, torch.Tensor)]
        self._extras = [name for name in entries if name not in set(tensors)]
        places = places_of(module)
        self._places = {n: places[n] for n in tensors if n in places and places[n][0][places[n][1]] is entries[n]}
        by_name = dict(module.named_modules(remove_duplicate=False))
        self._saving = {name for name, owner in by_name.items() if saves_itself(owner)}
        self._loading = {name for name, owner in by_name.items() if loads_itself(owner, is_root=owner is module)}
        own = self._saving | self._loading
        self.given = {n for n in tensors if n not in self._places or not own.isdisjoint(owners_of(n))}
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
        return self._saving.isdisjoint(owners_of(name))

    def still_holds(self) -> bool:
        """Whether the module has the parameters and buffers it had, and nobody else has begun to save it."""
        return structure_of(self._module) == self._shape

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
