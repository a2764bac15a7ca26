"""Optimizers that say their state themselves: by a `state_dict()` or `load_state_dict()` of their own, or by hooks.

An optimizer whose state is all in `.state` and `.param_groups` is *plain*: it is read and filled in place, and nothing of
it is asked. Every class of torch.optim is. Any other one has its own words for what it is (slow weights, a counter, an
optimizer inside), and only it knows what belongs to them: its `state_dict()` is kept, and its `load_state_dict()` gets it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim import Optimizer

from hinan.core.errors import CaptureError
from hinan.host.signals import ours

_METHODS = ("state_dict", "load_state_dict", "__setstate__")
_HOOKS = (
    "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks",
    "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)
_one_at_a_time = threading.RLock()


def is_plain(optimizer: Optimizer) -> bool:
    """Whether `.state` and `.param_groups` are all that its `state_dict()` says, and all that loading one changes."""
    kind, own = type(optimizer), vars(optimizer)
    return (
        kind.state_dict is Optimizer.state_dict
        and kind.load_state_dict is Optimizer.load_state_dict
        # Called by torch's load_state_dict. Those of torch.optim fill in options that older versions did not have.
        and getattr(kind.__setstate__, "__module__", "").startswith("torch.optim.")
        and not any(method in own for method in _METHODS)
        and not any(getattr(optimizer, hooks, None) for hooks in _HOOKS)
    )


def said_by(optimizer: Optimizer, path: str) -> Any:
    """What an optimizer says of itself, now.

    Raises:
        CaptureError: it does not answer.
    """
    try:
        return optimizer.state_dict()
    except ours(Exception) as error:
        kind = type(optimizer).__qualname__
        raise CaptureError(
            f"{path} ({kind}) has state of its own, and its state_dict() does not answer: {error}. Give it a state_dict() "
            "that answers after any step, or train with an optimizer that has one; sharded optimizers "
            "(ZeroRedundancyOptimizer) answer only when they were consolidated, and are not supported yet",
            path=path,
        ) from error


def load(optimizer: Optimizer, said: Any) -> None:
    """Give an optimizer back what it said; hooks run. Bits stay as they were said, and what it shares stays shared.

    Ownership: `said` is the optimizer's from now on.
    """
    with _one_at_a_time, _as_given():
        optimizer.load_state_dict(said)


@contextmanager
def _as_given() -> Iterator[None]:
    """Meanwhile torch's own `load_state_dict` casts nothing to its parameter's dtype, and keeps the dicts it fills.

    An optimizer that wraps another one calls it for what is inside, which nobody else can reach. It would round moments
    that are wider than their parameter. It would also put new groups in place of those that the wrapper shares with it: a
    learning rate that a schedule sets in the wrapper's would no longer reach the optimizer that steps.
    """
    cast, fill = Optimizer.__dict__["_process_value_according_to_param_policy"], Optimizer.__setstate__
    Optimizer._process_value_according_to_param_policy = staticmethod(_uncast)  # type: ignore[method-assign]

    def fill_in_place(self: Optimizer, state: dict[str, Any]) -> None:
        groups, moments = (self.__dict__.get(name) for name in ("param_groups", "state"))
        fill(self, state)
        if isinstance(groups, list):
            self.__dict__["param_groups"] = _groups_in_place(groups, self.__dict__["param_groups"])
        if isinstance(moments, dict):
            self.__dict__["state"] = _in_place(moments, self.__dict__["state"])

    fill_in_place.__module__ = fill.__module__
    Optimizer.__setstate__ = fill_in_place  # type: ignore[method-assign]
    try:
        yield
    finally:
        Optimizer._process_value_according_to_param_policy = cast  # type: ignore[method-assign]
        Optimizer.__setstate__ = fill  # type: ignore[method-assign]


def _uncast(param: torch.Tensor, value: torch.Tensor, *rest: object, **named: object) -> torch.Tensor:
    """In place of torch's policy: what was in host memory stays there, the rest goes to its parameter."""
    return value if value.device.type == "cpu" else value.to(param.device)


def _in_place(old: dict[Any, Any], new: Mapping[Any, Any]) -> dict[Any, Any]:
    if new is not old:
        items = dict(new)
        old.clear()
        old.update(items)
    return old


def _groups_in_place(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if len(old) != len(new):
        return new
    old[:] = [_in_place(group, filled) for group, filled in zip(old, new, strict=True)]
    return old
