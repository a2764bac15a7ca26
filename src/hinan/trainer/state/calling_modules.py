"""Calls the `state_dict` and `load_state_dict` of a module, which may be the user's own, as they can be called.

Nobody but the user calls those of the module at the top: they need not take the arguments that torch's own have, nor give
and want every parameter. What such a module says, it can also be given back.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn

from hinan.core.errors import CaptureError
from hinan.host.signals import ours


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

    Parameters that it leaves out there (frozen ones, a part that another file brings) are not missing: who loads such a
    state loads it with `strict=False`. torch is then silent about entries, too, that nobody has taken; here they are an
    error.

    Raises:
        RuntimeError: an entry was not taken.
    """
    if _names_of_torch(module) <= entries.keys():
        module.load_state_dict(entries)
        return
    relaxed = {"strict": False} if takes(module.load_state_dict, entries, strict=False) else {}
    with _none_missing_but(module, entries) as not_taken:
        found: Any = module.load_state_dict(entries, **relaxed)
    not_taken.update(getattr(found, "unexpected_keys", ()))
    if not_taken:
        raise RuntimeError(f"unexpected entries: {', '.join(sorted(not_taken))}")


def _names_of_torch(module: nn.Module) -> set[str]:
    """The names that torch's own loading looks for."""
    names: set[str] = set()
    for prefix, owner in module.named_modules(remove_duplicate=False):
        own = [name for name, parameter in owner._parameters.items() if parameter is not None]
        own += [n for n, b in owner._buffers.items() if b is not None and n not in owner._non_persistent_buffers_set]
        names.update(f"{prefix}.{name}" if prefix else name for name in own)
    return names


@contextmanager
def _none_missing_but(module: nn.Module, entries: Mapping[str, Any]) -> Iterator[set[str]]:
    """Meanwhile torch's own loading of this module misses none of the names that are not among its entries.

    Also where the module's `load_state_dict` is strict by itself. What torch finds unexpected is gathered.
    """
    not_taken: set[str] = set()
    names = frozenset(entries)  # not the entries: a hook that an interrupt leaves behind must hold no tensors

    def after(loaded: nn.Module, found: Any) -> None:
        not_taken.update(found.unexpected_keys)
        found.missing_keys[:] = [name for name in found.missing_keys if name in names]

    hook = module.register_load_state_dict_post_hook(after)  # type: ignore[no-untyped-call]
    try:
        yield not_taken
    finally:
        hook.remove()
