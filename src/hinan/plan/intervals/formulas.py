"""The first witness: closed forms from the literature, each with its source and its range.

Owns:      the formulas for one saving interval, for several levels, and the small ones beside them.
Promises:  seconds in, seconds out; a value outside a formula's range is refused, not returned.
Relies on: nothing but arithmetic.
Never:     simulates. The Monte Carlo witness imports nothing from here, or agreement would prove nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

from hinan.core.errors import ConfigError
from hinan.plan.model.checks import not_negative, positive, ratio

DAY_S = 86_400.0
_COUNTED_ONE_BY_ONE = 1e4
ADDITIVE_LOSS_LIMIT = 0.2
"""Above this loss the additive ETTR is too far below the exact form to be quoted (0.684 against 0.720)."""


def young_interval_s(*, stall_s: float, mtti_s: float) -> float:
    """Training time between two saves that minimises lost time, to first order [s].

    Args:
        stall_s: training time one save takes from the job [s, > 0].
        mtti_s: mean time to interruption of the whole job [s, > 0], not of one node.
    Raises:
        ConfigError: if either is not positive and finite.
    Source: Young 1974, tau = sqrt(2 C M).
    Example:
        >>> young_interval_s(stall_s=300, mtti_s=86400) / 60
        120.0
    """
    positive(stall_s=stall_s, mtti_s=mtti_s)
    return math.sqrt(2 * stall_s * mtti_s)


def daly_first_order_interval_s(*, stall_s: float, mtti_s: float, restart_s: float) -> float:
    """Daly's first form, sqrt(2 d (M + R)) - d [s]; refused where it is not positive.

    Source: Daly 2006, equation for the first-order model.
    """
    positive(stall_s=stall_s, mtti_s=mtti_s)
    not_negative(restart_s=restart_s)
    interval_s = math.sqrt(2 * stall_s * (mtti_s + restart_s)) - stall_s
    if interval_s <= 0:
        raise ConfigError("a save takes more than twice MTTI + restart: Daly's first-order form has no answer")
    return interval_s


def daly_interval_s(*, stall_s: float, mtti_s: float) -> float:
    """Daly's higher-order optimum [s]: series in sqrt(d / 2M) for d < 2M, M itself from there on.

    Source: Daly 2006, A higher order estimate of the optimum checkpoint interval, figures 3-5.
    Example:
        >>> round(daly_interval_s(stall_s=300, mtti_s=86400) / 60, 2)
        116.69
    """
    positive(stall_s=stall_s, mtti_s=mtti_s)
    if stall_s >= 2 * mtti_s:
        return mtti_s
    x = stall_s / (2 * mtti_s)
    return math.sqrt(2 * stall_s * mtti_s) * (1 + math.sqrt(x) / 3 + x / 9) - stall_s


def exact_interval_s(*, stall_s: float, mtti_s: float) -> float:
    """The interval that really minimises Daly's complete cost [s]: M (1 + W(-exp(-d/M - 1))), W the Lambert function.

    With x = tau/M this is x + ln(1 - x) = -d/M: a series for tiny saves, Newton's method for short
    ones; for long ones 1 - x = exp(-x - d/M) is iterated, which then contracts fast.
    """
    positive(stall_s=stall_s, mtti_s=mtti_s)
    load = stall_s / mtti_s
    if load > 0.5:
        rest = math.exp(-1 - load)
        for _ in range(100):
            rest = math.exp(rest - 1 - load)
        return (1 - rest) * mtti_s
    first = math.sqrt(2 * load)
    if first < 1e-5:
        # x + ln(1 - x) would be all rounding. Its series, inverted; the next term is below 1e-20.
        return (first - first**2 / 3 + first**3 / 36) * mtti_s
    x = min(first, 1 - math.exp(-1 - load))
    for _ in range(60):
        step = (x + math.log1p(-x) + load) * (1 - x) / x
        x = min(max(x + step, x / 4), 1 - (1 - x) / 4)
        if abs(step) < 1e-15:
            break
    return x * mtti_s


def complete_time_s(*, work_s: float, interval_s: float, stall_s: float, mtti_s: float, restart_s: float) -> float:
    """Expected wall time of `work_s` of training, failures exponential and allowed during restart too [s].

    T = M exp(R/M) (exp((tau + d)/M) - 1) T_solve / tau.
    Source: Daly 2006, complete cost function.
    """
    positive(work_s=work_s, interval_s=interval_s, mtti_s=mtti_s)
    not_negative(stall_s=stall_s, restart_s=restart_s)
    try:
        grown = math.exp(restart_s / mtti_s) * math.expm1((interval_s + stall_s) / mtti_s)
    except OverflowError:
        return math.inf
    return mtti_s * grown * work_s / interval_s


def exact_ettr(*, interval_s: float, stall_s: float, mtti_s: float, restart_s: float) -> float:
    """Share of wall time that is training kept, one level, exponential failures [0-1]."""
    return 1 / complete_time_s(work_s=1.0, interval_s=interval_s, stall_s=stall_s, mtti_s=mtti_s, restart_s=restart_s)


def mttf_s(*, nodes: float, per_node_day: float) -> float:
    """Mean time to failure of a job on `nodes` nodes, each failing `per_node_day` times a day [s]."""
    positive(nodes=nodes, per_node_day=per_node_day)
    return DAY_S / (nodes * per_node_day)


def small_job_warning(gpus: int) -> str | None:
    """What to say when one failure rate is stretched to a small job; None for large ones.

    Source: Meta, arXiv 2410.21680: the fitted line gives 28.85 h at 1,024 GPUs, measured were 7.9 h.
    """
    if gpus > 2048:
        return None
    return (
        f"at {gpus} GPUs a rate fitted on large jobs is too kind: small jobs fail for other reasons "
        "(Meta measured 7.9 h at 1,024 GPUs where the fit says 28.85 h); give --mtti from your own jobs"
    )


def meta_ettr(*, failures_per_s: float, restart_s: float, save_s: float, interval_s: float) -> float:
    """Meta's additive ETTR, (1 - n r_f (u0 + dt/2)) / (1 + w/dt): a lower bound [0-1].

    Args:
        failures_per_s: interruptions of the job per second, n r_f.
        restart_s: u0, time to get going again [s].  save_s: w, stall of one save [s].  interval_s: dt [s].
    Raises:
        ConfigError: if the loss passes 0.2, where the bound is no longer close; `evidence["value"]` holds it.
    Source: Meta, arXiv 2410.21680.
    """
    value = meta_ettr_unchecked(failures_per_s=failures_per_s, restart_s=restart_s, save_s=save_s, interval_s=interval_s)
    if 1 - value > ADDITIVE_LOSS_LIMIT:
        raise ConfigError(
            f"the additive ETTR says {value:.3f}: a loss above {ADDITIVE_LOSS_LIMIT} is outside its range; "
            "read the exact form and the simulation",
            value=value,
        )
    return value


def meta_ettr_unchecked(*, failures_per_s: float, restart_s: float, save_s: float, interval_s: float) -> float:
    """`meta_ettr` without its limit, for tables that show how far it strays."""
    positive(failures_per_s=failures_per_s, interval_s=interval_s)
    not_negative(restart_s=restart_s, save_s=save_s)
    return (1 - failures_per_s * (restart_s + interval_s / 2)) / (1 + save_s / interval_s)


def period_with_save_s(*, save_s: float, mtti_s: float, restart_s: float) -> float:
    """Period *including* the save that maximises (1 - d/T) / (1 + (R + T/2)/M) [s]: d + sqrt(d^2 + 2 d (M + R)).

    Source: Saxena et al., arXiv 2410.18124 (save 1, MTBF 180, recovery 10 give 20.519).
    """
    positive(save_s=save_s, mtti_s=mtti_s)
    not_negative(restart_s=restart_s)
    return save_s + math.sqrt(save_s**2 + 2 * save_s * (mtti_s + restart_s))


def verified_interval_s(*, verify_s: float, stall_s: float, fail_per_s: float, silent_per_s: float) -> float:
    """Interval of verified saves under crashes and silent errors [s]: sqrt((V + C) / (lam_f/2 + lam_s)).

    A crash loses half an interval, a silent error a whole one (it is seen by the next verification).
    Source: Benoit, Cavelan, Robert, Sun 2016, patterns for fail-stop and silent errors (first order).
    """
    positive(cost_s=verify_s + stall_s, failures_per_s=fail_per_s + silent_per_s)
    not_negative(verify_s=verify_s, stall_s=stall_s, fail_per_s=fail_per_s, silent_per_s=silent_per_s)
    return math.sqrt((verify_s + stall_s) / (fail_per_s / 2 + silent_per_s))


def mean_unseen_s(*, cadence_s: float, drain_s: float) -> float:
    """Mean time from the newest copy that silent corruption leaves, beside half an interval, to its detection [s].

    Verifications have a rhythm of their own: corruption goes unseen for L, anything from 0 to a cadence V alike. The copy
    must be older than the corruption, and drained by the time it is seen: max(L, D) old. The mean of that is
    (V + D^2/V) / 2, or D where the drain is the longer.
    """
    positive(cadence_s=cadence_s)
    not_negative(drain_s=drain_s)
    return drain_s if drain_s >= cadence_s else (cadence_s + drain_s**2 / cadence_s) / 2


def multilevel_waste(levels: Sequence[tuple[float, float, float]]) -> float:
    """First-order waste of independent levels at their optimum [0-]: sum of sqrt(2 lam C) + lam R.

    Args:
        levels: (failures per second served by the level, stall_s, restart_s) of each level.
    Source: Benoit, Cavelan, Le Fevre, Robert, Sun 2017, Towards optimal multi-level checkpointing.
    """
    return sum(math.sqrt(2 * per_s * stall_s) + per_s * restart_s for per_s, stall_s, restart_s in levels)


def retention_generations(*, detection_latency_s: float, interval_s: float) -> int:
    """Generations to keep so that one older than the corruption is still there: ceil(latency / tau) + 1."""
    positive(interval_s=interval_s)
    not_negative(detection_latency_s=detection_latency_s)
    return math.ceil(detection_latency_s / interval_s) + 1


def pair_survival(*, nodes: int, lost: int = 2) -> float:
    """Chance that state mirrored in pairs survives `lost` nodes lost at once, drawn at random [0-1].

    No pair may be hit twice: product of (n - 2i)/(n - i) over the lost nodes; 1 - 1/(n-1) for two.
    Raises:
        ConfigError: odd or too few nodes, or more lost than there are.
    """
    if nodes < 2 or nodes % 2 or not 0 <= lost <= nodes:
        raise ConfigError(f"pairs need an even number of nodes and 0..n lost, not {nodes} nodes, {lost} lost")
    chance = 1.0
    for i in range(lost):
        chance *= max(0, nodes - 2 * i) / (nodes - i)
    return chance


def spares_quantile(*, mean_out: float, quantile: float = 0.99) -> int:
    """Spare nodes that suffice with probability `quantile`: that quantile of a Poisson number of nodes out for repair.

    A job that runs on spares goes on failing at its full rate, so the nodes out are not limited to its own (a binomial of
    them is too few once repairs pile up). For 1,024 nodes of which 0.001 are out both say 4.
    Args:
        mean_out: nodes out at a time in the mean: failures per second that take a node x mean repair.
    """
    not_negative(mean_out=mean_out)
    ratio(quantile=quantile)
    if quantile == 1.0:
        raise ConfigError("no number of spares suffices always: give a quantile below 1")
    if quantile > 0 and mean_out > _COUNTED_ONE_BY_ONE:
        # Cornish-Fisher: a normal number with the skew of the Poisson one; here within one of the sum below.
        z = NormalDist().inv_cdf(quantile)
        return max(0, math.ceil(mean_out + z * math.sqrt(mean_out) + (z**2 - 1) / 6 - 0.5))
    chance, out = 0.0, -1
    most = mean_out + 40 * math.sqrt(mean_out) + 100  # sums of floats may end a hair below the quantile
    while chance < quantile and out < most:
        out += 1
        chance += math.exp(out * math.log(mean_out) - mean_out - math.lgamma(out + 1)) if mean_out > 0 else 1.0
    return out


def gpus_where_drain_binds(
    *, cost_s: float, drain_s: float, per_node_day: float, gpus_per_node: int, needs_store_ratio: float = 1.0
) -> float:
    """Job size above which the drain, not the optimum, sets the durable interval [GPUs].

    sqrt(2 C M) falls to D where M = D^2 / (2 C); M counts only failures that need the durable copy.
    """
    positive(cost_s=cost_s, drain_s=drain_s, per_node_day=per_node_day, gpus_per_node=gpus_per_node)
    positive(needs_store_ratio=needs_store_ratio)
    mtti_s = drain_s**2 / (2 * cost_s)
    return DAY_S / mtti_s / (per_node_day * needs_store_ratio) * gpus_per_node


def copy_time_s(*, state_bytes: float, gpus: int, bytes_per_s: float) -> tuple[float, float]:
    """Bytes of one GPU's share and seconds to move them at `bytes_per_s` [bytes, s]."""
    positive(state_bytes=state_bytes, gpus=gpus, bytes_per_s=bytes_per_s)
    share_bytes = state_bytes / gpus
    return share_bytes, share_bytes / bytes_per_s
