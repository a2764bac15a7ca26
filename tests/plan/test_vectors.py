"""The published and derived numbers come out, from the formulas a designer can call."""

import json
import re

import pytest
from typer.testing import CliRunner

from hinan.cli.main import app
from hinan.core.errors import ConfigError
from hinan.plan.selfcheck.kinds import KINDS, compute
from hinan.plan.selfcheck.vectors import VECTORS, Vector, run

_done: dict[str, dict[str, float]] = {}


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.id)
def test_vector(vector: Vector) -> None:
    """Each number is reproduced to the digits it was printed with."""
    result = run(vector, _done)
    assert result.ok, f"{result.value} is not {result.expected} ± {result.tolerance} ({result.source})"


def test_a_wrong_number_fails() -> None:
    """The comparison can fail: a digit off is seen."""
    first = VECTORS[0]
    off = Vector(first.id, first.kind, first.given, first.output, first.expected + 0.02, first.tolerance, first.source)
    assert not run(off).ok


def test_self_check_json() -> None:
    """`hinan plan --self-check --json` lists id, value, expected, ok."""
    result = CliRunner().invoke(app, ["plan", "--self-check", "--json"])
    rows = json.loads(result.output)
    assert result.exit_code == 0
    assert len(rows) == len(VECTORS)
    assert all({"id", "value", "expected", "ok"} <= set(row) for row in rows)
    assert all(row["ok"] is True for row in rows)


def test_formulas_take_units_and_other_numbers() -> None:
    """A kind is solved, not a number: other inputs, other units, same formula."""
    assert compute("young", {"stall_s": "2s", "mtti_s": "1h"})["interval_s"] == pytest.approx(120)
    ring = compute("ring", {"ranks": "4", "size_bytes": "2GB", "bytes_per_s": "100GB/s", "latency_s": "10ms"})
    assert ring["time_s"] == pytest.approx(0.06 + 0.03)
    result = CliRunner().invoke(app, ["plan", "--formula", "pairs", "--given", "nodes=6", "--json"])
    assert json.loads(result.output) == {"survival": pytest.approx(0.8)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_formula_says_what_it_takes(kind: str) -> None:
    """Missing inputs are named."""
    with pytest.raises(ConfigError, match="missing"):
        compute(kind, {"nonsense": "1"})


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("young", {"stall_s": "0", "mtti_s": "1h"}),
        ("young", {"stall_s": "nan", "mtti_s": "1h"}),
        ("young", {"stall_s": "1 parsec", "mtti_s": "1h"}),
        ("daly", {"stall_s": "-1", "mtti_s": "1h"}),
        ("pairs", {"nodes": "7"}),
        ("spares", {"nodes": "10", "down_ratio": "1.5"}),
        ("what-if", {"original_s": "1", "ideal_s": "2", "fixed_s": "1"}),
        ("bus", {"busbw_bytes_per_s": "480GB/s", "ranks": "1"}),
        ("daly-first-order", {"stall_s": "100", "mtti_s": "1", "restart_s": "0"}),
    ],
)
def test_bad_inputs_are_refused(kind: str, given: dict[str, str]) -> None:
    """Zero, negative, NaN, unknown units: an error that names it, never a number."""
    with pytest.raises(ConfigError):
        compute(kind, given)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("tree ranks=-4 size_bytes=1GB bytes_per_s=1GB/s", "ranks is a whole number, one or more, not -4"),
        ("ring ranks=2.7 size_bytes=1GB bytes_per_s=1GB/s", "ranks is a whole number"),
        ("counted interruptions=-4 days=1 gpus=8 gpus_per_node=8", "interruptions is a whole number"),
        ("save state_bytes=1GB duration_s=-5 interval_s=60", "duration_s must be a finite number, zero or more"),
        ("save state_bytes=1GB duration_s=0 interval_s=60", "out of range"),
        ("pairs nodes=10.9", "nodes is a whole number"),
        ("pairs nodes=10 lost=0.5", "lost is a whole number, zero or more"),
        ("levels mtti_s=1h share=0.5,0.9 stall_s=1,2 restart_s=1,2", "0.5,0.9 sum to 1.4"),
        ("levels mtti_s=1h share=-0.5,0.9 stall_s=1,2 restart_s=1,2", "share must lie between 0 and 1"),
        ("spares nodes=8 down_ratio=1.5", "down_ratio must lie between 0 and 1"),
        ("copy state_bytes=0 gpus=8 bytes_per_s=1GB/s", "state_bytes must be a finite number above zero"),
        ("verified verify_s=1 stall_s=1 fail_per_s=5min silent_per_s=0", "fail_per_s: '5min' is not a number"),
    ],
)
def test_a_formula_refuses_what_its_inputs_cannot_be(words: str, said: str) -> None:
    """Counts are whole, shares lie in 0-1 and sum to one at most, nothing is negative: refused by name."""
    kind, *given = words.split()
    with pytest.raises(ConfigError, match=re.escape(said)):
        compute(kind, dict(text.split("=", 1) for text in given))


def test_one_slow_rank_and_one_slow_link_by_name() -> None:
    """All wait in the all-reduce: 4 s of compute 1.5 times slower make 5 s steps 7; a ring runs at its slowest link."""
    assert compute("slow-rank", {"compute_s": "4s", "allreduce_s": "1s", "slow_factor": "1.5"}) == {
        "step_s": 7,
        "slowdown": pytest.approx(1.4),
        "lost": pytest.approx(2 / 7),
    }
    link = {"ranks": "2", "size_bytes": "1GB", "bytes_per_s": "10GB/s", "slow_bytes_per_s": "2GB/s"}
    assert compute("slow-link", link) == {"time_s": pytest.approx(0.5), "slowdown": pytest.approx(5)}
    with pytest.raises(ConfigError, match="slow_factor is a slowdown"):
        compute("slow-rank", {"compute_s": "4s", "allreduce_s": "1s", "slow_factor": "0.5"})
