"""Where torch keeps a module's parameters and buffers, and under which names it saves and loads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

Place = tuple[dict[str, Any], str]
"""The dictionary that owns a parameter or buffer, and its key there."""


def places_of(module: nn.Module) -> dict[str, Place]:
    """Each parameter and buffer by every name it has."""
    return {
        _below(prefix, attribute): (slots, attribute)
        for prefix, owner in module.named_modules(remove_duplicate=False)
        for slots, attribute in _slots(owner)
    }


def names_loaded(module: nn.Module) -> set[str]:
    """The names that torch's own `load_state_dict` looks for: persistent ones, and extra states."""
    names: set[str] = set()
    for prefix, owner in module.named_modules(remove_duplicate=False):
        own = [a for slots, a in _slots(owner) if slots is owner._parameters or a not in owner._non_persistent_buffers_set]
        if type(owner).set_extra_state is not nn.Module.set_extra_state:
            own.append("_extra_state")
        names.update(_below(prefix, attribute) for attribute in own)
    return names


def owners_of(name: str) -> Iterator[str]:
    """Names of the modules that a parameter is below, the root's included."""
    while name:
        name = name.rpartition(".")[0]
        yield name


def structure_of(module: nn.Module) -> list[tuple[Any, ...]]:
    """What must stay equal for a name's place to stay right: modules, their classes, their children by name, which slots
    are filled and saved, and who has a part in the saving.

    Modules are held, not their ids: a new layer may get the address of one that is gone.
    """
    found: list[tuple[Any, ...]] = []
    waiting: list[nn.Module | None] = [module]
    seen = set()
    classes: dict[type[nn.Module], None] = {}
    while waiting:
        m = waiting.pop()
        if m is None or m in seen:
            continue
        seen.add(m)
        waiting += m._modules.values()
        parameters = [k for k, v in m._parameters.items() if v is not None]
        buffers = [k for k, v in m._buffers.items() if v is not None]
        unsaved = m._non_persistent_buffers_set.copy() if m._non_persistent_buffers_set else None
        hooks = (*m._state_dict_hooks, *m._state_dict_pre_hooks) if m._state_dict_hooks or m._state_dict_pre_hooks else None
        put_in = [m.__dict__[name] for name in ("state_dict", "_save_to_state_dict") if name in m.__dict__]
        classes[type(m)] = None
        found.append((m, type(m), parameters, buffers, unsaved, hooks, put_in, *m._modules.items()))
    found += [(c, c.state_dict, c._save_to_state_dict, c.get_extra_state) for c in classes]
    return found


def _slots(owner: nn.Module) -> Iterator[Place]:
    """What a module itself holds."""
    for slots in (owner._parameters, owner._buffers):
        for attribute, value in slots.items():
            if value is not None:
                yield slots, attribute


def _below(prefix: str, attribute: str) -> str:
    return f"{prefix}.{attribute}" if prefix else attribute
