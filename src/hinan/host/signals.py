"""Handlers of the user's signals: what they raise in the middle of our code is theirs, and passes through.

A handler may raise anything: a KeyboardInterrupt, but also a TimeoutError, which is an OSError, or an exception of the
user's own. Taken for a failure of ours, his time-out would be gone and his loop go on.
"""

from __future__ import annotations

import functools
import signal
import sys
import traceback
from collections.abc import Collection
from types import CodeType, FunctionType


def is_from_handler(error: BaseException) -> bool:
    """Whether an exception was raised in a handler of this process's signals, or below one."""
    codes = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


def is_inside(owner: object, codes: Collection[CodeType]) -> bool:
    """Whether this thread stands in one of these methods of `owner` already, below the caller's own: then a handler of a
    signal has interrupted it, and calls from there."""
    frame = sys._getframe(2)
    while (outer := frame.f_back) is not None:
        frame = outer
        if frame.f_code in codes and frame.f_locals.get("self") is owner:
            return True
    return False


def _code(handler: object) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    function = getattr(handler, "__func__", handler)
    if not isinstance(function, FunctionType):  # an object that can be called
        function = type(handler).__dict__.get("__call__")
    return function.__code__ if isinstance(function, FunctionType) else None
