"""The contract of `hinan plan`: its JSON, its words, its sums, the worked examples of the documentation."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from hinan.cli.main import app
from hinan.core.errors import ConfigError
from hinan.plan.answer import answer
from hinan.plan.collectives import (
    hierarchical_allreduce_s,
    ring_with_slow_link_s,
    step_with_slow_rank_s,
    tree_allreduce_s,
)
from hinan.plan.failures import INFINITEHBD_COUNTS, LLAMA3, LLAMA3_COUNTS, TABLES, FailureClass, Tier, survives
from hinan.plan.machines import MACHINES
from hinan.plan.nearest import solve_settings
from hinan.plan.origin import Kind
from hinan.plan.terminal import table

LLAMA = ["--gpus", "16384", "--params", "405B", "--step", "5s"]


def ask(*words: str) -> dict[str, Any]:
    """`hinan plan ... --json`."""
    result = CliRunner().invoke(app, ["plan", *words, "--json"])
    assert result.exit_code == 0, result.output
    answer: dict[str, Any] = json.loads(result.output)
    return answer


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


def test_a_link_sold_in_bits_is_priced_in_bytes() -> None:
    """400 Gb/s of network are 50 GB/s, in --nic and in a formula; a rate without its /s is refused by name."""
    assert ask(*LLAMA, "--nic", "400Gb/s")["inputs"]["machine.nic_bytes_per_s"]["value"] == 50e9
    refused = CliRunner().invoke(app, ["plan", *LLAMA, "--d2h", "55GB"])
    assert refused.exit_code == 1
    assert "--d2h: '55GB' is not a rate" in refused.output
    ring = ["plan", "--formula", "ring", "--given", "ranks=2", "--given", "size_bytes=1GB", "--given", "bytes_per_s=8Gb/s"]
    assert CliRunner().invoke(app, ring).output == "time_s 1\n"


@pytest.mark.parametrize(
    ("kept", "away"),
    [
        ("--state-bytes 1TB", "--params 70B"),
        ("--state-bytes 1TB", "--keep 0.5"),
        ("--params 70B", "--keep 0.5"),
        ("--mtti 3h", "--rate 0.004"),
        ("--restart 5min", "--detect 30s"),
        ("--stall 1s", "--hidden 0.5"),
        ("--stall 1s", "--floor 5ms"),
        ("--drain 1min", "--store-bandwidth 100GB/s"),
        ("--tiers ram,shared", "--peers 2"),
    ],
)
def test_what_is_said_twice_is_refused_by_name(kept: str, away: str) -> None:
    """Two words for one figure: neither wins silently; both are named, and without the second there is an answer."""
    first, second = kept.split(), away.split()
    both = CliRunner().invoke(app, ["plan", *first, *second])
    assert both.exit_code == 1
    assert f"impossible: {first[0]} and {second[0]} say" in both.output or "no peer is among" in both.output
    assert f"nearest that is possible: (without {second[0]})" in both.output
    ask(*first)


def test_every_part_of_a_restart_can_be_given_and_is_shown() -> None:
    """Detect, reschedule, load, init, replay: what is given is what a lost node costs, class by class, and in the year."""
    parts = {"detect": "1s", "reschedule": "2s", "load": "4s", "init": "8s", "init-growth": "0s", "replay": "16s"}
    answer = ask(*LLAMA, *(word for name, text in parts.items() for word in (f"--{name}", text)))
    for each in answer["classes"]:
        assert each["restart_parts_s"] == {"detect": 1, "reschedule": 2, "load": 4, "init": 8, "replay": 16}
        assert each["rto_s"] == 31
    inputs = answer["inputs"]
    assert inputs["restart.parts"]["value"]["node"] == {"detect_s": 1, "reschedule_s": 2, "init_s": 8}
    assert {inputs[f"restart.{name}"]["kind"] for name in ("parts", "load_s", "replay_s", "init_per_1k_nodes_s")} == {
        "given"
    }
    ratio = answer["lost"]["replay"]["ratio"] / answer["lost"]["detect"]["ratio"]
    assert ratio == pytest.approx(16)
    words = [word for name, text in parts.items() for word in ("--set", f"{name}={text}")]
    (year,) = json.loads(CliRunner().invoke(app, ["simulate", "--gpus", "1024", *words, "--json"]).output)
    assert year["shares"]["replay"] == pytest.approx(2 * year["shares"]["init"])


def test_a_part_given_leaves_the_others_guesses() -> None:
    """--detect alone: the parts stay a guess that says which of them is known."""
    parts = ask(*LLAMA, "--detect", "7s")["inputs"]["restart.parts"]
    assert (parts["kind"], parts["source"]) == ("guessed", "reschedule_s, init_s; given: detect_s")
    assert {each["detect_s"] for each in parts["value"].values()} == {7}
    assert parts["value"]["job"]["reschedule_s"] == 600


def test_explain_lists_every_input_with_value_kind_and_source() -> None:
    """Given ones too, and demands; what a given figure replaces does not enter, and is not listed."""
    words = [*LLAMA, "--stall", "20ms", "--nic", "123GB/s", "--max-redo", "5min", "--restart", "2min"]
    text = CliRunner().invoke(app, ["plan", *words, "--explain"]).output
    listed = text[text.index("Inputs that are guesses") :]
    for name, each in ask(*words)["inputs"].items():
        (line,) = [line for line in listed.splitlines() if line.startswith(f"  {name} = ")]
        assert line.endswith(f"({each['kind']}: {each['source']})")
    for shown in (
        "job.stall_s = 20.0 ms (given",
        "machine.nic_bytes_per_s = 123 GB/s (given",
        "max_redo_s = 5 min 0 s (given",
    ):
        assert shown in listed
    assert "floor_s" not in listed
    assert "restart.parts" not in listed


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


@pytest.mark.parametrize(
    ("keep", "peers", "fits"),
    [("1", "1", False), ("1", "0", True), ("0.5", "1", True), ("0.5", "0", True), ("0.3333", "1", True)],
)
def test_eight_times_80_gb_into_2_tb(keep: str, peers: str, fits: bool) -> None:
    """The worked example: 8 x 80 GB of HBM into 2 TB of RAM at keep ratios 1, 1/2, 1/3, with and without a peer."""
    answer = ask("--gpus", "1024", "--keep", keep, "--peers", peers, "--ram", "2TB", "--step", "5s")
    way = next(mode for mode in answer["modes"] if mode["mode"] == ("ram + peer" if peers == "1" else "ram"))
    assert way["possible"] is fits
    assert (Tier.PEER in [tier["tier"] for tier in answer["tiers"]]) is (fits and peers == "1")


def test_a_peers_copies_take_room_also_without_a_ram_tier() -> None:
    """Two slots of a partner's image for each peer copy: counted, shown, and held against the budget."""
    words = ("--gpus", "1024", "--keep", "0.4", "--step", "5s", "--tiers", "peer,shared")
    answer = ask(*words)
    assert (answer["slots"], answer["ram"]["peer_slots"]) == (0, 2)
    assert answer["ram"]["needed_bytes"] == pytest.approx(2 * 0.4 * 8 * 80e9, rel=0.02)
    assert "mode ram, 0 slots and 2 for peers" in CliRunner().invoke(app, ["plan", *words]).output
    refused = CliRunner().invoke(app, ["plan", *words, "--ram", "300GB"])
    assert (refused.exit_code, "evacuation needs 520.6 GB of RAM per node" in refused.output) == (1, True)


def test_a_refusal_says_which_of_its_numbers_nobody_gave() -> None:
    """A restart against the MTTI: its parts are guesses, unless they or the whole are given."""
    words = ["plan", "--gpus", "1024", "--mtti", "1min"]
    refused = CliRunner().invoke(app, [*words, "--json"])
    reason = next(text for text in json.loads(refused.output)["impossible"] if text.startswith("a restart takes "))
    assert "(guessed: restart.init_per_1k_nodes_s, " in reason
    assert "restart.parts" in reason
    assert "job.floor_s" not in reason
    whole = CliRunner().invoke(app, [*words, "--restart", "2min"]).output
    assert "restart.parts" not in whole
    assert "a restart takes 120 s" in whole


def test_a_stall_limit_names_the_limit_that_it_meets() -> None:
    """The interval given, not a redo limit that nobody set; and shares small enough to see."""
    given = CliRunner().invoke(app, ["plan", *LLAMA, "--interval", "5min", "--max-stall", "0.00001%"])
    assert given.exit_code == 1
    assert (
        "the interval given (300 s) asks for saves that cost at least 0.00167% of the time, 0.00001% are allowed"
        in given.output
    )
    assert "redo limit" not in given.output
    redo = CliRunner().invoke(app, ["plan", *LLAMA, "--max-redo", "5min", "--max-stall", "0.00001%"])
    assert "impossible: the redo limit asks for saves" in redo.output


def test_small_ram_goes_through_the_ring() -> None:
    """No room for two images: the ring, with the stall of the drives; asked for, GDS spares the DRAM."""
    answer = ask("--gpus", "1024", "--keep", "0.9", "--ram", "700GB", "--step", "5s")
    assert answer["mode"] == "ring"
    ring, gds = (next(m for m in answer["modes"] if m["mode"] == mode) for mode in ("ring", "gds"))
    assert ring["limited_by"] == "storage bandwidth"
    assert ring["dram_traffic_ratio"] == 3
    assert gds["dram_traffic_ratio"] == 0
    assert "ring mode" in " ".join(answer["warnings"])


def modes(*words: str) -> dict[str, Any]:
    """The ways out of HBM by name."""
    return {mode["mode"]: mode for mode in ask("--gpus", "1024", "--step", "5s", *words)["modes"]}


def test_break_even_of_ring_and_ram_is_where_the_stalls_meet() -> None:
    """Up to the size said the ring stalls as RAM does; a tenth above it does not."""
    said = float(re.search(r"up to ([0-9.]+) GB a node", modes("--keep", "0.5")["ring"]["break_even"])[1])  # type: ignore[index]
    for factor, same in ((0.99, True), (1.1, False)):
        at = modes("--keep", f"{said * factor / 640:.6f}")
        assert (at["ring"]["stall_s"] <= at["ram"]["stall_s"] * (1 + 1e-9)) is same


def test_no_break_even_where_a_given_share_hides() -> None:
    """With --hidden what is left is proportional to the size: the ring is slower at 80 GB a node as at 320."""
    for keep in ("0.125", "0.5"):
        at = modes("--keep", keep, "--hidden", "0.5")
        times = float(re.search(r"at any size: .* takes ([0-9.]+) times", at["ring"]["break_even"])[1])  # type: ignore[index]
        assert (at["ring"]["stall_s"] - 0.005) / (at["ram"]["stall_s"] - 0.005) == pytest.approx(times, rel=0.01)


def test_a_given_stall_is_called_given() -> None:
    """No link limits a stall that was given, and no size breaks even."""
    at = modes("--keep", "0.5", "--stall", "5s")
    assert {mode["limited_by"] for mode in at.values()} == {"given"}
    assert at["ring"]["break_even"] == "the stall was given, the same for every way"
    shown = CliRunner().invoke(app, ["plan", "--gpus", "1024", "--keep", "0.5", "--stall", "5s", "--explain"]).output
    assert "stall 5.0 s (given)" in shown


@pytest.mark.parametrize("peers", ["1", "0"])
def test_what_is_said_to_fit_fits(peers: str) -> None:
    """Just below the shares named the design has the slots named, just above it does not."""
    words = ("--peers", peers, "--ram", "1.2TB")
    text = modes("--keep", "0.3", *words)["ram + peer" if peers == "1" else "ram"]["break_even"]
    named = re.findall(r"([0-9]+)% of HBM kept with ([0-9]) slots", text)
    assert [int(slots) for _, slots in named] == [3, 2]
    tiers = ("--tiers", "ram,peer,shared" if peers == "1" else "ram,shared")
    for share, slots in named:
        for above, fits in ((-1, True), (1, False)):
            keep = f"{(int(share) + above) / 100}"
            result = CliRunner().invoke(
                app, ["plan", "--gpus", "1024", "--keep", keep, *words, *tiers, "--mode", "ram", "--json"]
            )
            answer = json.loads(result.output)
            assert (answer["feasible"] and answer["slots"] >= int(slots)) is fits


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


def test_a_limit_that_gains_little_is_not_called_binding() -> None:
    """Corruption seen a day late costs a tenth of the time: detection binds, not the length of a step."""
    answer = ask("--gpus", "16384", "--params", "405B", "--step", "20s", "--latency", "1d")
    assert next(knob for knob in answer["knobs"] if knob["name"] == "step time")["hard"]
    assert answer["binding"]["name"] == "detection"


def test_the_terminal_fits_80_columns() -> None:
    """Table and curve in 80 columns; --explain has formula, sources and what would flip it."""
    result = CliRunner().invoke(app, ["plan", *LLAMA, "--explain"])
    table = result.output.split("ram: every")[0]
    assert max(len(line) for line in table.splitlines()) <= 80
    for word in ("Young: sqrt(2 x", "arXiv 2407.21783", "What would flip it", "guesses, to be replaced"):
        assert word in result.output


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


def test_help_names_every_setting() -> None:
    """Help and parser are one table."""
    from hinan.plan.settings import SETTINGS

    result = CliRunner().invoke(app, ["plan", "--help"], env={"COLUMNS": "200"})
    flags = set(re.findall(r"--[a-z0-9-]+", result.output))
    assert {f"--{name}" for name in SETTINGS} <= flags


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--given", "stall_s=1s"], "--formula"),
        (["--scale", "--html", "x.html"], "--html"),
        (["--html", "/nonexistent/x.html"], "/nonexistent/x.html cannot be written"),
        (["--seed", "-1"], "--seed"),
    ],
)
def test_switches_that_cannot_be_followed_are_refused(words: list[str], named: str) -> None:
    """What would be left unread, or cannot be written or begun with, is named; nothing is answered beside it."""
    result = CliRunner().invoke(app, ["plan", *words])
    assert isinstance(result.exception, ConfigError)
    assert named in str(result.exception)
    assert not result.output


def test_many_generations_keep_their_column() -> None:
    """606,062 generations, as months of latency ask for, stand apart from the drain, in 80 columns."""
    found = answer(*solve_settings({"drain": "5.6s", "stall": "1ms", "tiers": "shared"}))
    many = replace(found, tiers=(replace(found.tiers[0], generations=606_062, limited_by="storage bandwidth"),))
    (row,) = [line for line in table(many).splitlines() if line.startswith("shared ")]
    assert re.search(r"5\.6 s +606062  storage bandwidth$", row), row
    assert len(row) <= 80


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--usd-per-gpu-hour", "-3"], "'-3' is not a price above zero; write it like '4'"),
        (["--budget", "free"], "'free' is not a share or price above zero; write it like '5%' or '100000USD'"),
    ],
)
def test_a_price_is_explained_as_a_price(words: list[str], said: str) -> None:
    """The way to write it is that of the setting, not of a failure rate."""
    assert said in CliRunner().invoke(app, ["plan", "--gpus", "1024", *words]).output


def test_the_sweep_fits_80_columns_without_cutting_words() -> None:
    """Regimes and reasons go on in the next line, below themselves; nothing is lost."""
    words = ["plan", "--scale", "--params", "405B", "--step", "5s"]
    text = CliRunner().invoke(app, words).output
    points = json.loads(CliRunner().invoke(app, [*words, "--json"]).output)["points"]
    assert max(len(line) for line in text.splitlines()) <= 80
    whole = " ".join(text.split())
    assert points[0]["impossible"] in re.sub(r"\s+", " ", whole)
    assert whole.count("restart>save") == sum(point["restart_overtakes"] for point in points) > 0
