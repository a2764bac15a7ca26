"""Inputs of formulas as text: what a name says about unit and range, for `hinan plan --formula`.

Owns:      the reading and the checks. An input's unit follows from its name: `_s` takes "5min", `_bytes` "1GB",
           `_bytes_per_s` "450GB/s"; bare numbers are seconds, bytes and bytes/s there. Lists are written with commas.
Promises:  counts are whole, shares lie between 0 and 1, nothing is below zero; what is not so is refused by name.
"""

from __future__ import annotations

import math

from hinan.core.errors import ConfigError
from hinan.core.units import parse_bytes, parse_bytes_per_s, parse_seconds
from hinan.plan.model.checks import imaginable, not_negative, plain_number, positive, ratio

_COUNTS = ("gpus", "gpus_per_node", "interruptions", "job_nodes", "mttf_nodes", "nodes", "ranks", "ranks_per_node")
"""Whole, one or more."""
_COUNTS_OR_NONE = ("lost",)
_SHARES = ("down_ratio", "needs_store_ratio", "quantile", "share")


def read_input(name: str, text: str, *, many: bool) -> float | list[float]:
    """One input, or a list of them.

    Raises:
        ConfigError: not readable, or out of the range that its name promises.
    """
    values = [_number(name, part.strip()) for part in text.split(",")] if many else [_number(name, text.strip())]
    for value in values:
        _check(name, value)
    if many and name in _SHARES and sum(values) > 1 + 1e-9:
        raise ConfigError(f"{name}: {text} sum to {sum(values):g}; shares of one whole are at most 1 together", value=text)
    return values if many else values[0]


def _check(name: str, value: float) -> None:
    imaginable(value, f"{name}={value:g}")
    if name in _SHARES:
        ratio(**{name: value})
    elif name in (*_COUNTS, *_COUNTS_OR_NONE):
        if value != int(value) or value < (name in _COUNTS):
            least = "one" if name in _COUNTS else "zero"
            raise ConfigError(f"{name} is a whole number, {least} or more, not {value:g}", name=name, value=value)
    elif name.endswith(("bytes", "bytes_per_s")):
        positive(**{name: value})
    else:
        not_negative(**{name: value})


def _number(name: str, text: str) -> float:
    value = plain_number(text)
    if math.isnan(value):
        if name.endswith("bytes_per_s"):
            return parse_bytes_per_s(text)
        if name.endswith("_bytes"):
            return float(parse_bytes(text))
        if name.endswith("_s") and not name.endswith("_per_s"):
            return parse_seconds(text)
        raise ConfigError(f"{name}: {text!r} is not a number", value=text)
    if not math.isfinite(value):
        raise ConfigError(f"{name}: {text!r} is not a finite number", value=text)
    return value
