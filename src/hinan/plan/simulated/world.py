"""What happens to a cluster in a year: faults, repairs, stragglers, maintenance, drawn once per seed.

Owns:      the schedule. Promises: it depends on the seed and the cluster only, never on the policy that meets it, so
           two policies with one seed face the same year, event for event.
Relies on: numpy's generator; the same seed gives the same year on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hinan.plan.model.checks import not_negative, positive, ratio
from hinan.plan.model.failures import DAY_S, FailureClass

YEAR_S = 365 * DAY_S


@dataclass(frozen=True)
class Cluster:
    """The odds of a year. Rates are per node and day, times in seconds."""

    nodes: int
    per_node_day: Mapping[FailureClass, float]
    lemon_shape: float = 0.6
    """Gamma shape of the nodes' own rates; 0.6 gives the worst tenth about 40 % of the faults (InfiniteHBD trace)."""
    repair_median_s: float = 0.85 * DAY_S
    repair_mean_s: float = 5.5 * DAY_S
    nodes_return_ratio: float = 0.9
    stragglers_per_node_day: float = 2e-4
    straggler_factor: float = 1.25
    """Median slow-down of a straggling node; a quarter of it above 1.5 times that excess."""
    straggler_s: float = 6 * 3600.0
    """Mean time a straggler stays slow if nobody acts."""
    maintenance_per_node_day: float = 1e-4
    """Evictions with notice: the node is evacuated first, nothing is redone."""
    horizon_s: float = YEAR_S

    def __post_init__(self) -> None:
        positive(nodes=self.nodes, lemon_shape=self.lemon_shape, horizon_s=self.horizon_s)
        positive(repair_median_s=self.repair_median_s, straggler_s=self.straggler_s)
        not_negative(stragglers_per_node_day=self.stragglers_per_node_day)
        not_negative(maintenance_per_node_day=self.maintenance_per_node_day)
        ratio(nodes_return_ratio=self.nodes_return_ratio)


@dataclass(frozen=True)
class Happening:
    """One thing that happens, with everything drawn that its consequences could need."""

    at_s: float
    kind: str
    """A failure class, "straggler" or "maintenance"."""
    node: int
    repair_s: float
    returns: bool
    """Whether the nodes of a rack or job failure come back with their NVMe."""
    factor: float = 1.0
    lasts_s: float = 0.0


def schedule(cluster: Cluster, seed: int) -> list[Happening]:
    """A year in order of time. Each kind draws from its own stream: another rate leaves the others alone."""
    happenings: list[Happening] = []
    weights = np.random.default_rng([seed, 0]).gamma(cluster.lemon_shape, 1.0, cluster.nodes)
    chances = weights / weights.sum()
    rates = {str(kind): rate for kind, rate in cluster.per_node_day.items()}
    rates |= {"straggler": cluster.stragglers_per_node_day, "maintenance": cluster.maintenance_per_node_day}
    streams = [*map(str, FailureClass), "straggler", "maintenance"]
    for stream, kind in enumerate(streams, start=1):
        if rates.get(kind, 0.0) > 0:
            happenings += _draw(cluster, np.random.default_rng([seed, stream]), kind, rates[kind], chances)
    return sorted(happenings, key=lambda each: (each.at_s, each.kind, each.node))


def _draw(
    cluster: Cluster,
    rng: np.random.Generator,
    kind: str,
    rate: float,
    chances: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> list[Happening]:
    count = int(rng.poisson(rate * cluster.nodes * cluster.horizon_s / DAY_S))
    at_s = np.sort(rng.uniform(0, cluster.horizon_s, count))
    node = rng.choice(cluster.nodes, size=count, p=None if kind == "maintenance" else chances)
    sigma = math.sqrt(max(0.0, 2 * math.log(max(1.0, cluster.repair_mean_s / cluster.repair_median_s))))
    repair_s = cluster.repair_median_s * np.exp(sigma * rng.standard_normal(count))
    returns = rng.random(count) < cluster.nodes_return_ratio
    excess = (cluster.straggler_factor - 1) * np.exp(0.6 * rng.standard_normal(count))
    lasts_s = rng.exponential(cluster.straggler_s, count)
    return [
        Happening(float(t), kind, int(n), float(r), bool(b), 1 + float(e), float(d))
        for t, n, r, b, e, d in zip(at_s, node, repair_s, returns, excess, lasts_s, strict=True)
    ]
