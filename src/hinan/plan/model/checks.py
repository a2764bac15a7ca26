"""Refusing what cannot be: one place that says what is impossible and what would be possible.

Owns:      the exception of the planner and the checks of single numbers.
Promises:  a refusal names the input, what it had to satisfy, and the nearest value that does.
Never:     repairs an input silently; a planner that guesses away a zero answers a question nobody asked.
"""

from __future__ import annotations

import math
import re

from hinan.core.errors import ConfigError


class Infeasible(ConfigError):
    """No design answers what was asked.

    `impossible` says in sentences what cannot hold; `nearest` holds the settings (in the names of the command line,
    without dashes in front) that make it possible: fed back, the question has an answer.
    """

    def __init__(self, impossible: list[str], nearest: dict[str, str], *, missed_by: float = math.inf) -> None:
        ways = ", ".join(f"--{name} {value}".rstrip() for name, value in nearest.items())
        super().__init__("; ".join(impossible) + (f". Nearest that is possible: {ways}" if ways else ""))
        self.impossible = impossible
        self.missed_by = missed_by
        """By which factor a bound is missed; of several ways that all miss, the one that misses by least is told."""
        self.nearest = nearest
        self.evidence = {"impossible": impossible, "nearest": nearest}


LEAST, MOST = 1e-15, 1e21
"""No size, rate, price or time of a plan is smaller or larger; products of a few stay far from the ends of floats."""


def imaginable(value: float, text: str) -> None:
    """Checks that a number that somebody gave is one that a plan can be about, or zero.

    Raises:
        ConfigError: it would overflow or vanish on the way, and what came out would be inf or nothing.
    """
    if value != 0 and not LEAST <= abs(value) <= MOST:
        raise ConfigError(f"{text!r} is beyond what any plan is about ({LEAST:g} to {MOST:g})", value=text)


_NUMBER = re.compile(r"\s*[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\s*")


def plain_number(text: str) -> float:
    """The number that a text is; nan where it is none, or is written in other digits or with other marks than 0-9, ".", "e"
    and signs, which Python would take: what "1_000" means beside a wrong key is a guess."""
    return float(text) if _NUMBER.fullmatch(text) else math.nan


def percent(share: float) -> str:
    """A share in percent, with as many digits as a small one needs."""
    return f"{float(f'{share * 100:.3g}'):.10f}".rstrip("0").rstrip(".") + "%"


def positive(**values: float) -> None:
    """Checks that every named value is a finite number above zero.

    Raises:
        ConfigError: names the value and what it is.
    """
    for name, value in values.items():
        if not math.isfinite(value) or value <= 0:
            raise ConfigError(f"{name} must be a finite number above zero, not {value}", name=name, value=value)


def not_negative(**values: float) -> None:
    """Checks that every named value is a finite number, zero or more.

    Raises:
        ConfigError: names the value and what it is.
    """
    for name, value in values.items():
        if not math.isfinite(value) or value < 0:
            raise ConfigError(f"{name} must be a finite number, zero or more, not {value}", name=name, value=value)


def ratio(**values: float) -> None:
    """Checks that every named value lies in 0-1, ends included.

    Raises:
        ConfigError: names the value and what it is.
    """
    for name, value in values.items():
        if not 0 <= value <= 1:
            raise ConfigError(f"{name} must lie between 0 and 1, not {value}", name=name, value=value)
