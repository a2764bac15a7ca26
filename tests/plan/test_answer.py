"""The contract of `hinan plan`: its JSON, its sums, what binds, the tables and worked examples of the documentation."""

import json
import re
from typing import Any

import pytest
from plan_command import LLAMA, ask, said
from typer.testing import CliRunner

from hinan.cli.main import app
from hinan.plan.decision.answer import answer
from hinan.plan.decision.nearest import solve_settings
from hinan.plan.model.collectives import (
    hierarchical_allreduce_s,
    ring_with_slow_link_s,
    step_with_slow_rank_s,
    tree_allreduce_s,
)
from hinan.plan.model.failures import INFINITEHBD_COUNTS, LLAMA3, LLAMA3_COUNTS, TABLES, FailureClass, Tier, survives
from hinan.plan.model.machines import MACHINES
from hinan.plan.model.origin import Kind


def test_the_json_has_its_keys() -> None:
    """tiers, ettr by three witnesses, binding, lost by cause, warnings; the parts of the loss add up."""
    answer = ask(*LLAMA)
    assert [tier["tier"] for tier in answer["tiers"]] == ["ram", "peer", "nvme", "shared"]
    assert all({"tier", "interval_s", "interval_steps", "stall_s"} <= set(tier) for tier in answer["tiers"])
    assert all(tier["interval_s"] == 5 * tier["interval_steps"] for tier in answer["tiers"])
    ettr = answer["ettr"]
    assert ettr["exact"] == pytest.approx(ettr["closed_form"], abs=1e-3)
    assert ettr["monte_carlo_low"] - 1e-4 <= ettr["exact"] <= ettr["monte_carlo_high"] + 1e-4
    for split in ("lost", "lost_by_class"):
        assert sum(part["ratio"] for part in answer[split].values()) == pytest.approx(1 - ettr["exact"])
    hours = sum(part["gpu_hours_per_day"] for part in answer["lost"].values())
    assert hours == pytest.approx((1 - ettr["exact"]) * 16384 * 24)
    assert answer["binding"]["gain_ratio"] > 0
    assert answer["verify_every_s"] > 0
    assert answer["spares"] > 0
    assert {each["kind"] for each in answer["inputs"].values()} <= {str(kind) for kind in Kind}


def test_one_level_is_the_published_optimum() -> None:
    """Daly's three cases asked through the command: 116.69, 56.714 and 9.167 minutes."""
    for mtti, minutes in (("24h", 116.69), ("6h", 56.714), ("15min", 9.167)):
        answer = ask("--mtti", mtti, "--stall", "5min", "--restart", "10min", "--tiers", "shared")
        assert answer["tiers"][0]["interval_s"] / 60 == pytest.approx(minutes, abs=0.01)
    assert answer["ettr"]["closed_form"] is None
    assert "refused" in " ".join(answer["warnings"])


def test_a_given_interval_is_judged() -> None:
    """Five minutes by habit: its price against the optimum, and where it would be right."""
    answer = ask(*LLAMA, "--interval", "5min")
    judged = answer["judged"]
    assert answer["tiers"][0]["interval_s"] == 300
    assert judged["best_interval_s"] == 10
    assert judged["best_ettr"] - judged["ettr"] > 0.01
    assert "45000 s^2" in judged["right_where"]


def test_limited_by_means_one_thing() -> None:
    """What keeps a tier's interval or stall, in the table; the pace of a copy out of HBM has a word of its own."""
    text = said(*LLAMA, "--explain")
    assert text.count("limited by") == 1
    assert "(paced by pcie)" in text


def test_an_interval_as_good_as_the_recommended_one_is_told_so() -> None:
    """Beside a hair that a way with images in RAM may give away: the other interval named is that of the question without
    the given one, and nothing is said to be better that keeps less."""
    words = ["--gpus", "1912", "--step", "2.565s", "--keep", "0.575", "--preset", "mi300x", "--d2h", "2.556GB/s", "--drain",
             "1297s", "--nodes-return", "50%", "--hidden", "0%", "--restart", "0.1724s"]  # fmt: skip
    judged, free = ask(*words, "--interval", "2867.67s")["judged"], ask(*words)
    assert judged["best_interval_s"] == free["tiers"][0]["interval_s"]
    assert judged["best_ettr"] == free["ettr"]["exact"] < judged["ettr"]
    text = said(*words, "--interval", "2867.67s", "--explain")
    assert re.search(r"given interval: keeps 0\.\d+, no less than .* recommended without", text)
    assert re.search(r"keeps 0\.\d+, no less than .*, which is recommended without it\.", text)
    assert "the best" not in text
    assert "habit" not in text


def test_five_minutes_where_it_is_right() -> None:
    """stall x MTTI = 45,000 s^2 of the failures answered: there five minutes is the optimum."""
    answer = ask("--mtti", "45000s", "--stall", "1s", "--restart", "1min", "--tiers", "shared")
    assert answer["tiers"][0]["interval_s"] == pytest.approx(300, rel=0.005)


def test_demands_are_kept() -> None:
    """Redo and stall limits hold for every class but silent corruption, which no interval answers."""
    answer = ask(*LLAMA, "--max-redo", "5min", "--max-stall", "2%")
    worst = [each["rpo_worst_s"] for each in answer["classes"] if each["failure"] != "silent"]
    assert max(worst) <= 300
    assert sum(tier["stall_s"] / tier["interval_s"] for tier in answer["tiers"]) <= 0.02


def test_the_drain_binds_where_it_should() -> None:
    """A drain longer than the optimum is the binding constraint, and the interval sits on it."""
    answer = ask("--gpus", "16384", "--tiers", "shared", "--stall", "1s", "--drain", "30min", "--restart", "1min")
    assert answer["binding"]["name"] == "drain"
    assert answer["tiers"][0]["interval_s"] == pytest.approx(1800)


@pytest.mark.parametrize(
    "words",
    [["--gpus", "16384", "--params", "405B"], ["--gpus", "1024", "--params", "70B", "--step", "5s"]],
)
def test_verification_binds_where_it_is_dear(words: list[str]) -> None:
    """A verification of a day, and as much redo for its cadence: that is what to make cheaper, and what it buys is true."""
    answer = ask(*words, "--verify", "1d")
    assert answer["lost"]["verify"]["ratio"] > 0.3 * sum(part["ratio"] for part in answer["lost"].values())
    assert answer["binding"]["name"] == "verification"
    cheaper = ask(*words, "--verify", "21.6h")
    gain = cheaper["ettr"]["exact"] - answer["ettr"]["exact"]
    assert answer["binding"]["gain_ratio"] == pytest.approx(gain, rel=0.01)


@pytest.mark.parametrize(
    ("words", "limit", "wider"),
    [
        (["--gpus", "4096", "--params", "70B", "--max-redo", "60s", "--stall", "2s"], "max-redo", "66s"),
        (["--gpus", "16384", "--params", "405B", "--max-stall", "0.1%", "--stall", "0.5s"], "max-stall", "0.11%"),
    ],
)
def test_a_limit_of_the_designer_binds_where_it_does(words: list[str], limit: str, wider: str) -> None:
    """A tenth more of the limit buys more than any machine part, and what it buys is true; not given, it is no knob."""
    answer = ask(*words)
    assert answer["binding"]["name"] == limit
    at = words.index(f"--{limit}") + 1
    gain = ask(*words[:at], wider, *words[at + 1 :])["ettr"]["exact"] - answer["ettr"]["exact"]
    assert answer["binding"]["gain_ratio"] == pytest.approx(gain, rel=0.01)
    others = {knob["name"] for knob in answer["knobs"]} & {"max-redo", "max-stall"}
    assert others == {limit}


def test_a_limit_that_gains_little_is_not_called_binding() -> None:
    """Corruption seen a day late costs a tenth of the time: detection binds, not the length of a step."""
    answer = ask("--gpus", "16384", "--params", "405B", "--step", "20s", "--latency", "1d")
    assert next(knob for knob in answer["knobs"] if knob["name"] == "step time")["hard"]
    assert answer["binding"]["name"] == "detection"


def test_counts_are_the_published_ones() -> None:
    """419 interruptions of Llama 3 and 584 faults of InfiniteHBD, class by class."""
    assert sum(count for _, count in LLAMA3_COUNTS.values()) == 419
    assert sum(count for _, count in INFINITEHBD_COUNTS.values()) == 584
    assert LLAMA3.total_per_node_day == pytest.approx(3.789e-3, abs=5e-7)
    assert all(table.source for table in TABLES.values())


def test_every_number_of_a_preset_has_a_source() -> None:
    """No field of any machine without an origin, and none with an empty one."""
    for machine in MACHINES.values():
        own = {name for name in vars(machine) if name not in ("name", "origins")}
        assert own == set(machine.origins)
        assert all(origin.source for origin in machine.origins.values())


def test_survival() -> None:
    """The table: own RAM survives its process, a peer its partner's node, NVMe a power cut if the node returns."""
    assert Tier.RAM in survives(FailureClass.PROCESS, nodes_return=False)
    assert survives(FailureClass.NODE, nodes_return=True) == {Tier.PEER, Tier.SHARED}
    assert Tier.NVME in survives(FailureClass.RACK, nodes_return=True)
    assert survives(FailureClass.RACK, nodes_return=False) == {Tier.SHARED}
    assert survives(FailureClass.SILENT, nodes_return=True) == {Tier.SHARED}


def test_collectives() -> None:
    """Trees win on latency, hierarchies on bandwidth; one slow rank or link slows all."""
    ring = ring_with_slow_link_s(ranks=8, size_bytes=1e9, bytes_per_s=100e9, slow_bytes_per_s=10e9)
    assert ring == pytest.approx(0.175)
    assert tree_allreduce_s(ranks=1024, size_bytes=1e3, bytes_per_s=1e11, latency_s=1e-5) == pytest.approx(2e-4, rel=0.01)
    two = hierarchical_allreduce_s(
        nodes=2, ranks_per_node=4, size_bytes=4e9, inside_bytes_per_s=100e9, outside_bytes_per_s=10e9
    )
    assert two == pytest.approx(1.5 * 0.04 + 0.1)
    assert step_with_slow_rank_s(compute_s=4, allreduce_s=1, slow_factor=1.5) == pytest.approx(7)


def test_scale_names_its_regimes() -> None:
    """Constant stall: N^-1/2. Fixed model, no floor: N^-1. Model grown with N on a fixed store: constant."""

    def regimes(*words: str) -> tuple[list[str], dict[str, Any]]:
        result = CliRunner().invoke(app, ["plan", "--scale", *words, "--json"])
        sweep = json.loads(result.output)
        return [p["regime"] for p in sweep["points"] if not p["impossible"]], sweep["meetings"]

    constant_stall, _ = regimes("--stall", "30s", "--tiers", "shared", "--restart", "1min")
    assert set(constant_stall) == {"N^-1/2"}
    fixed_model, meets = regimes("--params", "1B", "--hidden", "0", "--floor", "0.001ms", "--tiers", "ram,shared")
    assert fixed_model.count("N^-1") >= 5
    assert meets["restart_overtakes_saving"] is not None
    grown, meets = regimes("--keep", "0.3", "--tiers", "shared")
    assert grown[:4] == ["constant"] * 4
    assert meets["impossible_from"] is not None


def test_a_rough_split_of_the_loss_says_that_it_is_one() -> None:
    """--explain says how it is made; where much is lost, the answer says that a row may be off."""
    rough = ask("--gpus", "1024", "--mtti", "10min", "--stall", "20s", "--tiers", "shared", "--restart", "2min")
    assert rough["ettr"]["exact"] < 0.7
    assert "a row may be 2 points off" in " ".join(rough["warnings"])
    assert "points off" not in " ".join(ask(*LLAMA)["warnings"])
    text = said(*LLAMA, "--explain")
    assert "split in first-order proportions" in text


@pytest.mark.parametrize(
    ("words", "why"),
    [("gpus=1024 params=70B peers=3 ram=60GB step=5s", "2 slots and 6 of peers need"),
     ("gpus=64 params=7B mode=ring peers=1 step=5s", "ring"),
     ("gpus=1024 params=70B peers=1 step=5s mtti=1h max-stall=0.1%", None),
     ("gpus=1024 params=70B ram=60GB step=5s", None)],
)  # fmt: skip
def test_peers_that_were_asked_for_and_are_not_there_are_named(words: str, why: str | None) -> None:
    """With what they would need; nothing is said where they are there or nobody asked."""
    scenario, design = solve_settings(dict(word.split("=") for word in words.split()))
    said = [warning for warning in answer(scenario, design).warnings if "--peers" in warning]
    assert not (said and design.variant.peers)
    assert len(said) == (why is not None)
    assert why is None or why in said[0]


@pytest.mark.parametrize(("more", "said"), [("max-redo=5min", 1), ("", 0), ("max-redo=3h", 0)])
def test_a_redo_limit_says_that_silent_corruption_costs_more(more: str, said: int) -> None:
    """It is noticed late at any interval; where even it keeps the limit, nothing is said."""
    words = f"gpus=1024 params=70B step=5s {more}".split()
    found = answer(*solve_settings(dict(word.split("=") for word in words)))
    assert sum("--max-redo does not hold silent corruption" in warning for warning in found.warnings) == said


@pytest.mark.parametrize(
    ("words", "said"),
    [("gpus=65536 params=1T step=5s", "images only pass through RAM"),
     ("gpus=100000 params=1T mtti=10min", "is shorter than the step of 5 s that was guessed")],
)  # fmt: skip
def test_what_may_surprise_is_said(words: str, said: str) -> None:
    """A RAM tier left out where the model favours that, and saves closer than a step that nobody gave; not else."""
    asked = dict(word.split("=") for word in words.split())
    assert any(said in warning for warning in answer(*solve_settings(asked)).warnings)
    assert not any(said in warning for warning in answer(*solve_settings({"gpus": "1024", "params": "70B"})).warnings)


@pytest.mark.parametrize(
    ("words", "drain"),
    [(("--tiers", "shared"), "6 min 50 s (storage bandwidth)"), (("--tiers", "peer,shared"), "3.9 s (numa)"),
     (("--tiers", "nvme,shared", "--stall", "1s"), "12.8 s (storage bandwidth)")],
)  # fmt: skip
def test_a_drain_of_the_fastest_tier_is_explained_by_its_own_link(words: tuple[str, ...], drain: str) -> None:
    """The link that sets the stall is another one."""
    assert f"a drain takes {drain}, saves" in said("--gpus", "1024", *words, "--explain")


@pytest.mark.parametrize(("word", "value"), [("--restart", "1min"), ("--load", "10s")])
def test_inputs_that_a_given_time_replaces_are_not_named(word: str, value: str) -> None:
    """With the restart or its loading given, no bandwidth to load with enters, and none is called a guess."""
    bandwidths = {"store.read_bytes_per_s", "machine.nvme_read_bytes_per_s"}
    words = ("--gpus", "1024", "--params", "70B")
    assert bandwidths <= ask(*words)["inputs"].keys()
    assert not bandwidths & ask(*words, word, value)["inputs"].keys()
