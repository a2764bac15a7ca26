"""Tensors of a module by name: looked up once, read afresh at each evacuation, checked against the module's structure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from hinan.core.errors import CaptureError
from hinan.trainer.state.asking import extra_of
from hinan.trainer.state.calling_modules import load_module, refuse_unloadable, said_by_module
from hinan.trainer.state.loading_modules import has_extra_state, loads_itself, saves_itself
from hinan.trainer.state.places import (
    held_at,
    is_extra_state,
    names_left_out,
    names_loaded,
    owners_of,
    places_of,
    structure_of,
    with_live_tensors,
)


def unwrap(module: nn.Module) -> nn.Module:
    """The module inside DDP and torch.compile wrappers, so that names do not depend on how it is run."""
    while (inner := _wrapped(module)) is not None:
        module = inner
    return module


def _wrapped(module: nn.Module) -> nn.Module | None:
    """The module that a wrapper only runs. One with anything of its own beside it is a module like any other."""
    if isinstance(module, torch.jit.ScriptModule):  # it wraps nothing, and its dicts are no dicts
        return None
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
        may_leave_out: what the module says could not be asked, and may be less than what torch would look for.
    """

    def __init__(self, module: nn.Module, path: str, *, is_fresh: bool = False) -> None:
        """
        Args:
            path: of the module in the state, for messages.
            is_fresh: it will be loaded. One that cannot say its state before it was trained is taken for what torch would
                look for in it.
        Raises:
            CaptureError: the module cannot say its state, or take it.
        """
        self._module, self._path = module, path
        self._shape = structure_of(module)
        by_name = dict(module.named_modules(remove_duplicate=False))
        self._saving = {name for name, owner in by_name.items() if saves_itself(owner)}
        self._loading = {name for name, owner in by_name.items() if loads_itself(owner, is_root=owner is module)}
        places = self._held = places_of(module)
        answers = True
        try:
            said = said_by_module(module, path, by_torch=not self._saving)
            self._versions = getattr(said, "_metadata", None)
            entries = self._with_live(said)
        except CaptureError:
            if not is_fresh:
                raise
            answers = False
            self._versions = OrderedDict((name, {"version": owner._version}) for name, owner in by_name.items())
            loaded = names_loaded(module)
            entries = {n: slots[attribute] for n, (slots, attribute) in places.items() if n in loaded}
        tensors = [name for name, value in entries.items() if isinstance(value, torch.Tensor)]
        self._extras = [name for name in entries if name not in set(tensors)]
        self._places = {n: places[n] for n in tensors if n in places and held_at(places[n]) is entries[n]}
        self.may_leave_out = bool(self._saving) and not answers
        self._asks = answers and bool(self._saving or any(n not in self._places for n in tensors))
        if not self.is_plain(tensors):
            refuse_unloadable(module, path)
        self._refuse_untaken(entries)

    def _refuse_untaken(self, said: Iterable[str]) -> None:
        """What torch alone loads must have a place there. Asked before the first copy: a restore could only refuse it."""
        by_torch = {n for n in said if self._loading.isdisjoint(owners_of(n)) and not is_extra_state(n)}
        untaken = sorted(by_torch - names_loaded(self._module)) if self._saving else []
        if untaken:
            others = f" and {len(untaken) - 1} more" if untaken[1:] else ""
            raise CaptureError(
                f"{self._path} is a {type(self._module).__qualname__} whose state_dict() has {untaken[0]!r}{others}, which "
                "no load_state_dict() of it takes. Give it one that does, or leave that out of its state_dict()",
                path=self._path,
            )

    def is_plain(self, names: Iterable[str]) -> bool:
        """Whether to load tensors of these names is to write parameters and buffers, and nothing else."""
        return not (self._saving or self._loading) and all(n in self._places for n in names)

    def is_given(self, name: str) -> bool:
        """Whether the module's own `load_state_dict` must be given a copy of a tensor: where its owner, or a module around
        that, saves or loads itself, and where it is no parameter or buffer under its own name."""
        return name not in self._places or not (self._saving | self._loading).isdisjoint(owners_of(name))

    def is_its_own(self, name: str) -> bool:
        """Whether a name is that of the parameter or buffer itself."""
        return name in self._places

    def is_saved_by_torch(self, name: str) -> bool:
        """Whether the saved tensor is the parameter as it was; who saves himself may have given it another form."""
        return self._saving.isdisjoint(owners_of(name))

    def is_loaded_by_torch(self, name: str) -> bool:
        """Whether a tensor is copied into a parameter or buffer, which must be there and have its shape; who loads himself
        may make it, or give it the shape that was saved."""
        return self._loading.isdisjoint(owners_of(name)) and not is_extra_state(name)

    def untaken_extras(self, names: Iterable[str]) -> list[str]:
        """Extra states that torch would load here, and no module takes."""
        extras = [n for n in names if is_extra_state(n) and self._loading.isdisjoint(owners_of(n))]
        return sorted(set(extras) - names_loaded(self._module)) if extras else []

    def still_holds(self) -> bool:
        """Whether the module has the parameters and buffers it had, and nobody else has begun to save it."""
        return structure_of(self._module) == self._shape

    def read(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """(tensors by name, other values by name), in state_dict order."""
        if self._asks:
            entries = self._with_live(said_by_module(self._module, self._path, by_torch=not self._saving))
            tensors = {n: v for n, v in entries.items() if isinstance(v, torch.Tensor)}
            return tensors, {n: v for n, v in entries.items() if n not in tensors}
        extras = {n: extra_of(self._path, self._module, n) for n in self._extras}
        return {n: owner[attribute] for n, (owner, attribute) in self._places.items()}, extras

    def _with_live(self, said: Mapping[str, Any]) -> Mapping[str, Any]:
        return with_live_tensors(said, self._held) if self._saving else said

    def load(self, entries: Mapping[str, Any], said: Mapping[str, Any]) -> None:
        """Let the module load itself. It is told that its entries are of the versions that it has now, as they are.

        Args:
            said: what it says now.
        """
        loaded = OrderedDict(entries)
        if self._versions is not None:
            loaded._metadata = self._versions  # type: ignore[attr-defined]
        load_module(self._module, loaded, names_left_out(self._module, said, entries))
