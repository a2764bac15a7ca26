"""Failure traces: reading the InfiniteHBD format, what they say, and a table fitted to them.

Owns:      the reader and the fits (rate, Weibull shape, repair times, concentration on few nodes).
Promises:  a trace that is not one is refused with what is wrong and where; what makes its figures doubtful (the same
           event twice, few faults, a fleet and a first day that nobody gave) is said in the table's warning.
Never:     ships a trace. The figures derived from the public one stand in `failures.py` with their source.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hinan.core.errors import ConfigError
from hinan.plan.model.failures import (
    DAY_S,
    INFINITEHBD_COUNTS,
    INFINITEHBD_DAYS,
    INFINITEHBD_NODES_BY_FAULTS,
    FailureClass,
    FailureTable,
)
from hinan.plan.observed.posterior import gamma_quantile

_QUIET_GAPS = 20
"""A trace begins on day 0 of its own count, unless its first event comes later than so many mean gaps between faults."""
LONGEST_D = 36_525
"""A hundred years: event times beyond are no days since a trace began."""
FEW_FAULTS = 20
"""Below this the rate is uncertain by more than a factor of two between the ends of its 90 % interval."""
_FOUND_BY_TESTS = ("Stress Test Failure", "Training Task Troubleshooting")


@dataclass(frozen=True)
class Fault:
    """One fault of one node."""

    node: str
    at_s: float
    ended_s: float | None
    failure: FailureClass
    by_test: bool
    """Found by a stress test or by looking for it, not by interrupting a job."""

    def since(self, start_s: float) -> Fault:
        """The same fault with its times counted from another start."""
        return replace(self, at_s=self.at_s - start_s, ended_s=None if self.ended_s is None else self.ended_s - start_s)


@dataclass(frozen=True)
class Trace:
    """Faults in order of time, over a horizon, of a fleet."""

    faults: tuple[Fault, ...]
    horizon_s: float
    nodes: int
    source: str
    notes: tuple[str, ...] = ()
    """What makes it doubtful."""

    @property
    def per_node_day(self) -> float:
        """Faults per node-day."""
        return len(self.faults) / (self.nodes * self.horizon_s / DAY_S)

    def between(self, start_s: float, end_s: float) -> Trace:
        """The part of the trace in a window, with its times shifted to start at zero."""
        part = tuple(fault.since(start_s) for fault in self.faults if start_s <= fault.at_s < end_s)
        return Trace(part, end_s - start_s, self.nodes, self.source, self.notes)


def read_trace(path: Path, *, nodes: int | None = None, first_day: float | None = None) -> Trace:
    """A trace in InfiniteHBD's format: a JSON list of events with node_id, event_time [d], event_type, fault_type.

    What is not given is taken from the events, and said in the trace's notes. Of the public trace it is known.

    Args:
        nodes: size of the fleet; None: the nodes named (those without a fault are in no trace).
        first_day: when it began, in its own count of days; None: day 0, or the first event if that is far from it.
    Raises:
        ConfigError: not such a file (the first bad event is named), fewer nodes than it names, an event before its first
            day, or all events at one time.
    """
    try:
        events = json.loads(path.read_text(encoding="utf-8-sig"))
    except RecursionError as error:
        raise ConfigError(f"trace {path}: brackets in brackets without end: no list of events") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"trace {path}: {error}") from error
    if not isinstance(events, list) or not events:
        raise ConfigError(f"trace {path}: a non-empty list of events was expected")
    rows, notes = _once([_event(event, index, path) for index, event in enumerate(events)])
    faults = _pair(rows)
    if not faults:
        raise ConfigError(f"trace {path}: no fault_start in it")
    named, last_s = len({row[0] for row in rows}), max(row[1] for row in rows)
    early = min(rows, key=lambda row: row[1])
    start_s = _start_s(early[1], faults) if first_day is None else first_day * DAY_S
    guesses: dict[str, str] = {}
    if not (public := _public_nodes(faults, named, last_s)):
        days = f"days {start_s / DAY_S:.6g} to {last_s / DAY_S:.6g}"
        guesses |= {} if nodes is not None else {"--trace-nodes": f"fleet taken as the {named} nodes named in it"}
        guesses |= {} if first_day is not None else {"--trace-from": f"time taken as {days}"}
    nodes = nodes or public or named
    if nodes < named:
        raise ConfigError(f"trace {path}: {named} nodes are named in it, the fleet is said to have {nodes}")
    if early[1] < start_s:
        raise ConfigError(
            f"trace {path}: {early[2]} of node {early[0]} is on day {early[1] / DAY_S:.6g}, before the first day given, "
            f"{start_s / DAY_S:.6g}"
        )
    if last_s <= start_s:
        raise ConfigError(
            f"trace {path}: the trace spans no time: its events are all on day {last_s / DAY_S:.6g}, on which it begins"
        )
    since = tuple(fault.since(start_s) for fault in faults)
    return Trace(since, last_s - start_s, nodes, str(path.name), (*notes, *_taken(guesses)))


def _public_nodes(faults: Sequence[Fault], named: int, last_s: float) -> int | None:
    """Servers of the public InfiniteHBD trace, told by its faults, nodes and days: it names only those that failed."""
    known = sum(count for _, count in INFINITEHBD_COUNTS.values())
    servers = sum(INFINITEHBD_NODES_BY_FAULTS.values())
    is_public = (
        len(faults) == known
        and named == servers - INFINITEHBD_NODES_BY_FAULTS[0]
        and math.isclose(last_s, INFINITEHBD_DAYS * DAY_S, rel_tol=1e-9)
    )
    return servers if is_public else None


def _start_s(first_s: float, faults: Sequence[Fault]) -> float:
    """Day 0, or the first event where so long a quiet time before it is not of the same trace (a part cut out, say)."""
    if len(faults) < 2:
        return 0.0
    mean_gap_s = (faults[-1].at_s - faults[0].at_s) / (len(faults) - 1)
    return first_s if 0 < mean_gap_s * _QUIET_GAPS < first_s else 0.0


def _taken(guesses: Mapping[str, str]) -> list[str]:
    """What was guessed about a trace, by the words that say otherwise."""
    if not guesses:
        return []
    return [f"{', '.join(guesses.values())}; {' and '.join(guesses)} say{'s' * (len(guesses) == 1)} otherwise"]


_FAULT = '{"Class": "GPU", "Desc": "GPU ECC Error"}'
_EXAMPLE = f'{{"node_id": "n1", "event_time": 3.5, "event_type": "fault_start", "fault_type": {_FAULT}}}'

Row = tuple[str, float, str, dict[str, str]]
"""Node, time [s], start or end, the fault."""


def _event(event: Any, index: int, path: Path) -> Row:
    where = f"trace {path}: event {index}"
    if not isinstance(event, dict):
        raise ConfigError(f"{where} is not readable: an object like {_EXAMPLE} was expected")
    missing = [name for name in ("node_id", "event_time", "event_type") if name not in event]
    if missing:
        raise ConfigError(f"{where} is not readable: no {', '.join(missing)} in it; an event is like {_EXAMPLE}")
    try:
        at_s = float(event["event_time"]) * DAY_S
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(
            f"{where} is not readable: event_time is a number of days, not {_short(event['event_time'])}"
        ) from error
    kind, node, fault = str(event["event_type"]), str(event["node_id"]), event.get("fault_type") or {}
    if not isinstance(fault, dict):
        raise ConfigError(f"{where} is not readable: fault_type is an object like {_FAULT}, not {_short(fault)}")
    fault = {name: text for name, text in fault.items() if text is not None}
    odd = next((name for name, text in fault.items() if not isinstance(text, str)), None)
    if odd is not None:
        raise ConfigError(f"{where} is not readable: {odd} of its fault_type is a text, not {_short(fault[odd])}")
    if not math.isfinite(at_s) or at_s < 0 or kind not in ("fault_start", "fault_end"):
        raise ConfigError(f"trace {path}: event {index} has time {at_s / DAY_S} d and type {kind!r}")
    if at_s > LONGEST_D * DAY_S:
        raise ConfigError(
            f"trace {path}: event {index} (node {node}) is at day {at_s / DAY_S:.4g}, over a hundred years; "
            "event_time counts days from the start of the trace"
        )
    return node, at_s, kind, fault


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _once(rows: Sequence[Row]) -> tuple[list[Row], tuple[str, ...]]:
    """Events without repetitions, and a note that names the first one."""
    kept: dict[str, Row] = {}
    again = []
    for index, row in enumerate(rows):
        if repr(row) in kept:
            again.append(f"event {index}, {row[2]} of node {row[0]} on day {row[1] / DAY_S:.6g}")
        kept.setdefault(repr(row), row)
    many = f"{len(again)} events stand in it twice" if len(again) > 1 else "an event stands in it twice"
    return [*kept.values()], (f"{many} and count once ({again[0]})",) if again else ()


def _pair(rows: Sequence[Row]) -> tuple[Fault, ...]:
    ends: dict[tuple[str, str], list[float]] = {}
    for node, at_s, kind, fault in rows:
        if kind == "fault_end":
            ends.setdefault((node, str(fault)), []).append(at_s)
    faults = []
    for node, at_s, kind, fault in sorted(rows, key=lambda row: row[1]):
        if kind != "fault_start":
            continue
        candidates = ends.get((node, str(fault)), [])
        ended = next((end for end in sorted(candidates) if end >= at_s), None)
        if ended is not None:
            candidates.remove(ended)
        by_test = fault.get("Class") in _FOUND_BY_TESTS
        faults.append(Fault(node, at_s, ended, classify(fault), by_test))
    return tuple(faults)


def classify(fault: dict[str, str]) -> FailureClass:
    """Our reading of the trace's levels and classes."""
    description = fault.get("Desc", "")
    if fault.get("Class") == "GPU":
        if "ECC" in description:
            return FailureClass.MEMORY
        return FailureClass.SILENT if "Silent" in description else FailureClass.GPU
    if fault.get("Level") == "Software Failure" and description != "Kernel Panic":
        return FailureClass.SOFTWARE
    return FailureClass.NODE


def table_of(trace: Trace, *, with_tests: bool = True) -> FailureTable:
    """Failure table fitted to a trace: counts per class over the node-days of the fleet."""
    rates: dict[FailureClass, float] = {}
    node_days = trace.nodes * trace.horizon_s / DAY_S
    for fault in trace.faults:
        if with_tests or not fault.by_test:
            rates[fault.failure] = rates.get(fault.failure, 0.0) + 1 / node_days
    source = f"{trace.source}: {len(trace.faults)} faults, {node_days:,.0f} node-days"
    return FailureTable("trace", rates, source, "; ".join([*trace.notes, *_few(len(trace.faults))]) or None)


def _few(faults: int) -> list[str]:
    """What so few faults say about the mean time between them: exact 90 % interval of a Poisson count."""
    if faults >= FEW_FAULTS:
        return []
    longest, shortest = faults / gamma_quantile(faults, 0.05), faults / gamma_quantile(faults + 1, 0.95)
    count = f"{faults} faults are" if faults > 1 else "one fault is"
    return [f"{count} few: the MTTI may be {shortest:.2g} to {longest:.2g} times the one shown (90 % interval)"]


def weibull_shape(gaps_s: Sequence[float]) -> float:
    """Maximum-likelihood Weibull shape of positive gaps; below 1 failures cluster.

    Solves 1/k = sum(x^k ln x)/sum(x^k) - mean(ln x) by bisection.
    """
    gaps = np.asarray([gap for gap in gaps_s if gap > 0], dtype=np.float64)
    if gaps.size < 2 or float(np.ptp(gaps)) == 0:
        raise ConfigError("a Weibull shape needs at least two different positive gaps")
    x = gaps / gaps.max()
    logs = np.log(x)

    def slope(k: float) -> float:
        powers = x**k
        return float((powers * logs).sum() / powers.sum() - logs.mean() - 1 / k)

    low, high = 1e-3, 1.0
    while slope(high) < 0:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return (low + high) / 2


def faults_per_node(trace: Trace) -> list[int]:
    """Faults of each node of the fleet, those without any included."""
    counts = dict.fromkeys({fault.node for fault in trace.faults}, 0)
    for fault in trace.faults:
        counts[fault.node] += 1
    return [*counts.values(), *[0] * (trace.nodes - len(counts))]


def job_mtti_s(
    node_faults: Sequence[int], horizon_s: float, *, job_nodes: int, samples: int = 2000, seed: int = 1
) -> tuple[float, float, float]:
    """MTTI of a job on `job_nodes` random nodes of a fleet: 5 %, 50 % and 95 % quantile over draws [s]."""
    counts = np.asarray(node_faults, dtype=np.int64)
    if not 1 <= job_nodes <= counts.size:
        raise ConfigError(f"a job of {job_nodes} nodes does not fit into a fleet of {counts.size}")
    rng = np.random.default_rng(seed)
    struck = np.array([rng.permutation(counts)[:job_nodes].sum() for _ in range(samples)])
    mtti_s = horizon_s / np.maximum(struck, 0.5)
    low, middle, high = np.quantile(mtti_s, [0.05, 0.5, 0.95])
    return float(low), float(middle), float(high)
