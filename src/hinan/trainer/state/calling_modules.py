"""Calls the `state_dict` and `load_state_dict` of a module, which may be the user's own, as they can be called.

Nobody but the user calls those of the module at the top: they need not take the arguments that torch's own have, nor give
and want every parameter. They are called as he would call them. What such a module says, it can also be given back.
"""

from __future__ import annotations

import inspect
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from types import FrameType
from typing import Any

import torch
from torch import nn

from hinan.core.errors import CaptureError
from hinan.host.signals import ours
from hinan.trainer.state.places import owners_of


def takes(method: Callable[..., object], *arguments: object, **named: object) -> bool:
    """Whether a method can be called with these arguments."""
    function = getattr(method, "__func__", None)
    if function is None:
        return _binds(method, len(arguments), tuple(named))
    return _binds(function, 1 + len(arguments), tuple(named))


@lru_cache(maxsize=1024)
def _binds(function: Callable[..., object], count: int, names: tuple[str, ...]) -> bool:
    """The same, by how many arguments. Ten thousand objects of one class are asked at each evacuation."""
    try:
        inspect.signature(function).bind(*[None] * count, **dict.fromkeys(names))
    except TypeError:
        return False
    except ValueError:  # one without a signature, written in C
        pass
    return True


def said_by_module(module: nn.Module, path: str, *, by_torch: bool) -> Mapping[str, Any]:
    """What a module says of itself, now.

    Args:
        by_torch: torch alone makes the answer, and gives the very parameters. Where code of the user's has a part in it, it
            gets the detached tensors that it is used to: it may convert them, or switch off their gradients.
    Raises:
        CaptureError: it does not answer.
    """
    try:
        said: Any = module.state_dict(keep_vars=True) if by_torch else module.state_dict()
        if not isinstance(said, Mapping):
            raise TypeError(f"it is a {type(said).__qualname__}, not a dict")
        if odd := [key for key in said if not isinstance(key, str)]:
            raise TypeError(f"its key {odd[0]!r} is no string")
        return said
    except ours(Exception) as error:
        raise CaptureError(
            f"{path} is a {type(module).__qualname__} whose state_dict() does not answer: {type(error).__name__}: {error}. "
            "Let it answer with a dict by names after any step, and without arguments; or put its parts into the state",
            path=path,
        ) from error


def refuse_unloadable(module: nn.Module, path: str) -> None:
    """A module that loads itself must take its state alone. Asked before the first copy: later it could not come back."""
    if not takes(module.load_state_dict, {}):
        raise CaptureError(
            f"{path} is a {type(module).__qualname__} whose load_state_dict() cannot be called with the state alone; give "
            "its other arguments defaults, or put its parts into the state",
            path=path,
        )


def load_module(module: nn.Module, entries: Mapping[str, Any], left_out: Collection[str]) -> None:
    """Let a module load itself, once, as its user would: `load_state_dict(entries)`, which torch takes strictly.

    An entry that torch does not take is an error of torch's. A method of the user's decides for itself what it takes; what
    it asks of torch without `strict` is answered as always, for it may act on what is missing.

    Args:
        entries: the module may change them, and keep them.
        left_out: names that the module leaves out of its own `state_dict`: a strict load does not miss them.
    """
    with _not_missed(module, left_out):
        module.load_state_dict(entries)


@contextmanager
def _not_missed(module: nn.Module, names: Collection[str]) -> Iterator[None]:
    """For the time of a load: torch's strict loads of a module, or of a part of it alone, do not miss these names."""
    parts = dict(module.named_modules(remove_duplicate=False))
    left_out: dict[nn.Module, set[str]] = defaultdict(set)
    for name in names:
        for owner in owners_of(name):
            left_out[parts[owner]].add(name.removeprefix(f"{owner}.") if owner else name)
    handles = []
    try:
        for part, below in left_out.items():
            if isinstance(part, torch.jit.ScriptModule):
                continue  # takes no hook; it has no method of the user's that would load it alone
            hook = partial(_do_not_miss, below)
            handles.append(part.register_load_state_dict_post_hook(hook))  # type: ignore[no-untyped-call]
        yield
    finally:
        for handle in handles:
            handle.remove()


def _do_not_miss(names: Collection[str], module: nn.Module, found: Any) -> None:
    """A hook of torch's, called with what a load has found so far.

    Invariant:  it does nothing outside a load of ours. A module that copies itself as it is loaded takes its hooks along,
                and a signal's handler that raises may leave one behind.
    """
    root, is_strict = _load_around()
    if root is module and is_strict:
        found.missing_keys[:] = [name for name in found.missing_keys if name not in names]


def _load_around() -> tuple[object, bool]:
    """(module, `strict`) of the innermost `load_state_dict` of torch's that is running, if it belongs to a load of ours.
    torch does not tell its hooks: they are asked for a module that is loaded and for its children, and every list is filled
    as if all loads were strict."""
    frame: FrameType | None = sys._getframe()
    found: tuple[object, bool] = None, False
    while frame is not None:
        if frame.f_code is load_module.__code__:
            return found
        is_torchs = frame.f_code.co_name == "load_state_dict" and frame.f_globals.get("__name__") == nn.Module.__module__
        if is_torchs and found[0] is None:
            found = frame.f_locals["self"], bool(frame.f_locals["strict"])
        frame = frame.f_back
    return None, False
