"""Optimizer state of parameters that are in none of the optimizer's groups any more.

torch leaves it where it is: `opt.param_groups.pop(1)` freezes a group, and a parameter that was exchanged for another one
(`load_state_dict(assign=True)`) keeps its moments under the old one. An optimizer looks at nothing but its groups. So:

- A parameter of a module of the state is kept by name. It may come back into a group, and then finds its moments.
- Any other one is not in the image itself. Nothing could come back of it in a resumed run, and its moments are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

Entries = list[tuple[str | None, Any, Any]]
"""(name of the parameter, or None for an entry of the optimizer's own; key; entry) of an optimizer's state."""


def named_entries(
    optimizer: torch.optim.Optimizer, names: Mapping[int, str], known: Mapping[int, str]
) -> tuple[Entries, list[Any]]:
    """What is kept of an optimizer's state, in its order, and the entries that are left out.

    Args:
        names: those of the parameters in its groups, by identity.
        known: those of all modules' parameters, by identity.
    """
    # Read by items: indexing `optimizer.state` would create entries (it is a defaultdict).
    entries = [(names.get(id(key)), key, entry) for key, entry in optimizer.state.items()]
    if all(name is not None for name, _, _ in entries):
        return entries, []
    named: Entries = [(name or known.get(id(key)), key, entry) for name, key, entry in entries]
    return [e for e in named if not _is_nobodys(e)], [e[2] for e in named if _is_nobodys(e)]


def bytes_of(entries: Iterable[Any]) -> int:
    """What the tensors in entries of an optimizer's state take."""
    values = (value for entry in entries if isinstance(entry, dict) for value in entry.values())
    return sum(value.nbytes for value in values if isinstance(value, torch.Tensor) and value.layout is torch.strided)


def _is_nobodys(entry: tuple[str | None, Any, Any]) -> bool:
    """Whether its key is what only a group can have held: other tensors may be keys of an optimizer's own."""
    name, key, _ = entry
    return name is None and (isinstance(key, nn.Parameter) or (isinstance(key, torch.Tensor) and key.requires_grad))
