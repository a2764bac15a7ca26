"""Calls the `state_dict` and `load_state_dict` of a module, which may be the user's own, as they can be called.

Nobody but the user calls those of the module at the top: they need not take the arguments that torch's own have, nor give
and want every parameter. What such a module says, it can also be given back.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from hinan.core.errors import CaptureError
from hinan.host.signals import ours
from hinan.trainer.state.places import names_loaded


def takes(method: Callable[..., object], *arguments: object, **named: object) -> bool:
    """Whether a method can be called with these arguments."""
    try:
        inspect.signature(method).bind(*arguments, **named)
    except TypeError:
        return False
    except ValueError:  # one without a signature, written in C
        pass
    return True


def said_by_module(module: nn.Module, path: str) -> Mapping[str, Any]:
    """What a module says of itself, now: its very parameters, where it can be asked for them.

    Raises:
        CaptureError: it does not answer.
    """
    try:
        said: Any = module.state_dict(keep_vars=True) if takes(module.state_dict, keep_vars=True) else module.state_dict()
        if not isinstance(said, Mapping):
            raise TypeError(f"it is a {type(said).__qualname__}, not a dict")
        if odd := [key for key in said if not isinstance(key, str)]:
            raise TypeError(f"its key {odd[0]!r} is no string")
        return said
    except ours(Exception) as error:
        raise CaptureError(
            f"{path} is a {type(module).__qualname__} whose state_dict() does not answer: {type(error).__name__}: {error}. "
            "Let it answer with a dict by names after any step, without arguments or with torch's; or put its parts into "
            "the state",
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


def load_module(module: nn.Module, entries: Mapping[str, Any]) -> None:
    """Let a module load itself, from an entry for each name of its own `state_dict`.

    A `load_state_dict` of the user's is called as he would call it, and what torch answers him inside is torch's answer: he
    may act on what is missing, and take himself what torch does not expect. torch's own is not strict where the module
    leaves names out (frozen ones, a part that another file brings); entries that it does not take are then an error here.

    Raises:
        RuntimeError: an entry was not taken.
    """
    left_out = names_loaded(module) - entries.keys()
    if type(module).load_state_dict is not nn.Module.load_state_dict or "load_state_dict" in vars(module):
        _load_by_its_own(module, entries, is_whole=not left_out)
        return
    found = module.load_state_dict(entries, strict=not left_out)
    if not_taken := {*found.unexpected_keys, *(name for name in found.missing_keys if name in entries)}:
        raise RuntimeError(f"unexpected entries: {', '.join(sorted(not_taken))}")


def _load_by_its_own(module: nn.Module, entries: Mapping[str, Any], *, is_whole: bool) -> None:
    try:
        module.load_state_dict(entries)
    except ours(Exception):
        if is_whole or not takes(module.load_state_dict, entries, strict=False):
            raise
        module.load_state_dict(entries, strict=False)  # strict by itself, about names that it leaves out by itself
