"""Who in a state holds which tensor: a module that loads itself must not part what was one.

Why:  `load_state_dict(assign=True)` puts new tensors in the place of those that an optimizer was made for. The optimizer
      goes on to train the old ones, the model to use the new ones, and nothing would ever say so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import nn

from hinan.core.errors import StructureError
from hinan.formats.values import child
from hinan.trainer.state.modules import unwrap


def holders(state: Mapping[str, object]) -> dict[str, torch.Tensor]:
    """Tensors by every place that holds them: containers, parameters and buffers of modules, groups of optimizers."""
    return dict(_holders(state, ""))


def _holders(value: object, path: str) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, nn.Module):
        bare = unwrap(value)
        for named in (bare.named_parameters, bare.named_buffers):
            yield from ((f"{path}.{name}", tensor) for name, tensor in named(remove_duplicate=False))
    elif isinstance(value, torch.optim.Optimizer):
        for i, group in enumerate(value.param_groups):
            yield from ((f"{path}.groups.[{i}].params.[{j}]", p) for j, p in enumerate(group["params"]))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            at = child(path, key) if path else str(key)
            if isinstance(key, torch.Tensor):  # by identity: a mapping may be put into another order
                at = child(path, f"key {id(key):#x}")
                yield f"{at} itself", key
            yield from _holders(item, at)
    elif isinstance(value, list | tuple | deque):
        for i, item in enumerate(value):
            yield from _holders(item, child(path, i))


def refuse_parted(before: Mapping[str, torch.Tensor], now: Mapping[str, torch.Tensor], loaded: Sequence[str]) -> None:
    """Raise if places that held one tensor hold different ones now.

    Args:
        loaded: paths of the modules that loaded themselves in between.
    Raises:
        StructureError: names two such places.
    """
    first: dict[int, str] = {}
    for place, tensor in before.items():
        if place not in now:
            continue  # a container that was longer than the saved one
        other = first.setdefault(id(tensor), place)
        if now[place] is not now[other]:
            new, old = (other, place) if now[place] is tensor else (place, other)
            raise StructureError(
                f"{new} and {old} were one tensor, and loading {', '.join(loaded)} has put another one into {new}: what "
                "trains the one would no longer change the other. Let it load by copying into the tensors that are there "
                "(without assign=True). The state is written in part: do not train on it.",
                path=new,
            )
