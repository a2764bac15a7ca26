"""Years compared: one world per seed, every policy in each, differences paired by seed.

Owns:      the set-up of world and job from a scenario, and the comparison. Promises: same seeds, same results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hinan.core.errors import ConfigError
from hinan.plan.decision.design import verification
from hinan.plan.model.collectives import hierarchical_allreduce_s, ring_allreduce_s, tree_allreduce_s
from hinan.plan.model.scenario import Scenario
from hinan.plan.simulated.policy import Policy
from hinan.plan.simulated.world import YEAR_S, Cluster, schedule
from hinan.plan.simulated.year import WAITING, Books, Job, Year

LINK_BYTES_PER_S = 450e9
"""NVLink of one H100-class GPU, one direction (nccl-tests PERFORMANCE.md uses the same figure)."""
ALPHA_INSIDE_S, ALPHA_OUTSIDE_S = 1e-6, 5e-6
"""Latency of one hop inside a node and between nodes: guesses of the usual size."""
REDUCE_BYTES = 2**30
"""Gradients that one rank all-reduces per step; a guess, printed with the answer."""
WAITING_RATIO = 0.01
"""More of the year than this spent waiting for a node is warned of."""


@dataclass(frozen=True)
class Compared:
    """One policy over all seeds, and its paired difference to the first."""

    policy: Policy
    books: tuple[Books, ...]
    ettr: float
    stderr: float
    difference: float
    difference_stderr: float


def allreduce_s(scenario: Scenario, *, reduce_bytes: float = REDUCE_BYTES) -> float:
    """All-reduce of a step on this cluster: scattered inside nodes, ring or tree between them [s]."""
    gpus, nodes = scenario.gpus_on_node, scenario.nodes
    share = scenario.machine.nic_bytes_per_s / gpus
    inside_s = ring_allreduce_s(ranks=gpus, size_bytes=reduce_bytes, bytes_per_s=LINK_BYTES_PER_S, latency_s=ALPHA_INSIDE_S)
    ring_s = hierarchical_allreduce_s(
        nodes=nodes,
        ranks_per_node=gpus,
        size_bytes=reduce_bytes,
        inside_bytes_per_s=LINK_BYTES_PER_S,
        outside_bytes_per_s=share,
        inside_latency_s=ALPHA_INSIDE_S,
        outside_latency_s=ALPHA_OUTSIDE_S,
    )
    tree_s = inside_s + tree_allreduce_s(
        ranks=nodes, size_bytes=reduce_bytes / gpus, bytes_per_s=share, latency_s=ALPHA_OUTSIDE_S
    )
    return min(ring_s, tree_s)


def job_of(scenario: Scenario) -> Job:
    """The job of a scenario in the simulation's terms. The step given includes its all-reduce."""
    reduce_s = min(allreduce_s(scenario), 0.5 * scenario.job.step_s)
    return Job(
        nodes=scenario.nodes,
        compute_s=scenario.job.step_s - reduce_s,
        allreduce_s=reduce_s,
        parts=scenario.restart.parts,
        init_extra_s=scenario.restart.init_per_1k_nodes_s * scenario.nodes / 1000,
        verify_every_s=verification(scenario)[0] or 0.0,
        verify_ratio=verification(scenario)[1],
        total_restart_s=scenario.restart.total_s,
        replay_s=scenario.restart.replay_s,
    )


def cluster_of(scenario: Scenario, *, horizon_s: float = YEAR_S) -> Cluster:
    """The odds of a scenario's cluster."""
    return Cluster(
        nodes=scenario.nodes,
        per_node_day=scenario.failures.per_node_day,
        repair_mean_s=scenario.restart.repair_s,
        repair_median_s=scenario.restart.repair_s * 0.85 / 5.5,
        nodes_return_ratio=scenario.restart.nodes_return_ratio,
        horizon_s=horizon_s,
    )


def compare(
    scenario: Scenario, policies: Sequence[Policy], seeds: Sequence[int], *, horizon_s: float = YEAR_S
) -> list[Compared]:
    """Each policy through each seed's year; differences to the first policy, paired.

    Raises:
        ConfigError: no policy or no seed.
    """
    if not policies or not seeds:
        raise ConfigError("at least one policy and one seed are needed")
    job, cluster = job_of(scenario), cluster_of(scenario, horizon_s=horizon_s)
    books: list[list[Books]] = [[] for _ in policies]
    for seed in seeds:
        world = schedule(cluster, seed)
        for index, policy in enumerate(policies):
            books[index].append(Year(job, policy, horizon_s).run(world))
    first = [each.ettr(horizon_s) for each in books[0]]
    rows = []
    for policy, years in zip(policies, books, strict=True):
        kept = [each.ettr(horizon_s) for each in years]
        apart = [a - b for a, b in zip(kept, first, strict=True)]
        rows.append(Compared(policy, tuple(years), *_mean(kept), *_mean(apart)))
    return rows


def _mean(values: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error (0 with one value)."""
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, 0.0
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, math.sqrt(variance / len(values))


def warnings(row: Compared, *, horizon_s: float = YEAR_S) -> list[str]:
    """What makes a policy's year no picture of its intervals."""
    waiting = sum(books.seconds.get(WAITING, 0.0) for books in row.books) / len(row.books) / horizon_s
    if waiting <= WAITING_RATIO:
        return []
    return [f"{row.policy.name}: {waiting:.1%} of the year is {WAITING}, {row.policy.spares} spares are too few"]


def to_json(rows: Sequence[Compared], *, horizon_s: float = YEAR_S, caveats: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Plain values, the contract of `hinan simulate --json`.

    Args:
        caveats: what must be known of the plan that all policies start from; each of them has it among its warnings.
    """
    found = []
    for row in rows:
        names = sorted({name for books in row.books for name in books.seconds})
        found.append(
            {
                "policy": row.policy.name,
                "every_s": {str(tier.tier): tier.every_s for tier in row.policy.tiers},
                "spares": row.policy.spares,
                "ettr": row.ettr,
                "ettr_stderr": row.stderr,
                "difference": row.difference,
                "difference_stderr": row.difference_stderr,
                "shares": {
                    name: sum(books.seconds.get(name, 0.0) for books in row.books) / len(row.books) / horizon_s
                    for name in names
                },
                "failures": sum(sum(books.failures.values()) for books in row.books) / len(row.books),
                "restored_from": _total(row, "restored_from"),
                "evictions": sum(books.evictions for books in row.books) / len(row.books),
                "worst_redo_s": max(books.worst_redo_s for books in row.books),
                "least_spares": min(books.least_spares for books in row.books),
                "seeds": len(row.books),
                "warnings": [*caveats, *warnings(row, horizon_s=horizon_s)],
            }
        )
    return found


def _total(row: Compared, name: str) -> dict[str, int]:
    totals: dict[str, int] = {}
    for books in row.books:
        for key, count in getattr(books, name).items():
            totals[key] = totals.get(key, 0) + count
    return totals


def to_text(rows: Sequence[Compared], *, horizon_s: float = YEAR_S, caveats: Sequence[str] = ()) -> str:
    """A table for a terminal, shares of the year in percent."""
    found = to_json(rows, horizon_s=horizon_s, caveats=caveats)
    names = sorted({name for row in found for name in row["shares"]}, key=lambda name: (name != "kept", name))
    width = max(12, *(len(row["policy"]) + 2 for row in found))
    lines = [f"{'share of the year':<22}" + "".join(f"{row['policy']:>{width}}" for row in found)]
    lines += [f"{name:<22}" + "".join(f"{row['shares'].get(name, 0.0):>{width}.3%}" for row in found) for name in names]
    lines.append(f"{'failures':<22}" + "".join(f"{row['failures']:>{width},.0f}" for row in found))
    lines.append(f"{'worst redo [s]':<22}" + "".join(f"{row['worst_redo_s']:>{width},.1f}" for row in found))
    lines.append(f"{'fewest spares left':<22}" + "".join(f"{row['least_spares']:>{width}}" for row in found))
    lines += [
        f"{row['policy']} against {found[0]['policy']}: {row['difference']:+.4%} "
        f"± {1.96 * row['difference_stderr']:.4%} of the year ({row['seeds']} paired years)"
        for row in found[1:]
    ]
    lines += [f"! {warning}" for warning in dict.fromkeys(each for row in found for each in row["warnings"])]
    return "\n".join(lines)
