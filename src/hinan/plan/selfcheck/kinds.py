"""Formulas by name, for `hinan plan --formula`: text inputs with units in, named numbers out.

Owns:      the register of kinds. The vectors of the self-check run through here, so what is checked is what a designer
           can call with other numbers.
Relies on: `inputs.py` for units and ranges: what a name promises, a kind need not check.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

from hinan.core.errors import ConfigError
from hinan.plan.intervals import formulas
from hinan.plan.intervals.arrivals import Exponential
from hinan.plan.intervals.exact import exact_ettr
from hinan.plan.intervals.joint import solve
from hinan.plan.intervals.levels import Cause, Level
from hinan.plan.intervals.montecarlo import Track, simulate
from hinan.plan.intervals.space import Bounds
from hinan.plan.model import collectives
from hinan.plan.model.failures import INFINITEHBD_DAYS, INFINITEHBD_NODES_BY_FAULTS
from hinan.plan.observed.traces import job_mtti_s
from hinan.plan.selfcheck.inputs import read_input

Values = dict[str, float]


def _single(mtti_s: float, stall_s: float, restart_s: float, interval_s: float = 0.0) -> Values:
    """One level: intervals by four formulas, ETTR by three witnesses at `interval_s` (0: the exact optimum)."""
    best_s = formulas.exact_interval_s(stall_s=stall_s, mtti_s=mtti_s) if stall_s > 0 else 0.0
    at_s = interval_s or best_s
    values = {"exact_interval_s": best_s}
    if stall_s > 0:
        values["young_interval_s"] = formulas.young_interval_s(stall_s=stall_s, mtti_s=mtti_s)
        values["daly_interval_s"] = formulas.daly_interval_s(stall_s=stall_s, mtti_s=mtti_s)
    additive = formulas.meta_ettr_unchecked(failures_per_s=1 / mtti_s, restart_s=restart_s, save_s=stall_s, interval_s=at_s)
    track = Track(at_s, (), (stall_s,), (0,), (restart_s,), (0.0,))
    estimate = simulate(track, Exponential((1 / mtti_s,)), lives=100, wall_s=2000 * mtti_s, seed=1)
    return {
        **values,
        "interval_s": at_s,
        "additive_ettr": additive,
        "additive_in_range": float(1 - additive <= formulas.ADDITIVE_LOSS_LIMIT),
        "exact_ettr": formulas.exact_ettr(interval_s=at_s, stall_s=stall_s, mtti_s=mtti_s, restart_s=restart_s),
        "simulated_ettr": estimate.ettr,
        "simulated_stderr": estimate.stderr,
    }


def _fleet(mttf_nodes: float, per_node_day: float, restart_s: float, stall_s: float, interval_s: float) -> Values:
    """Meta's ETTR for a job of so many nodes, with the other witnesses beside it."""
    return _single(formulas.mttf_s(nodes=mttf_nodes, per_node_day=per_node_day), stall_s, restart_s, interval_s)


def _job_mttf(gpus: float, gpus_per_node: float, per_node_day: float) -> Values:
    """MTTF of a job from failures per node-day."""
    mttf_s = formulas.mttf_s(nodes=gpus / gpus_per_node, per_node_day=per_node_day)
    return {
        "mttf_s": mttf_s,
        "mttf_h": mttf_s / 3600,
        "warned": float(formulas.small_job_warning(int(gpus)) is not None),
    }


def _counted(interruptions: float, days: float, gpus: float, gpus_per_node: float) -> Values:
    """MTTI and failures per node-day from counted interruptions."""
    node_days = days * gpus / gpus_per_node
    return {
        "mtti_s": days * 86_400 / interruptions,
        "mtti_h": days * 24 / interruptions,
        "per_node_day": interruptions / node_days,
    }


def _levels(mtti_s: float, share: list[float], stall_s: list[float], restart_s: list[float]) -> Values:
    """Several levels: each alone to first order, then nested by the exact form and by simulation."""
    if not len(share) == len(stall_s) == len(restart_s):
        raise ConfigError("share, stall_s and restart_s need one entry per level")
    rates = [part / mtti_s for part in share]
    rows = list(zip(rates, stall_s, restart_s, strict=True))
    levels = [Level(f"level{i}", c, (Cause(f"class{i}", p, r),)) for i, (p, c, r) in enumerate(rows, start=1)]
    pattern = solve(levels, Bounds())
    track = Track(
        pattern.work_s, pattern.multiples, tuple(stall_s), tuple(range(len(rows))), tuple(restart_s), (0.0,) * len(rows)
    )
    estimate = simulate(track, Exponential(tuple(rates)), lives=100, wall_s=2000 * mtti_s, seed=1)
    alone = [formulas.young_interval_s(stall_s=c, mtti_s=1 / p) for p, c, _ in rows]
    values = {f"interval_{i}_s": tau_s for i, tau_s in enumerate(alone, start=1)}
    values |= {f"nested_{i}_s": tau_s for i, tau_s in enumerate(pattern.intervals_s(), start=1)}
    waste = sum((2 * p * c) ** 0.5 for p, c, _ in rows)
    return {
        **values,
        "ratio": alone[-1] / alone[0],
        "saving_waste": waste,
        "first_order_ettr": 1 - formulas.multilevel_waste(rows),
        "exact_ettr": exact_ettr(levels, pattern),
        "simulated_ettr": estimate.ettr,
        "simulated_stderr": estimate.stderr,
    }


def _scaling(gpus: float, gpus_per_node: float, per_node_day: float, stall_s: float) -> Values:
    """Interval and first-order waste of checkpoint and redo at a size, one level."""
    mtti_s = formulas.mttf_s(nodes=gpus / gpus_per_node, per_node_day=per_node_day)
    tau_s = formulas.young_interval_s(stall_s=stall_s, mtti_s=mtti_s)
    return {"interval_s": tau_s, "waste": stall_s / tau_s + tau_s / (2 * mtti_s), "mtti_s": mtti_s}


def _save(state_bytes: float, duration_s: float, interval_s: float) -> Values:
    """A save of so many bytes in so much time, every `interval_s`."""
    return {"bytes_per_s": state_bytes / duration_s, "overhead": duration_s / interval_s}


def _copy(state_bytes: float, gpus: float, bytes_per_s: float) -> Values:
    share_bytes, copy_s = formulas.copy_time_s(state_bytes=state_bytes, gpus=int(gpus), bytes_per_s=bytes_per_s)
    return {"share_bytes": share_bytes, "copy_s": copy_s}


def _trace_job(job_nodes: float) -> Values:
    """MTTI of a random job in the InfiniteHBD fleet, from the faults per node."""
    per_node = [k for k, nodes in INFINITEHBD_NODES_BY_FAULTS.items() for _ in range(nodes)]
    low, middle, high = job_mtti_s(per_node, INFINITEHBD_DAYS * 86_400, job_nodes=int(job_nodes))
    starts = float(sum(per_node))
    return {
        "starts": starts,
        "per_node_day": starts / (len(per_node) * INFINITEHBD_DAYS),
        "mtti_low_d": low / 86_400,
        "mtti_d": middle / 86_400,
        "mtti_high_d": high / 86_400,
    }


def _whatif(original_s: float, ideal_s: float, fixed_s: float) -> Values:
    return {
        "slowdown": collectives.straggler_slowdown(original_s=original_s, ideal_s=ideal_s),
        "recovered": collectives.recovered_ratio(original_s=original_s, ideal_s=ideal_s, fixed_s=fixed_s),
    }


def _bus(busbw_bytes_per_s: float, ranks: float) -> Values:
    return {"algbw_bytes_per_s": collectives.algbw_from_busbw(busbw_bytes_per_s=busbw_bytes_per_s, ranks=int(ranks))}


def _ring(ranks: float, size_bytes: float, bytes_per_s: float, latency_s: float = 0.0) -> Values:
    return {
        "time_s": collectives.ring_allreduce_s(
            ranks=int(ranks), size_bytes=size_bytes, bytes_per_s=bytes_per_s, latency_s=latency_s
        )
    }


def _tree(ranks: float, size_bytes: float, bytes_per_s: float, latency_s: float = 0.0) -> Values:
    return {
        "time_s": collectives.tree_allreduce_s(
            ranks=int(ranks), size_bytes=size_bytes, bytes_per_s=bytes_per_s, latency_s=latency_s
        )
    }


def _hierarchical(
    nodes: float,
    ranks_per_node: float,
    size_bytes: float,
    inside_bytes_per_s: float,
    outside_bytes_per_s: float,
    inside_latency_s: float = 0.0,
    outside_latency_s: float = 0.0,
) -> Values:
    return {
        "time_s": collectives.hierarchical_allreduce_s(
            nodes=int(nodes),
            ranks_per_node=int(ranks_per_node),
            size_bytes=size_bytes,
            inside_bytes_per_s=inside_bytes_per_s,
            outside_bytes_per_s=outside_bytes_per_s,
            inside_latency_s=inside_latency_s,
            outside_latency_s=outside_latency_s,
        )
    }


def _slow_link(
    ranks: float, size_bytes: float, bytes_per_s: float, slow_bytes_per_s: float, latency_s: float = 0.0
) -> Values:
    """A ring with one slow link, against the same ring without."""
    time_s = collectives.ring_with_slow_link_s(
        ranks=int(ranks),
        size_bytes=size_bytes,
        bytes_per_s=bytes_per_s,
        slow_bytes_per_s=slow_bytes_per_s,
        latency_s=latency_s,
    )
    even_s = collectives.ring_allreduce_s(
        ranks=int(ranks), size_bytes=size_bytes, bytes_per_s=bytes_per_s, latency_s=latency_s
    )
    return {"time_s": time_s, "slowdown": time_s / even_s if even_s else 1.0}


def _slow_rank(compute_s: float, allreduce_s: float, slow_factor: float) -> Values:
    """The step of all ranks when one computes slower, and what of all GPU time that takes."""
    step_s = collectives.step_with_slow_rank_s(compute_s=compute_s, allreduce_s=allreduce_s, slow_factor=slow_factor)
    even_s = compute_s + allreduce_s
    return {"step_s": step_s, "slowdown": step_s / even_s, "lost": 1 - even_s / step_s}


def _daly(stall_s: float, mtti_s: float) -> Values:
    tau_s = formulas.daly_interval_s(stall_s=stall_s, mtti_s=mtti_s)
    return {"interval_s": tau_s, "interval_min": tau_s / 60}


def _exact(stall_s: float, mtti_s: float) -> Values:
    tau_s = formulas.exact_interval_s(stall_s=stall_s, mtti_s=mtti_s)
    return {"interval_s": tau_s, "interval_min": tau_s / 60}


def _young(stall_s: float, mtti_s: float) -> Values:
    tau_s = formulas.young_interval_s(stall_s=stall_s, mtti_s=mtti_s)
    return {"interval_s": tau_s, "interval_min": tau_s / 60}


def _daly_first(stall_s: float, mtti_s: float, restart_s: float) -> Values:
    return {"interval_s": formulas.daly_first_order_interval_s(stall_s=stall_s, mtti_s=mtti_s, restart_s=restart_s)}


def _period(save_s: float, mtti_s: float, restart_s: float) -> Values:
    return {
        "period_s": formulas.period_with_save_s(save_s=save_s, mtti_s=mtti_s, restart_s=restart_s),
        "young_interval_s": formulas.young_interval_s(stall_s=save_s, mtti_s=mtti_s),
    }


def _verified(verify_s: float, stall_s: float, fail_per_s: float, silent_per_s: float) -> Values:
    return {
        "interval_s": formulas.verified_interval_s(
            verify_s=verify_s, stall_s=stall_s, fail_per_s=fail_per_s, silent_per_s=silent_per_s
        )
    }


def _pairs(nodes: float, lost: float = 2) -> Values:
    return {"survival": formulas.pair_survival(nodes=int(nodes), lost=int(lost))}


def _spares(nodes: float, down_ratio: float, quantile: float = 0.99) -> Values:
    return {"spares": float(formulas.spares_quantile(mean_out=nodes * down_ratio, quantile=quantile))}


def _drain_binds(
    cost_s: float, drain_s: float, per_node_day: float, gpus_per_node: float, needs_store_ratio: float = 1.0
) -> Values:
    return {
        "gpus": formulas.gpus_where_drain_binds(
            cost_s=cost_s,
            drain_s=drain_s,
            per_node_day=per_node_day,
            gpus_per_node=int(gpus_per_node),
            needs_store_ratio=needs_store_ratio,
        )
    }


def _retention(detection_latency_s: float, interval_s: float) -> Values:
    return {
        "generations": float(formulas.retention_generations(detection_latency_s=detection_latency_s, interval_s=interval_s))
    }


KINDS: Mapping[str, Callable[..., Values]] = {
    "young": _young,
    "daly": _daly,
    "daly-first-order": _daly_first,
    "exact": _exact,
    "single": _single,
    "fleet": _fleet,
    "levels": _levels,
    "mttf": _job_mttf,
    "counted": _counted,
    "period": _period,
    "verified": _verified,
    "scaling": _scaling,
    "drain-binds": _drain_binds,
    "retention": _retention,
    "pairs": _pairs,
    "spares": _spares,
    "copy": _copy,
    "save": _save,
    "ring": _ring,
    "tree": _tree,
    "hierarchical": _hierarchical,
    "slow-link": _slow_link,
    "slow-rank": _slow_rank,
    "bus": _bus,
    "what-if": _whatif,
    "trace-job": _trace_job,
}


def compute(name: str, given: Mapping[str, str]) -> Values:
    """A formula by name with inputs as text.

    Raises:
        ConfigError: unknown formula or input, a missing one, or a text that cannot be read or is out of range.
    """
    if name not in KINDS:
        raise ConfigError(
            f"no formula {name!r}; formulas: {', '.join(KINDS)} (--formula list shows their inputs)", name=name
        )
    parameters = inspect.signature(KINDS[name]).parameters
    unknown = sorted(set(given) - set(parameters))
    missing = [n for n, p in parameters.items() if p.default is inspect.Parameter.empty and n not in given]
    if unknown or missing:
        raise ConfigError(f"{name} takes {_inputs(name)}; unknown: {unknown or 'none'}, missing: {missing or 'none'}")
    values = {n: read_input(n, text, many="list" in str(parameters[n].annotation)) for n, text in given.items()}
    try:
        return KINDS[name](**values)
    except (OverflowError, ZeroDivisionError) as error:
        raise ConfigError(f"{name}: these inputs are out of range ({error})") from error


def listing() -> dict[str, list[str]]:
    """All formulas and the names of their inputs."""
    return {name: [*inspect.signature(KINDS[name]).parameters] for name in KINDS}


def _inputs(name: str) -> str:
    return ", ".join(listing()[name])
