"""Handlers of the user's signals: what they raise in the middle of our code is theirs, and passes through.

A handler may raise anything: a KeyboardInterrupt, but also a TimeoutError, which is an OSError, or an exception of the
user's own. Taken for a failure of ours, his time-out would be gone and his loop go on.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import sys
import traceback
from collections.abc import Collection
from types import CodeType, FunctionType, TracebackType
from typing import TypeVar

Raised = TypeVar("Raised", bound=Exception)


def ours(*kinds: type[Raised]) -> tuple[type[Raised], ...]:
    """For an except clause, `except ours(OSError) as error`: these kinds, but nothing that a handler has raised.

    The interpreter asks for the kinds when there is an exception to be compared with them.
    """
    error = sys.exception()
    return () if error is not None and is_from_handler(error) else kinds


class suppress_ours(contextlib.suppress):
    """`contextlib.suppress`, but what a handler has raised passes."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        is_theirs = error is not None and is_from_handler(error)
        return not is_theirs and bool(super().__exit__(kind, error, trace))


def is_from_handler(error: BaseException) -> bool:
    """Whether an exception was raised in a handler of this process's signals, or below one."""
    codes = _handlers()
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


def is_inside(owner: object, codes: Collection[CodeType]) -> bool:
    """Whether this thread stands in one of these methods of `owner` already, below the caller's own: then a handler of a
    signal has interrupted it, or what it calls (a hook, a `state_dict()`) calls it back."""
    frame = sys._getframe(2)
    while (outer := frame.f_back) is not None:
        frame = outer
        if frame.f_code in codes and frame.f_locals.get("self") is owner:
            return True
    return False


def has_interrupted(owner: object, codes: Collection[CodeType]) -> bool:
    """Whether this thread stands in a handler of a signal that has interrupted one of these methods of `owner`."""
    handlers, frame, is_below_handler = _handlers(), sys._getframe(1), False
    while (outer := frame.f_back) is not None:
        frame = outer
        if is_below_handler and frame.f_code in codes and frame.f_locals.get("self") is owner:
            return True
        is_below_handler = is_below_handler or frame.f_code in handlers
    return False


def is_in_handler() -> bool:
    """Whether this thread stands in a handler of a signal, or below one."""
    codes, frame = _handlers(), sys._getframe(1)
    while (outer := frame.f_back) is not None:
        frame = outer
        if frame.f_code in codes:
            return True
    return False


def _handlers() -> set[CodeType | None]:
    return {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}


def _code(handler: object) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    function = getattr(handler, "__func__", handler)
    if not isinstance(function, FunctionType):  # an object that can be called
        function = type(handler).__dict__.get("__call__")
    return function.__code__ if isinstance(function, FunctionType) else None
