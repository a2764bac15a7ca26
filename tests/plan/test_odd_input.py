"""Input of the wrong type or beyond measure is refused in words; no traceback, no inf, no endless work."""

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hinan.cli.main import app
from hinan.core.errors import ConfigError
from hinan.plan.decision.nearest import solve_settings
from hinan.plan.intervals.formulas import spares_quantile
from hinan.plan.model.checks import Infeasible
from hinan.plan.model.failures import Tier
from hinan.plan.model.settings import Unreadable
from hinan.plan.observed.traces import read_trace
from hinan.plan.simulated.policy import Policy, TierPolicy, read_policy

EVENT = {"node_id": "n1", "event_time": 1.0, "event_type": "fault_start", "fault_type": {"Class": "GPU"}}


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ({"fault_type": {"Class": "GPU", "Desc": 7}}, "Desc of its fault_type is a text, not 7"),
        ({"fault_type": {"Class": ["GPU"]}}, 'Class of its fault_type is a text, not ["GPU"]'),
        ({"fault_type": "GPU"}, 'fault_type is an object like {"Class": "GPU"'),
        ({"event_time": "soon"}, 'event_time is a number of days, not "soon"'),
        ({"event_time": None}, "event_time is a number of days, not null"),
        ({"event_time": int("9" * 400)}, "event_time is a number of days, not 9999"),
    ],
)
def test_events_of_odd_types_are_refused_by_name(tmp_path: Path, odd: dict[str, Any], said: str) -> None:
    """The event and the field are named, in the words of the file."""
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([EVENT, {**EVENT, "event_time": 2.0, **odd}]))
    with pytest.raises(ConfigError) as refused:
        read_trace(path)
    assert "event 1" in str(refused.value)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [("[" * 100_000, "brackets in brackets"), ("[7]", "an object like"), ('[{"node_id": "a"}]', "no event_time")],
)
def test_what_is_no_list_of_events_is_refused(tmp_path: Path, text: str, said: str) -> None:
    """Also where the brackets have no end."""
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_trace(path)


def test_no_description_is_none(tmp_path: Path) -> None:
    """A null says nothing about a fault, and is read so."""
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([{**EVENT, "fault_type": {"Class": "GPU", "Desc": None}}, {**EVENT, "event_time": 2.0}]))
    assert [fault.failure for fault in read_trace(path).faults] == ["gpu", "gpu"]


@pytest.mark.parametrize(
    "words",
    ["peers=²", "rate=1e300", "rate=1e-300", "mtti=1e-300s", "usd-per-gpu-hour=1e308", "params=1e300", "nic=1e-280GB/s",
     "gpus=1e300", "step=1e-200s", "floor=1e300s", "drain=1e-100s", "budget=1e300USD", "state-bytes=1e40GB"],
)  # fmt: skip
def test_numbers_beyond_measure_are_refused(words: str) -> None:
    """With the word that is meant and an example that can be."""
    name, text = words.split("=")
    with pytest.raises(Unreadable, match=f"^--{name}: .*an example: --{name} "):
        solve_settings({name: text})


@pytest.mark.parametrize("rate", ["9" * 400, "1e400", "1e300", "-1", "null", "[]"])
def test_a_table_of_odd_rates_is_refused(tmp_path: Path, rate: str) -> None:
    """Before they become numbers of the question."""
    path = tmp_path / "table.json"
    path.write_text(f'{{"name": "own", "per_node_day": {{"gpu": {rate}}}}}')
    with pytest.raises(Unreadable, match="gpu"):
        solve_settings({"failures": str(path)})


def test_formulas_refuse_numbers_beyond_measure() -> None:
    """Where the answer would be inf."""
    result = CliRunner().invoke(app, ["plan", "--formula", "daly", "--given", "stall_s=1e308s", "--given", "mtti_s=1e308s"])
    assert result.exit_code != 0
    assert "inf" not in result.output


def test_spares_are_counted_in_no_time() -> None:
    """Half of 10^18 nodes out: an answer at once, and one function on both sides of where the counting changes."""
    begun_s = time.process_time()
    assert spares_quantile(mean_out=5e17) == pytest.approx(5e17, rel=1e-6)
    assert time.process_time() - begun_s < 0.1
    for quantile in (0.01, 0.5, 0.9, 0.99, 0.9999):
        summed, by_shape = (spares_quantile(mean_out=mean, quantile=quantile) for mean in (1e4, math.nextafter(1e4, 2e4)))
        assert abs(summed - by_shape) <= 1


def test_repairs_that_keep_more_nodes_out_than_there_are_are_refused() -> None:
    """With a repair time that can be."""
    asked = {"gpus": "16384", "params": "405B", "repair": "100000000d"}
    with pytest.raises(Infeasible, match="nodes would be out at a time, the job has 2,048") as refused:
        solve_settings(asked)
    solve_settings({**asked, **refused.value.nearest})


def test_the_way_that_comes_nearest_is_told() -> None:
    """An interval too short for every way: the refusal is of the way that misses by least, and what it offers is near."""
    with pytest.raises(Infeasible) as refused:
        solve_settings({"interval": "700ms"})
    assert "ram" in refused.value.impossible[0]
    nearest_s = float(refused.value.nearest["interval"][:-1])
    assert nearest_s < 0.8
    solve_settings({"interval": refused.value.nearest["interval"]})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["plan", "--formula", "young", "--given", "stall_s=1s", "--given", "mtti_s=1h", "--given", "stall_s=2s"],
            "stall_s is given",
        ),
        (["simulate", "--set", "mtti=1h", "--set", "mtti=2h"], "mtti is given"),
        (["simulate", "--set", "mtti"], "is not NAME=VALUE"),
        (
            ["simulate", "--gpus", "1024", "--params", "70B", "--set", "params=7B"],
            "params has an option of its own, --params 7B",
        ),
        (["simulate", "--set", "gpus=5"], "gpus has an option of its own, --gpus 5"),
    ],
)
def test_a_word_given_twice_is_refused(words: list[str], said: str) -> None:
    """None of the two wins silently."""
    result = CliRunner().invoke(app, words)
    assert result.exit_code != 0
    assert said in result.output + str(result.exception)


def test_one_is_one() -> None:
    """One GPU on one node."""
    assert "8 GPUs on 1 node (" in CliRunner().invoke(app, ["plan", "--gpus", "8", "--params", "1B"]).output


@pytest.mark.parametrize("spares", ["100000000000000000000", "-1", "2.5", "true"])
def test_spares_beyond_measure_are_refused(tmp_path: Path, spares: str) -> None:
    """A policy has so many nodes beside the job as somebody could own."""
    path = tmp_path / "policy.toml"
    path.write_text(f"spares = {spares}\n")
    with pytest.raises(ConfigError, match="spares is a whole number from 0 to 10,000,000"):
        read_policy(path, Policy("base", (TierPolicy(Tier.SHARED, 60, 1, 1, 1, 1),), spares=0))
