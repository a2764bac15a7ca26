"""What an all-reduce costs, what one slow rank does to everybody, and the what-if figures of stragglers.

Owns:      alpha-beta costs of ring, tree and hierarchical all-reduce; slowdown ratios of a what-if analysis.
Promises:  seconds from bytes, bytes/s and seconds; bandwidths are per rank and one direction.
Never:     models congestion: these are the floors that a healthy network approaches.
"""

from __future__ import annotations

import math

from hinan.core.errors import ConfigError
from hinan.plan.model.checks import not_negative, positive


def bus_factor(ranks: int) -> float:
    """Bytes on the bus per byte of an all-reduce, 2 (n-1)/n.

    Source: nccl-tests, PERFORMANCE.md (busbw = algbw x 2(n-1)/n).
    """
    if ranks < 1:
        raise ConfigError(f"an all-reduce needs at least one rank, not {ranks}")
    return 2 * (ranks - 1) / ranks


def algbw_from_busbw(*, busbw_bytes_per_s: float, ranks: int) -> float:
    """Algorithm bandwidth (bytes / time) that shows as this bus bandwidth [bytes/s]."""
    positive(busbw_bytes_per_s=busbw_bytes_per_s)
    if ranks < 2:
        raise ConfigError("bus bandwidth means nothing with one rank")
    return busbw_bytes_per_s / bus_factor(ranks)


def ring_allreduce_s(*, ranks: int, size_bytes: float, bytes_per_s: float, latency_s: float = 0.0) -> float:
    """Ring: 2(n-1) steps of S/n bytes [s]: 2(n-1) alpha + 2(n-1)/n S/B."""
    positive(size_bytes=size_bytes, bytes_per_s=bytes_per_s)
    not_negative(latency_s=latency_s)
    return 2 * (ranks - 1) * latency_s + bus_factor(ranks) * size_bytes / bytes_per_s


def tree_allreduce_s(*, ranks: int, size_bytes: float, bytes_per_s: float, latency_s: float = 0.0) -> float:
    """Pipelined (double) binary tree [s]: 2 ceil(log2 n) alpha + 2 S/B; latency grows with log n, not with n.

    Two complementary trees carry half of the data each, so reduce and broadcast move 2 S in all per rank.
    """
    positive(size_bytes=size_bytes, bytes_per_s=bytes_per_s)
    not_negative(latency_s=latency_s)
    if ranks <= 1:
        return 0.0
    return 2 * math.ceil(math.log2(ranks)) * latency_s + 2 * size_bytes / bytes_per_s


def hierarchical_allreduce_s(
    *,
    nodes: int,
    ranks_per_node: int,
    size_bytes: float,
    inside_bytes_per_s: float,
    outside_bytes_per_s: float,
    inside_latency_s: float = 0.0,
    outside_latency_s: float = 0.0,
) -> float:
    """Reduce-scatter inside the node, ring between nodes on S/g per rank, all-gather inside [s].

    Bandwidths are per rank: the inside link, and the rank's share of the node's network.
    """
    inside = ring_allreduce_s(
        ranks=ranks_per_node, size_bytes=size_bytes, bytes_per_s=inside_bytes_per_s, latency_s=inside_latency_s
    )
    outside = ring_allreduce_s(
        ranks=nodes,
        size_bytes=size_bytes / ranks_per_node,
        bytes_per_s=outside_bytes_per_s,
        latency_s=outside_latency_s,
    )
    return inside + outside


def step_with_slow_rank_s(*, compute_s: float, allreduce_s: float, slow_factor: float) -> float:
    """Step time of *all* ranks when one computes `slow_factor` times slower [s]: everybody waits in the all-reduce."""
    positive(compute_s=compute_s)
    not_negative(allreduce_s=allreduce_s)
    if not math.isfinite(slow_factor) or slow_factor < 1:
        raise ConfigError(f"slow_factor is a slowdown, 1 or more, not {slow_factor}")
    return compute_s * slow_factor + allreduce_s


def ring_with_slow_link_s(
    *, ranks: int, size_bytes: float, bytes_per_s: float, slow_bytes_per_s: float, latency_s: float = 0.0
) -> float:
    """Ring in which one link is slower [s]: every byte passes it, so the ring runs at its pace."""
    return ring_allreduce_s(
        ranks=ranks, size_bytes=size_bytes, bytes_per_s=min(bytes_per_s, slow_bytes_per_s), latency_s=latency_s
    )


def straggler_slowdown(*, original_s: float, ideal_s: float) -> float:
    """S = T_orig / T_ideal [1-]: how much longer the step takes than with all operations at their ideal length."""
    positive(original_s=original_s, ideal_s=ideal_s)
    return original_s / ideal_s


def recovered_ratio(*, original_s: float, ideal_s: float, fixed_s: float) -> float:
    """Share of the straggler loss that a fix wins back: (T - T_fixed) / (T - T_ideal).

    M_W when the worst workers are fixed, M_S when the last pipeline stage is. May pass 1: fixing the worst workers
    also removes waiting that the ideal timeline keeps.
    Source: ByteDance, StragglerAnalysis (what-if analysis of stragglers).
    """
    positive(original_s=original_s, ideal_s=ideal_s, fixed_s=fixed_s)
    if original_s <= ideal_s:
        raise ConfigError("no straggler loss: the original time is not above the ideal one")
    return (original_s - fixed_s) / (original_s - ideal_s)
