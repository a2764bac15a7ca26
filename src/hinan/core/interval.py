"""How often, until the planner answers in full: Young's first-order interval.

The mean times to interruption below are assumptions for a small cluster, stated in `hinan agent status` beside the
interval; a measured value replaces the stall and the drain, not the failure rate.
"""

from __future__ import annotations

import math

from hinan.core.errors import ConfigError

ASSUMED_PROCESS_MTTI_S = 6 * 3600.0
"""Assumed mean time between failures that RAM survives (a process, a GPU)."""

ASSUMED_HOST_MTTI_S = 48 * 3600.0
"""Assumed mean time between failures that only the target survives (the host)."""

DRAIN_INTERFERENCE_RATIO = 0.05
"""Assumed slow-down of training while a drain runs; its time price is this share of the drain."""

SHORTEST_AUTO_S = 1.0
SHORTEST_AUTO_COMMIT_S = 30.0


def young_interval_s(*, stall_s: float, mtti_s: float) -> float:
    """Interval between evacuations that minimises expected lost time, in seconds.

    First order: the stall is short against the interval, failures are exponential.

    Args:
        stall_s: training time one evacuation costs [s, > 0].
        mtti_s: mean time to the first failure anywhere in the job [s], not of one node.
    Raises:
        ConfigError: if either is not positive and finite.
    Source: Young 1974, tau = sqrt(2 C M).
    Example:
        >>> round(young_interval_s(stall_s=2.0, mtti_s=7200.0))
        170
    """
    for name, value in (("stall_s", stall_s), ("mtti_s", mtti_s)):
        if not (math.isfinite(value) and value > 0):
            raise ConfigError(f"{name}={value!r} must be positive and finite")
    return math.sqrt(2 * stall_s * mtti_s)


def auto_interval_s(stall_s: float | None) -> float:
    """Interval of evacuations to RAM for "auto", in seconds."""
    if not stall_s:
        return SHORTEST_AUTO_S
    return max(SHORTEST_AUTO_S, young_interval_s(stall_s=stall_s, mtti_s=ASSUMED_PROCESS_MTTI_S))


def auto_commit_s(drain_s: float | None) -> float:
    """Interval of commits for "auto", in seconds: Young's on the drain's price, and never so often that drains overlap."""
    if not drain_s:
        return SHORTEST_AUTO_COMMIT_S
    price_s = drain_s * DRAIN_INTERFERENCE_RATIO
    return max(SHORTEST_AUTO_COMMIT_S, 2 * drain_s, young_interval_s(stall_s=price_s, mtti_s=ASSUMED_HOST_MTTI_S))
