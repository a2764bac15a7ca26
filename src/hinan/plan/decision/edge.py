"""The edge of what is possible: a correction brought as near to what was asked as there still is an answer.

Owns:      which way each setting is harder to keep, and the search. Checks know a value that does, with some room; whole
           steps and the search decide how much of the room is needed, so that only trying tells.
Promises:  what it returns was tried and is possible, and _NEAR more of the way is not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

_NEAR = 1.005
"""What is this factor harder than the answer is impossible, up to the four digits that are printed."""
_DIGITS = 4
_EASIER = {
    "max-redo": 2.0,
    "max-stall": 2.0,
    "max-rto": 2.0,
    "budget": 2.0,
    "mtti": 2.0,
    "rate": 0.5,
    "ram": 2.0,
    "store-bandwidth": 2.0,
    "drain": 0.5,
    "latency": 2.0,
    "verify": 0.5,
    "repair": 0.5,
}
"""Settings that are kept more easily the more, or the less, they are: a step towards that."""
_MOST_STEPS = 40


def at_the_edge(
    settings: Mapping[str, str], corrections: Mapping[str, str], possible: Callable[[Mapping[str, str]], bool]
) -> dict[str, str]:
    """Corrections, one after the other no larger than needed; those that drop a demand keep as much of it as can be.

    Args:
        settings: what was asked, and is impossible.
        corrections: what makes it possible; an empty text takes a setting away.
        possible: whether settings have an answer.
    """
    found = dict(corrections)
    for name in [name for name in corrections if name in _EASIER]:

        def tried(value: float, unit: str, name: str = name) -> bool:
            return possible({k: t for k, t in {**settings, **found, name: _text(value, unit)}.items() if t})

        if kept := _edge(settings.get(name, ""), found[name], _EASIER[name], tried):
            found[name] = kept
    return found


def _edge(asked: str, corrected: str, easier: float, possible: Callable[[float, str], bool]) -> str | None:
    """The hardest value that is possible; None: the correction is it, or none was found.

    Args:
        easier: factor of a step to what is easier.
    """
    if corrected:
        value, unit = _parts(corrected)
        nearer = value * _NEAR ** -math.copysign(1, math.log(easier))
        if not possible(nearer, unit):
            return None
        good, bad = _leaps(nearer, 1 / easier, lambda each: not possible(each, unit))
    else:
        value, unit = _parts(asked)
        bad, good = _leaps(value, easier, lambda each: possible(each, unit))
    if good is None or bad is None:
        return None
    while max(good / bad, bad / good) > _NEAR:
        middle = math.sqrt(good * bad)
        good, bad = (middle, bad) if possible(middle, unit) else (good, middle)
    return _text(good, unit)


def _leaps(begin: float, leap: float, there: Callable[[float], bool]) -> tuple[float | None, float | None]:
    """The last value before it is there and the first where it is: half a per cent on, then farther and farther."""
    before, factor = begin, leap ** (math.log(_NEAR) / math.log(2))
    for _ in range(_MOST_STEPS):
        after = before * factor
        if there(after):
            return before, after
        before, factor = after, min(factor**2, leap) if leap > 1 else max(factor**2, leap)
    return None, None


def _parts(text: str) -> tuple[float, str]:
    """Number and unit."""
    match = re.fullmatch(r"\s*([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*(.*)", text)
    assert match is not None, text
    return float(match[1]), match[2]


def _text(value: float, unit: str) -> str:
    return f"{float(f'{value:.{_DIGITS}g}'):.12g}{unit}"
