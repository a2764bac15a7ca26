"""What follows from a machine is worked out once.

Owns:      the place where it is kept: with the machine, so that it goes with it.
Promises:  nothing but time depends on it. A machine is immutable, so what was worked out stays true; another machine,
           made with `msgspec.structs.replace`, begins with nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from hinan.wire.facts.model import Machine

_T = TypeVar("_T")


def remembered(machine: Machine, what: str, compute: Callable[[], _T]) -> _T:
    """`compute()`, or what it gave for this machine before. what: names the question and its arguments."""
    kept = machine.__dict__.setdefault("_remembered", {})
    if what not in kept:
        kept[what] = compute()
    return cast(_T, kept[what])
