"""The shape of failures by name, for `--arrivals`: text in, an arrival process with the design's own rates out.

Owns:      the names and their parameters. Promises: the mean rate is the scenario's; only the shape differs
           (racks: their followers come on top).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hinan.core.errors import ConfigError
from hinan.core.units import parse_seconds
from hinan.plan.decision.design import Design
from hinan.plan.decision.witnesses import rates_per_s
from hinan.plan.intervals.arrivals import Bursts, Exponential, Lemons, Racks, Replay, Weibull
from hinan.plan.intervals.montecarlo import Arrivals
from hinan.plan.model.checks import plain_number
from hinan.plan.model.failures import FailureClass
from hinan.plan.observed.traces import Trace

NAMES = "exponential, weibull:0.62, bursts:0.3,200s, lemons:0.6, racks:4,60s, replay"


def arrivals_named(text: str, design: Design, *, nodes: int, lives: int, seed: int, trace: Trace | None) -> Arrivals:
    """An arrival process for a design.

    Args:
        text: one of NAMES; the numbers are Weibull shape, burst chance and length, gamma shape of the nodes' rates,
            rack size and spread. "replay" needs a trace; its gaps are stretched to the scenario's mean rate.
    Raises:
        ConfigError: an unknown name or unreadable numbers.
    """
    name, _, rest = text.partition(":")
    words = [word.strip() for word in rest.split(",")] if rest else []
    if name not in _TAKES or (name == "replay" and trace is None):
        needs = " (replay needs --trace)" if name == "replay" else ""
        raise ConfigError(f"--arrivals {text!r} is not known{needs}; known: {NAMES}", value=text)
    takes = _TAKES[name]
    if words and len(words) != len(takes):
        wanted = f"takes {' and '.join(what for what, _ in takes)}" if takes else "takes no numbers"
        raise ConfigError(f"--arrivals {text!r}: {name} {wanted}, not {rest!r}; known: {NAMES}", value=text)
    words = words or [initial for _, initial in takes]
    rates = rates_per_s(design)
    try:
        match name:
            case "exponential":
                return Exponential(rates)
            case "weibull":
                return Weibull(rates, _number(words[0], takes[0][0]))
            case "bursts":
                return Bursts(rates, _number(words[0], takes[0][0]), parse_seconds(words[1]))
            case "lemons":
                return Lemons(rates, nodes=nodes, shape=_number(words[0], takes[0][0]), lives=lives, seed=seed)
            case "racks":
                rack, node = (_cause(design, each) for each in (FailureClass.RACK, FailureClass.NODE))
                size = _number(words[0], takes[0][0])
                if size != int(size):
                    raise ConfigError(f"{words[0]!r} is no whole number of nodes")
                return Racks(rates, rack, node, int(size), parse_seconds(words[1]))
        assert trace is not None
        return _replay(design, trace, rates, lives)
    except ConfigError as error:
        raise ConfigError(f"--arrivals {text!r}: {error}; known: {NAMES}", value=text) from error


_TAKES = {
    "exponential": (),
    "weibull": (("a shape", "0.62"),),
    "bursts": (("a chance", "0.3"), ("a length", "200s")),
    "lemons": (("a shape", "0.6"),),
    "racks": (("a number of nodes", "4"), ("a spread", "60s")),
    "replay": (),
}
"""What each name takes, and what it is without."""


def _number(text: str, what: str) -> float:
    value = plain_number(text)
    if not math.isfinite(value):
        raise ConfigError(f"{text!r} is no number ({what} was expected)")
    return value


def _causes(design: Design) -> list[str]:
    return [cause.name for level in design.levels for cause in level.causes]


def _cause(design: Design, failure: FailureClass) -> int:
    names = _causes(design)
    if failure not in names:
        raise ConfigError(f"no failures of class {failure} in this scenario")
    return names.index(failure)


def _replay(design: Design, trace: Trace, rates: Sequence[float], lives: int) -> Replay:
    names = _causes(design)
    kept = [fault for fault in trace.faults if fault.failure in names]
    if not kept:
        raise ConfigError("the trace has no failure of a class of this scenario")
    stretch = len(kept) / trace.horizon_s / sum(rates)
    times_s = np.array([fault.at_s * stretch for fault in kept])
    kinds = np.array([names.index(fault.failure) for fault in kept], dtype=np.int64)
    return Replay(times_s, kinds, horizon_s=trace.horizon_s * stretch, lives=lives)
