"""Names of parameters and optimizers: the same at every evacuation, and in the process that restores."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import nn
from torch.utils.data import DataLoader

from hinan.formats.values import child
from hinan.trainer.state.attributes import items_of
from hinan.trainer.state.modules import unwrap

Kind = TypeVar("Kind")


def optimizers_of(state: object, path: str = "") -> Iterator[tuple[str, torch.optim.Optimizer]]:
    """The optimizers in containers of a state, each with the path that a capture gives it. Asks no `state_dict()`."""
    return _objects(state, path, torch.optim.Optimizer)


def modules_of(state: object, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The modules in containers of a state, wrapped as they are, likewise."""
    return _objects(state, path, nn.Module)


def loaders_of(state: object, path: str = "") -> Iterator[tuple[str, DataLoader[Any]]]:
    """The data loaders in containers of a state, likewise."""
    return _objects(state, path, DataLoader)


def moments_of(state: object) -> Iterator[torch.Tensor]:
    """The tensors in the state of all its optimizers."""
    for _, optimizer in optimizers_of(state):
        for entry in optimizer.state.values():
            members = entry.values() if isinstance(entry, dict) else (entry,)
            yield from (member for member in members if isinstance(member, torch.Tensor))


def _objects(state: object, path: str, kind: type[Kind]) -> Iterator[tuple[str, Kind]]:
    if isinstance(state, kind):
        yield path, state
    elif isinstance(state, Mapping):
        for i, (key, value) in enumerate(items_of(state)):
            at = child(path, i if isinstance(key, torch.Tensor) else key) if path else str(key)
            yield from _objects(value, at, kind)
    elif isinstance(state, list | tuple | deque):
        for i, value in enumerate(state):
            yield from _objects(value, child(path, i), kind)


def parameter_names(state: Mapping[str, Any]) -> dict[int, str]:
    """Names of the parameters of all modules at the top of the state, by identity; a tied one has its first name."""
    names: dict[int, str] = {}
    for name, parameter in parameters_by_name(state).items():
        names.setdefault(id(parameter), name)
    return names


def parameters_by_name(state: Mapping[str, Any]) -> dict[str, nn.Parameter]:
    """Parameters of all modules at the top of the state; a tied one is there once in each module."""
    return {
        f"{key}.{name}": parameter
        for key, value in state.items()
        if isinstance(value, nn.Module)
        for name, parameter in unwrap(value).named_parameters()
    }


def optimizer_names(optimizer: torch.optim.Optimizer, known: Mapping[int, str]) -> dict[int, str]:
    """A name for each parameter of an optimizer: that of its module, else its place in the groups."""
    names: dict[int, str] = {}
    for i, group in enumerate(optimizer.param_groups):
        for j, parameter in enumerate(group["params"]):
            names.setdefault(id(parameter), known.get(id(parameter), f"group{i}.{j}"))
    return names


def parameters_of(optimizer: torch.optim.Optimizer) -> Iterator[Any]:
    """The parameters of all groups, in order."""
    # Whatever an optimizer of the user's looks like, a hook of ours must not be what ends its step.
    return chain.from_iterable(group.get("params", ()) for group in optimizer.param_groups)
