"""The self-check: published and derived numbers that the planner must reproduce, run through the public formulas.

Owns:      inputs, expected values, tolerances and sources. No arithmetic: that is `kinds.py`.
Promises:  tolerance is half of the last printed digit; a value that its source simulated carries the spread of that
           simulation instead, and says so.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hinan.plan.selfcheck.kinds import compute

__all__ = ["VECTORS", "Result", "Vector", "compute", "run_all"]

_SIMULATED = " (printed value is one simulation: within 0.003)"


@dataclass(frozen=True)
class Vector:
    """One number: a formula with inputs, the name of the output, and what it has to be."""

    id: str
    kind: str
    given: dict[str, str]
    output: str
    expected: float
    tolerance: float
    source: str


@dataclass(frozen=True)
class Result:
    """A vector and what came out."""

    id: str
    value: float
    expected: float
    tolerance: float
    ok: bool
    source: str

    def to_json(self) -> dict[str, Any]:
        """Plain values: `id`, `value`, `expected`, `ok`, and tolerance and source."""
        return {
            "id": self.id,
            "value": self.value,
            "expected": self.expected,
            "ok": self.ok,
            "tolerance": self.tolerance,
            "source": self.source,
        }


def _v(
    name: str, kind: str, given: dict[str, str], output: str, expected: str, source: str, tolerance: float = 0
) -> Vector:
    """Tolerance from the printed digits unless given."""
    mantissa, _, exponent = expected.partition("e")
    decimals = len(mantissa.partition(".")[2])
    digit = 10.0 ** (int(exponent or 0) - decimals)
    return Vector(name, kind, given, output, float(expected), tolerance or 0.5000001 * digit, source)


def _one_level() -> Iterator[Vector]:
    five = {"stall_s": "5min"}
    daly, daly_exact = "Daly 2006", "Daly 2006, complete cost, minimised exactly"
    yield _v("V1", "daly", {**five, "mtti_s": "24h"}, "interval_min", "116.69", f"{daly}, fig. 3")
    yield _v("V2", "daly", {**five, "mtti_s": "6h"}, "interval_min", "56.71", f"{daly}, fig. 4")
    yield _v("V2b", "exact", {**five, "mtti_s": "6h"}, "interval_min", "56.714", daly_exact)
    yield _v("V3", "daly", {**five, "mtti_s": "15min"}, "interval_min", "9.14", f"{daly}, fig. 5")
    yield _v("V3b", "exact", {**five, "mtti_s": "15min"}, "interval_min", "9.167", daly_exact)
    yield _v("V4", "daly", {"stall_s": "40", "mtti_s": "15"}, "interval_s", "15", f"{daly}: from d = 2M on, tau = M", 1e-9)
    for suffix, mtti, expected in (("a", "24h", "120"), ("b", "6h", "60"), ("c", "15min", "12.25")):
        yield _v(f"V5{suffix}", "young", {**five, "mtti_s": mtti}, "interval_min", expected, "Young 1974")


def _meta() -> Iterator[Vector]:
    meta = "Meta, arXiv 2410.21680"
    rsc = {"gpus_per_node": "8", "per_node_day": "6.50e-3"}
    yield _v("V6a", "mttf", {**rsc, "gpus": "16384"}, "mttf_h", "1.803", meta)
    yield _v("V6b", "mttf", {**rsc, "gpus": "131072"}, "mttf_h", "0.2254", meta)
    yield _v("V7", "mttf", {**rsc, "gpus": "1024"}, "mttf_h", "28.85", f"{meta}; measured were 7.9 h: small jobs differ")
    yield _v("V7b", "mttf", {**rsc, "gpus": "1024"}, "warned", "1", "the planner warns about small jobs", 1e-9)
    hour = {"mttf_nodes": "2000", "per_node_day": "6.5e-3", "restart_s": "5min", "stall_s": "0", "interval_s": "60min"}
    five_minutes = {**hour, "interval_s": "5min"}
    yield _v("V8a", "fleet", hour, "additive_ettr", "0.684", meta)
    yield _v("V8b", "fleet", hour, "additive_in_range", "0", f"{meta}; refused: the loss passes 0.2", 1e-9)
    yield _v("V8c", "fleet", hour, "exact_ettr", "0.7202", "Daly 2006, complete cost")
    yield _v("V8d", "fleet", hour, "simulated_ettr", "0.721", "derived" + _SIMULATED, 0.003)
    yield _v("V8e", "fleet", five_minutes, "additive_ettr", "0.932", meta)
    yield _v("V8f", "fleet", five_minutes, "exact_ettr", "0.9345", "Daly 2006, complete cost")
    yield _v("V8g", "fleet", five_minutes, "simulated_ettr", "0.935", "derived" + _SIMULATED, 0.003)


def _counts_and_levels() -> Iterator[Vector]:
    llama = {"interruptions": "419", "days": "54", "gpus": "16384", "gpus_per_node": "8"}
    yield _v("V10a", "counted", llama, "mtti_h", "3.093", "Llama 3, arXiv 2407.21783, table 5")
    yield _v("V10b", "counted", llama, "per_node_day", "3.789e-3", "Llama 3, arXiv 2407.21783, table 5")
    benoit = "Benoit et al. 2017, multi-level first order"
    two = {"mtti_s": "11135", "share": "0.9,0.1", "stall_s": "0.5,60", "restart_s": "60,300"}
    yield _v("V11a", "levels", two, "interval_1_s", "111.2", benoit)
    yield _v("V11b", "levels", two, "interval_2_s", "3655", benoit)
    yield _v("V11c", "levels", two, "ratio", "33", benoit)
    yield _v("V11d", "levels", two, "first_order_ettr", "0.9506", benoit)
    yield _v("V11e", "levels", two, "simulated_ettr", "0.9500", "derived" + _SIMULATED, 0.003)
    one = {"mtti_s": "11135", "share": "1", "stall_s": "60", "restart_s": "300"}
    yield _v("V12a", "levels", one, "saving_waste", "0.1038", benoit)
    yield _v("V12b", "levels", one, "first_order_ettr", "0.869", benoit)
    yield _v("V12c", "levels", one, "simulated_ettr", "0.878", "derived" + _SIMULATED, 0.003)
    saxena = {"save_s": "1", "mtti_s": "180", "restart_s": "10"}
    yield _v("V14a", "period", saxena, "period_s", "20.519", "Saxena et al., arXiv 2410.18124")
    yield _v("V14b", "period", saxena, "young_interval_s", "18.974", "Young 1974")
    verified = {"verify_s": "10", "stall_s": "30", "fail_per_s": "1e-4", "silent_per_s": "2.5e-5"}
    yield _v("V15", "verified", verified, "interval_s", "730.3", "Benoit et al. 2016, verified checkpoints")


def _bytes_and_links() -> Iterator[Vector]:
    wire = {"state_bytes": "5.67TB", "bytes_per_s": "55.06GB/s"}
    h200 = "405e9 parameters x 14 bytes; 55.06 GB/s measured, stas00/ml-engineering"
    yield _v("V16a", "copy", {**wire, "gpus": "16384"}, "share_bytes", "346e6", h200)
    yield _v("V16b", "copy", {**wire, "gpus": "16384"}, "copy_s", "6.29e-3", h200)
    yield _v("V16c", "copy", {**wire, "gpus": "1024"}, "share_bytes", "5.54e9", h200)
    yield _v("V16d", "copy", {**wire, "gpus": "1024"}, "copy_s", "100.6e-3", h200)
    bloom = {"state_bytes": "2.3TB", "duration_s": "40s", "interval_s": "3h"}
    yield _v("V18a", "save", bloom, "bytes_per_s", "57.5e9", "BLOOM: 2.3 TB in 40 s every 3 h")
    yield _v("V18b", "save", bloom, "overhead", "0.00370", "BLOOM: 2.3 TB in 40 s every 3 h")
    nccl = "nccl-tests, PERFORMANCE.md"
    ring = {"ranks": "8", "size_bytes": "1GiB", "bytes_per_s": "450GB/s"}
    yield _v("V19a", "ring", ring, "time_s", "4.1757e-3", nccl)
    yield _v("V19b", "bus", {"busbw_bytes_per_s": "480GB/s", "ranks": "8"}, "algbw_bytes_per_s", "274.29e9", nccl)
    what_if = {"original_s": "46.33637", "ideal_s": "23.48470", "fixed_s": "23.44582"}
    straggler = "ByteDance, StragglerAnalysis"
    yield _v("V21a", "what-if", what_if, "slowdown", "1.9730", straggler)
    yield _v("V21b", "what-if", what_if, "recovered", "1.0017", straggler)


def _fleets() -> Iterator[Vector]:
    trace = "stepfun-ai/InfiniteHBD-Trace at 7aacdc8, counts per node"
    yield _v("V22a", "trace-job", {"job_nodes": "128"}, "starts", "584", trace)
    yield _v("V22b", "trace-job", {"job_nodes": "128"}, "per_node_day", "4.184e-3", trace)
    yield _v(
        "V22c",
        "trace-job",
        {"job_nodes": "128"},
        "mtti_d",
        "1.90",
        f"{trace} (median of random draws: within 0.05)",
        0.05,
    )
    yield _v("V23a", "pairs", {"nodes": "16"}, "survival", "0.93333", "1 - 1/(n-1)")
    yield _v("V23b", "pairs", {"nodes": "1000"}, "survival", "0.99900", "1 - 1/(n-1)")
    yield _v(
        "V24",
        "spares",
        {"nodes": "1024", "down_ratio": "0.001"},
        "spares",
        "4",
        "P99 of a binomial, and of Poisson",
        1e-9,
    )
    base = {"gpus_per_node": "8", "per_node_day": "3.79e-3", "stall_s": "30"}
    for suffix, gpus, tau, waste in (
        ("a", "1000", "3308", "0.018"),
        ("b", "10000", "1046", "0.057"),
        ("c", "100000", "331", "0.181"),
    ):
        yield _v(f"V26{suffix}", "scaling", {**base, "gpus": gpus}, "interval_s", tau, "Young 1974")
        yield _v(f"V26{suffix}w", "scaling", {**base, "gpus": gpus}, "waste", waste, "sqrt(2 C / M)")
    drain = {"cost_s": "6.4", "drain_s": "300", "per_node_day": "3.79e-3", "gpus_per_node": "8"}
    yield _v("V27a", "drain-binds", drain, "gpus", "25.9e3", "sqrt(2 C M) = D")
    yield _v("V27b", "drain-binds", {**drain, "needs_store_ratio": "0.1"}, "gpus", "259e3", "sqrt(2 C M) = D")


VECTORS: tuple[Vector, ...] = tuple(
    itertools.chain(_one_level(), _meta(), _counts_and_levels(), _bytes_and_links(), _fleets())
)


def run(vector: Vector, done: dict[str, dict[str, float]] | None = None) -> Result:
    """One vector through its formula; `done` keeps outputs between vectors that share their inputs."""
    done = {} if done is None else done
    key = f"{vector.kind} {sorted(vector.given.items())}"
    if key not in done:
        done[key] = compute(vector.kind, vector.given)
    value = done[key][vector.output]
    ok = abs(value - vector.expected) <= vector.tolerance
    return Result(vector.id, value, vector.expected, vector.tolerance, ok, vector.source)


def run_all() -> list[Result]:
    """All vectors."""
    done: dict[str, dict[str, float]] = {}
    return [run(vector, done) for vector in VECTORS]
