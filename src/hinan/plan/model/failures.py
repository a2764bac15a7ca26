"""Failure classes, the tiers each survives, and how often each strikes.

Owns:      the vocabulary of failures and tiers, the survival table, the rate tables with their sources.
Promises:  a table can be scaled, replaced entry by entry, and read back from JSON; rates are per node and day.
Relies on: counts as published. Printed percentages of the Llama 3 paper do not match its counts; we ship counts.
Never:     fits. Fitting a trace is in `traces.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from hinan.core.errors import ConfigError
from hinan.plan.model.checks import not_negative, positive

DAY_S = 86_400.0


class Tier(StrEnum):
    """Places for a copy, fastest first; the order is the order of the levels."""

    RAM = "ram"
    PEER = "peer"
    NVME = "nvme"
    SHARED = "shared"


class FailureClass(StrEnum):
    """What breaks, named by what is lost."""

    PROCESS = "process"
    GPU = "gpu"
    MEMORY = "memory"
    NODE = "node"
    RACK = "rack"
    JOB = "job"
    SOFTWARE = "software"
    SILENT = "silent"


_ALL = frozenset(Tier)
_OFF_HOST = frozenset({Tier.PEER, Tier.SHARED})
_DURABLE = frozenset({Tier.NVME, Tier.SHARED})
_OLD = frozenset({Tier.SHARED})

SURVIVAL: Mapping[FailureClass, frozenset[Tier]] = {
    FailureClass.PROCESS: _ALL,
    FailureClass.GPU: _ALL,
    FailureClass.MEMORY: _ALL,
    FailureClass.SOFTWARE: _ALL,
    FailureClass.NODE: _OFF_HOST,
    FailureClass.RACK: _DURABLE,
    FailureClass.JOB: _DURABLE,
    FailureClass.SILENT: _OLD,
}
"""Which copies are still usable. MEMORY is a GPU memory error: the host stays up. NVMe survives rack, power and whole
job only where the nodes come back. Silent corruption has spread to the young copies: only the tier that keeps
generations older than the detection latency helps."""
HOST_LOSS = (FailureClass.NODE, FailureClass.RACK, FailureClass.JOB)
"""Failures that take host RAM away, and with it a drain under way."""


def survives(failure: FailureClass, *, nodes_return: bool) -> frozenset[Tier]:
    """Tiers that still hold a usable copy after `failure`; without returning nodes, NVMe is gone with its host."""
    tiers = SURVIVAL[failure]
    return tiers - {Tier.NVME} if failure in HOST_LOSS and not nodes_return else tiers


@dataclass(frozen=True)
class FailureTable:
    """How often each class strikes a node [failures per node-day], where that is from, and what to know about it."""

    name: str
    per_node_day: Mapping[FailureClass, float]
    source: str
    warning: str | None = None

    def __post_init__(self) -> None:
        for failure, rate in self.per_node_day.items():
            not_negative(**{f"rate of {failure}": rate})
        positive(total_rate=self.total_per_node_day)

    @property
    def total_per_node_day(self) -> float:
        """Failures of all classes per node-day."""
        return sum(self.per_node_day.values())

    def mtti_s(self, nodes: float) -> float:
        """Mean time to interruption of a job on `nodes` nodes [s]."""
        positive(nodes=nodes)
        return DAY_S / (nodes * self.total_per_node_day)

    def scaled(self, factor: float, *, why: str = "") -> FailureTable:
        """The same mix of classes, every rate times `factor`."""
        positive(factor=factor)
        rates = {failure: rate * factor for failure, rate in self.per_node_day.items()}
        return replace(self, per_node_day=rates, source=f"{self.source}{why}")

    def with_rates(self, rates: Mapping[FailureClass, float], *, source: str) -> FailureTable:
        """The table with some classes replaced by the designer's own rates."""
        return replace(self, per_node_day={**self.per_node_day, **rates}, source=f"{self.source}; {source}")


def from_counts(
    name: str,
    counts: Mapping[str, tuple[FailureClass, int]],
    *,
    node_days: float,
    source: str,
    warning: str | None = None,
) -> FailureTable:
    """A table from counted failures: cause -> (class, count) over `node_days`."""
    positive(node_days=node_days)
    rates: dict[FailureClass, float] = {}
    for failure, count in counts.values():
        rates[failure] = rates.get(failure, 0.0) + count / node_days
    return FailureTable(name, rates, source, warning)


LLAMA3_NODE_DAYS = 54 * 16_384 / 8
LLAMA3_COUNTS: Mapping[str, tuple[FailureClass, int]] = {
    "faulty GPU": (FailureClass.GPU, 148),
    "GPU HBM3 memory": (FailureClass.MEMORY, 72),
    "software bug": (FailureClass.SOFTWARE, 54),
    "network switch or cable": (FailureClass.NODE, 35),
    "host maintenance": (FailureClass.NODE, 32),
    "GPU SRAM memory": (FailureClass.MEMORY, 19),
    "GPU system processor": (FailureClass.GPU, 17),
    "NIC": (FailureClass.NODE, 7),
    "NCCL watchdog": (FailureClass.PROCESS, 7),
    "silent data corruption": (FailureClass.SILENT, 6),
    "GPU thermal interface and sensor": (FailureClass.GPU, 6),
    "SSD": (FailureClass.NODE, 3),
    "power supply": (FailureClass.RACK, 3),
    "server chassis": (FailureClass.NODE, 2),
    "IO expansion board": (FailureClass.NODE, 2),
    "dependency": (FailureClass.JOB, 2),
    "CPU": (FailureClass.NODE, 2),
    "system memory": (FailureClass.NODE, 2),
}
"""419 unexpected interruptions in 54 days on 16,384 GPUs. The classes are our reading of the causes: power is counted
as a rack, a failed dependency as the whole job; both readings lean to the slower tier."""

LLAMA3 = from_counts(
    "llama3",
    LLAMA3_COUNTS,
    node_days=LLAMA3_NODE_DAYS,
    source="Llama 3, arXiv 2407.21783, table 5 (counts; classes are our reading)",
)

INFINITEHBD_COUNTS: Mapping[str, tuple[FailureClass, int]] = {
    "GPU memory (ECC)": (FailureClass.MEMORY, 61),
    "GPU, other": (FailureClass.GPU, 96),
    "silent data corruption": (FailureClass.SILENT, 1),
    "software": (FailureClass.SOFTWARE, 23),
    "node, cable, NIC, power supply, unknown": (FailureClass.NODE, 403),
}
INFINITEHBD_NODES_BY_FAULTS: Mapping[int, int] = {
    0: 169,
    1: 96,
    2: 50,
    3: 31,
    4: 21,
    5: 10,
    6: 12,
    7: 5,
    8: 5,
    14: 1,
}
"""Of 400 servers, how many had so many faults: the lemons. Derived from the trace named in INFINITEHBD."""
INFINITEHBD_DAYS = 348.9798
INFINITEHBD = from_counts(
    "infinitehbd",
    INFINITEHBD_COUNTS,
    node_days=400 * INFINITEHBD_DAYS,
    source="stepfun-ai/InfiniteHBD-Trace at 7aacdc8: 584 faults of 400 servers in 349 days (classes are our reading)",
    warning="111 of the 584 faults were found by tests and troubleshooting; without them 3.39 per 1000 node-days",
)


def _meta(name: str, total_per_node_day: float) -> FailureTable:
    mix = LLAMA3.scaled(total_per_node_day / LLAMA3.total_per_node_day)
    return replace(
        mix,
        name=name,
        source=f"Meta, arXiv 2410.21680 ({name}: {total_per_node_day:.2e} per node-day); mix of classes from Llama 3",
        warning="the paper gives no counts by our classes: the mix is borrowed",
    )


TABLES: Mapping[str, FailureTable] = {
    table.name: table for table in (LLAMA3, _meta("rsc1", 6.50e-3), _meta("rsc2", 2.34e-3), INFINITEHBD)
}


def table(name: str) -> FailureTable:
    """A shipped table by name.

    Raises:
        ConfigError: unknown; the known names are listed.
    """
    if name not in TABLES:
        raise ConfigError(f"no failure table {name!r}; known: {', '.join(TABLES)}", name=name)
    return TABLES[name]


def table_from_json(value: object) -> FailureTable:
    """A designer's own table: {"name", "source", "per_node_day": {class: rate}} (what `hinan plan --json` prints).

    Raises:
        ConfigError: missing keys, unknown classes, rates that are not numbers.
    """
    if not isinstance(value, dict) or not isinstance(value.get("per_node_day"), dict):
        raise ConfigError('a failure table is {"name": ..., "source": ..., "per_node_day": {"node": 0.001, ...}}')
    rates: dict[FailureClass, float] = {}
    for name, rate in value["per_node_day"].items():
        if name not in list(FailureClass) or isinstance(rate, bool) or not isinstance(rate, int | float):
            raise ConfigError(f"{name!r}: {rate!r} is not a failure class with a rate; classes: {', '.join(FailureClass)}")
        if not 0 <= rate <= DAY_S:  # before any float: JSON knows whole numbers of any length
            raise ConfigError(f"rate of {name}: between none and one per second of a node, which is {DAY_S:.0f} a day")
        rates[FailureClass(name)] = float(rate)
    return FailureTable(str(value.get("name", "own")), rates, str(value.get("source", "given by the designer")))
