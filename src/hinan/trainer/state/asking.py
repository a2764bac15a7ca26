"""Asks objects of the user's for their state, and, before the first copy, whether they could take it back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from torch import nn

from hinan.core.errors import CaptureError, HinanError
from hinan.host.signals import ours
from hinan.trainer.state.calling_modules import takes

Said = TypeVar("Said")


def said(path: str, value: object, what: str, ask: Callable[[], Said]) -> Said:
    """What code of the user's says; what it raises instead is said with the path of its object.

    Args:
        what: is asked, for the message.
    Raises:
        CaptureError: it raised.
    """
    try:
        return ask()
    except ours(HinanError):
        raise
    except ours(Exception) as error:
        raise CaptureError(
            f"{path} is a {type(value).__qualname__}, and {what} does not answer: {type(error).__name__}: {error}. It must "
            "answer after any step",
            path=path,
        ) from error


def extra_of(path: str, module: nn.Module, name: str) -> Any:
    """The extra state of a module or one of its children.

    Args:
        path: of the module.
        name: of the extra state, in the module's `state_dict`.
    """
    owner = module.get_submodule(name.rpartition(".")[0])
    return said(f"{path}.{name}", owner, "its get_extra_state()", owner.get_extra_state)


def refuse_unloadable_object(path: str, value: Any) -> None:
    """What says its state must take the state alone: later it could not come back."""
    if not takes(value.load_state_dict, {}):
        raise CaptureError(
            f"{path} is a {type(value).__qualname__} whose load_state_dict() cannot be called with the state alone, as "
            "load_state_dict(state); give its other arguments defaults",
            path=path,
        )


def refuse_unset_extras(path: str, module: nn.Module, names: Iterable[str]) -> None:
    """An extra state that torch loads must be taken by who gives it.

    Args:
        path: of the module.
        names: of the extra states, in the module's `state_dict`.
    """
    for name in names:
        owner = module.get_submodule(name.rpartition(".")[0])
        if getattr(owner.set_extra_state, "__func__", None) is nn.Module.set_extra_state:
            why = "that has no set_extra_state() that takes it back; give it one"
        elif not takes(owner.set_extra_state, {}):
            why = "whose set_extra_state() cannot be called with the state alone; give its other arguments defaults"
        else:
            continue
        raise CaptureError(f"{path}.{name} is the extra state of a {type(owner).__qualname__} {why}", path=f"{path}.{name}")
