"""Where torch keeps a module's parameters and buffers, and under which names it saves and loads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from hinan.host.signals import ours
from hinan.trainer.state.attributes import has
from hinan.trainer.state.supported import is_supported

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


def names_left_out(module: nn.Module, said: Mapping[str, Any], saved: Mapping[str, Any]) -> set[str]:
    """The names that a module leaves out of its own `state_dict`: a frozen part, or all of them where it has other names.

    None where it says a tensor now that was not saved: the saved module was another one, and what is missing is missing.
    An extra state that was not saved keeps its value, as in a module that torch loads.

    Args:
        said: what the module says now.
        saved: what it is given. What both hold in dicts has names, too: `{"net": {"weight": ...}}` is net.weight.
    """
    now, then = dict(_parts(said, "")), dict(_parts(saved, ""))
    new = {name: value for name, value in now.items() if name not in then and not is_extra_state(name)}
    if any(has(value, "shape") for value in new.values()):
        return set()
    return names_loaded(module) - then.keys() - new.keys()


def _parts(value: object, path: str) -> Iterator[tuple[str, object]]:
    if path:
        yield path, value
    if isinstance(value, Mapping):
        items: Any = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    else:
        return
    for key, item in items:
        yield from _parts(item, _below(path, str(key)))


def is_extra_state(name: str) -> bool:
    """Whether a name is that of what `get_extra_state` returns, tensor or not."""
    return name.rpartition(".")[2] == "_extra_state"


def owners_of(name: str) -> Iterator[str]:
    """Names of the modules that a parameter is below, the root's included."""
    while name:
        name = name.rpartition(".")[0]
        yield name


def with_live_tensors(said: Mapping[str, Any], places: Mapping[str, Place]) -> dict[str, Any]:
    """What a module says, with its own parameters and buffers in the place of tensors that are views of all of them.

    torch detaches what it gives to code of the user's; an optimizer knows the parameter itself.
    """
    by_memory: dict[int, list[torch.Tensor]] = {}
    found = dict(said)
    for name, value in said.items():
        if not isinstance(value, torch.Tensor):
            continue
        live = held_at(places[name]) if name in places else None
        if live is not None and _is_all_of(value, live):
            found[name] = live
        elif is_supported(value) and value.numel():  # under another name; of several that are tied the first
            if not by_memory:
                for tensor in map(held_at, places.values()):
                    if tensor is not None and is_supported(tensor):
                        by_memory.setdefault(tensor.data_ptr(), []).append(tensor)
            found[name] = next((t for t in by_memory.get(value.data_ptr(), ()) if _is_all_of(value, t)), value)
    return found


def held_at(place: Place) -> torch.Tensor | None:
    """What is there now: code of the user's that runs as a module is saved may have taken it away."""
    slots, attribute = place
    tensor: torch.Tensor | None = slots[attribute] if attribute in slots else None  # noqa: SIM401 - TorchScript has no get
    return tensor


def _is_all_of(value: torch.Tensor, live: torch.Tensor) -> bool:
    """Whether two tensors are the same bytes, read in the same way."""
    try:
        is_same = value.dtype is live.dtype and value.is_set_to(live)
    except ours(Exception):  # one without bytes of its own: sparse, lazy, meta
        return False
    return is_same and value.is_conj() == live.is_conj() and value.is_neg() == live.is_neg()


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
