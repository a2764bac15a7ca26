"""A simulated year: books that add up, the same year for the same seed, and the planner's own figures within reach."""

import json
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hinan.cli.main import app
from hinan.core.errors import ConfigError
from hinan.plan.decision.nearest import solve_settings
from hinan.plan.model.failures import FailureClass, Tier
from hinan.plan.model.scenario import RESTARTS
from hinan.plan.simulated.policy import Policy, TierPolicy, planned, read_policy
from hinan.plan.simulated.simulate import cluster_of, compare, job_of, to_json, to_text
from hinan.plan.simulated.world import YEAR_S, Cluster, Happening, schedule
from hinan.plan.simulated.year import Job, Year

WORDS = {"gpus": "16384", "params": "405B", "step": "5s"}
JOB = Job(16, compute_s=4.0, allreduce_s=1.0, parts=RESTARTS, init_extra_s=0.0, verify_every_s=100.0, total_restart_s=30.0)
POLICY = Policy(
    "hand",
    (TierPolicy(Tier.RAM, 100.0, 0.0, 0.0, 0.0), TierPolicy(Tier.SHARED, 1000.0, 0.0, 250.0, 0.0)),
    spares=2,
)


def happen(at_s: float, kind: str, **more: object) -> Happening:
    """One happening of node 3."""
    return Happening(**{"at_s": at_s, "kind": kind, "node": 3, "repair_s": 500.0, "returns": False, **more})  # type: ignore[arg-type]


def year(*happenings: Happening, policy: Policy = POLICY, horizon_s: float = 5000.0) -> dict[str, float]:
    """Books of a short year."""
    return Year(JOB, policy, horizon_s).run(happenings).seconds


def test_a_process_failure_goes_back_to_ram() -> None:
    """Killed 50 s after an evacuation: 50 s redone, 30 s restart, nothing else lost."""
    books = year(happen(1250.0, "process"))
    assert books["redo"] == pytest.approx(50)
    assert books["restart"] == pytest.approx(30)
    assert books["kept"] == pytest.approx(5000 - 80)


@pytest.mark.parametrize(("at_s", "redo_s"), [(1240.0, 1240.0), (1260.0, 260.0)])
def test_a_node_failure_needs_a_finished_drain(at_s: float, redo_s: float) -> None:
    """Without a peer a lost node goes back to the store: before the drain of 250 s ended, to the copy before it."""
    assert year(happen(at_s, "node"))["redo"] == pytest.approx(redo_s)


def test_a_drain_survives_its_process() -> None:
    """The bytes belong to nobody who trains: a process failure during a drain does not stop it."""
    books = year(happen(1100.0, "process"), happen(1300.0, "node"))
    assert books["redo"] == pytest.approx(0 + 170 + 100)


def test_a_drain_dies_with_its_host() -> None:
    """A node lost while the store's copy drains from its RAM: the peer has the state, the drain never ends."""
    peer = TierPolicy(Tier.PEER, 100.0, 0.0, 0.0, 0.0)
    policy = Policy("peer", (POLICY.tiers[0], peer, POLICY.tiers[1]), spares=2)
    books = year(happen(1150.0, "node"), happen(1500.0, "job"), policy=policy)
    assert books["redo"] == pytest.approx(50 + 1420)


def test_silent_corruption_goes_back_behind_its_beginning() -> None:
    """Seen 90 s late at 2290: the copy of 2000 is good. At 2050 that is not drained yet; at 2350 of a longer cadence it may
    be wrong, although it is drained."""
    assert year(happen(2290.0, "silent"))["redo"] == pytest.approx(290)
    rare = Year(replace(JOB, verify_every_s=1200.0), POLICY, 5000.0).run([happen(2350.0, "silent")])
    assert rare.seconds["redo"] == pytest.approx(1350)
    assert year(happen(2050.0, "silent"))["redo"] == pytest.approx(1050)


def test_without_spares_the_job_waits_for_repairs() -> None:
    """With spares the swap is at once; without, the job waits until the node is repaired."""
    waiting = year(happen(1300.0, "node"), policy=Policy("none", POLICY.tiers, spares=0))
    assert waiting["waiting for a node"] == pytest.approx(500)
    assert "waiting for a node" not in year(happen(1300.0, "node"))


def test_one_slow_node_slows_all_until_it_is_thrown_out() -> None:
    """Twice as slow in compute: steps of 9 s instead of 5 until the eviction, 600 s later."""
    books = year(happen(1000.0, "straggler", factor=2.0, lasts_s=3000.0))
    assert books["stragglers"] == pytest.approx(600 * 4 / 9)
    assert books["eviction"] == pytest.approx(30)
    patient = Policy("patient", POLICY.tiers, spares=2, evict_above=10.0)
    slow = year(happen(1000.0, "straggler", factor=2.0, lasts_s=3000.0), policy=patient)
    assert slow["stragglers"] == pytest.approx(3000 * 4 / 9)


def test_a_failure_during_a_restart_begins_it_again() -> None:
    """Ten seconds into a restart the next failure strikes: 10 + 30 seconds, not 60."""
    books = year(happen(1250.0, "process"), happen(1260.0, "process"))
    assert books["restart"] == pytest.approx(40)


def test_every_second_is_booked_once() -> None:
    """The headings add up to the horizon."""
    scenario, design = solve_settings(WORDS)
    world = schedule(cluster_of(scenario, horizon_s=YEAR_S / 4), 3)
    books = Year(job_of(scenario), planned(scenario, design), YEAR_S / 4).run(world)
    assert sum(books.seconds.values()) == pytest.approx(YEAR_S / 4, rel=1e-9)
    assert min(books.seconds.values()) >= 0


def test_same_seed_same_year_and_worlds_do_not_depend_on_policies() -> None:
    """Worlds are values of their seed; comparing a policy with itself gives no difference at all."""
    cluster = Cluster(512, {FailureClass.NODE: 1e-3})
    assert schedule(cluster, 5) == schedule(cluster, 5)
    assert schedule(cluster, 5) != schedule(cluster, 6)
    scenario, design = solve_settings(WORDS)
    policy = planned(scenario, design)
    rows = compare(scenario, [policy, policy], [1, 2], horizon_s=YEAR_S / 12)
    assert rows[1].difference == 0.0
    assert rows[1].difference_stderr == 0.0


def test_lemons_have_their_share() -> None:
    """The worst tenth of the nodes has about 40 % of the faults, as in the InfiniteHBD trace."""
    world = schedule(Cluster(4000, {FailureClass.NODE: 4e-2}, stragglers_per_node_day=0), 1)
    counts = [0] * 4000
    for each in world:
        counts[each.node] += 1
    assert sum(sorted(counts)[-400:]) / len(world) == pytest.approx(0.41, abs=0.06)


def test_the_year_agrees_with_the_exact_form() -> None:
    """With spares enough and no stragglers the year keeps what the planner said, within a few thousandths."""
    scenario, design = solve_settings(WORDS)
    rows = compare(scenario, [replace(planned(scenario, design), spares=10_000)], [1, 2])
    lost_otherwise = sum(
        books.seconds.get(name, 0.0) for books in rows[0].books for name in ("stragglers", "eviction", "maintenance")
    ) / (2 * YEAR_S)
    assert rows[0].ettr + lost_otherwise == pytest.approx(design.ettr, abs=0.002)


def test_a_worse_policy_is_seen(tmp_path: Path) -> None:
    """Five minutes by habit loses against the plan, by more than the paired difference's error."""
    habit = tmp_path / "habit.toml"
    habit.write_text('name = "habit"\nspares = 80\n[every]\nram = "5min"\npeer = "5min"\n', encoding="utf-8")
    plan = tmp_path / "plan.toml"
    plan.write_text("spares = 80\n", encoding="utf-8")
    words = ["simulate", "--gpus", "16384", "--years", "2", "--policy", str(plan), "--policy", str(habit), "--json"]
    result = CliRunner().invoke(app, words)
    rows = json.loads(result.output)
    assert [row["policy"] for row in rows] == ["plan", "habit"]
    assert rows[1]["difference"] < -5 * rows[1]["difference_stderr"] < 0
    assert rows[0]["failures"] == rows[1]["failures"]


@pytest.mark.parametrize(
    "text", ["spares = -1", "spares = true", "sparse = 3", '[every]\ntape = "1h"', '[every]\nram = "5"', "= 3",
             "evict_above = 0.5", "evict_above = nan", "evict_above = inf", 'evict_after = "0s"', '[every]\nram = "0s"',
             '[every]\nshared = "never"', '[every]\nram = "never"\npeer = "never"\nnvme = "never"\nshared = "never"']
)  # fmt: skip
def test_bad_policies_are_refused(tmp_path: Path, text: str) -> None:
    """Unknown keys, impossible values, broken TOML: named, not guessed."""
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="utf-8")
    scenario, design = solve_settings(WORDS)
    with pytest.raises(ConfigError, match=re.escape(str(path))):
        read_policy(path, planned(scenario, design))


@pytest.mark.parametrize("words", [["mtti=1h"], ["latency=5h", "rate=0.5"]])
def test_planned_spares_suffice_where_repairs_pile_up(words: list[str]) -> None:
    """A job that runs on spares fails on: a hundred nodes are out at a time, and hardly any of the year waits for one."""
    asked = {"gpus": "1024", "params": "70B", **dict(word.split("=") for word in words)}
    scenario, design = solve_settings(asked)
    policy = planned(scenario, design)
    rows = compare(scenario, [policy, replace(policy, name="few", spares=policy.spares // 2)], [1], horizon_s=YEAR_S / 4)
    planned_row, few = to_json(rows, horizon_s=YEAR_S / 4)
    assert planned_row["shares"].get("waiting for a node", 0.0) < 0.01
    assert planned_row["warnings"] == []
    assert few["shares"]["waiting for a node"] > 0.01
    (warning,) = few["warnings"]
    assert re.fullmatch(rf"few: [0-9.]+% of the year is waiting for a node, {few['spares']} spares are too few", warning)
    assert f"! {warning}" in to_text(rows, horizon_s=YEAR_S / 4)


def test_a_byte_order_mark_is_no_part_of_a_policy(tmp_path: Path) -> None:
    """As some editors write it."""
    path = tmp_path / "policy.toml"
    path.write_text("spares = 7", encoding="utf-8-sig")
    assert read_policy(path, planned(*solve_settings(WORDS))).spares == 7


def written(tmp_path: Path, text: str) -> Path:
    """A policy file."""
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('shared = "1s"', "70 s at least"),
        ('ram = "1ms"', "5 s at least"),
        ('ram = "12s"', "10 s is the nearest"),
        ('ram = "10min"\npeer = "1min"', "an interval of ram (600 s)"),
    ],
)
def test_impossible_intervals_are_refused(tmp_path: Path, text: str, said: str) -> None:
    """Below the drain, below or between steps, shorter than the tier below: named, with what would do."""
    scenario, design = solve_settings(WORDS)
    with pytest.raises(ConfigError, match=re.escape(said)):
        read_policy(written(tmp_path, f"[every]\n{text}"), planned(scenario, design))


def test_tiers_left_out_follow_the_nesting(tmp_path: Path) -> None:
    """RAM every 15 min: what the file does not say is saved no more often, in whole multiples, and shown so."""
    scenario, design = solve_settings(WORDS)
    base = planned(scenario, design)
    assert [tier.every_s for tier in base.tiers] == [10, 10, 70, 1260]
    policy = read_policy(written(tmp_path, '[every]\nram = "15min"'), base)
    assert [tier.every_s for tier in policy.tiers] == [900, 900, 900, 900]


def test_the_copy_out_of_hbm_is_paid_by_whatever_tier_is_first(tmp_path: Path) -> None:
    """Without RAM the peer's save pays the stall: nothing is won by leaving it out, in the policy or in the year."""
    scenario, design = solve_settings(WORDS)
    base = planned(scenario, design)
    without = read_policy(written(tmp_path, '[every]\nram = "never"'), base)
    assert base.stalls_s == pytest.approx([level.stall_s for level in design.levels])
    assert without.stalls_s[0] == pytest.approx(design.levels[0].stall_s + design.levels[1].stall_s)
    rows = compare(scenario, [base, without], [1], horizon_s=YEAR_S / 4)
    stalls = [row.books[0].seconds["stall"] for row in rows]
    assert stalls[1] == pytest.approx(stalls[0], rel=0.01)
    assert rows[1].difference <= 0


def test_an_impossible_job_is_refused_with_words_of_this_verb() -> None:
    """Exit code 1, the reason, and what to type instead; typed, there is a year."""
    words = ["simulate", "--gpus", "1024", "--set", "mtti=10s"]
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code == 1
    assert "impossible: a restart takes" in refused.output
    nearest = re.search(r"nearest that is possible: (--set mtti=\S+)", refused.output)
    assert nearest, refused.output
    answered = json.loads(CliRunner().invoke(app, [*words, "--json"]).output)
    assert answered["feasible"] is False
    assert f"--set mtti={answered['nearest']['mtti']}" == nearest[1]
    assert solve_settings({"gpus": "1024", "params": "405B", "mtti": answered["nearest"]["mtti"]})


def test_a_year_says_what_the_plan_of_it_says() -> None:
    """Peer copies that were asked for and find no room are named, in text once, in JSON by every policy."""
    words = ["simulate", "--gpus", "1024", "--params", "70B", "--set", "peers=3", "--set", "ram=60GB"]
    said = "--peers 3: no copy is kept on peers: 2 slots and 6 of peers need"
    assert CliRunner().invoke(app, words).output.count(f"! {said}") == 1
    (row,) = json.loads(CliRunner().invoke(app, [*words, "--json"]).output)
    assert any(warning.startswith(said) for warning in row["warnings"])
    planned_too = json.loads(
        CliRunner().invoke(app, ["plan", *words[1:5], "--peers", "3", "--ram", "60GB", "--step", "5s", "--json"]).output
    )
    assert set(row["warnings"]) - {w for w in row["warnings"] if w.startswith("planned: ")} <= set(planned_too["warnings"])


@pytest.mark.parametrize(
    ("word", "said"),
    [("zzqq=3", "no setting 'zzqq'; known: gpus"), ("mtii=1h", "no setting 'mtii'; did you mean mtti?"),
     ("trace=x.csv", "--trace is an option of `hinan plan` and no setting"), ("mtti=", "--set mtti= has no value")],
)  # fmt: skip
def test_what_is_no_setting_is_a_mistake_in_typing(word: str, said: str) -> None:
    """Not an impossible job: no year would do."""
    result = CliRunner().invoke(app, ["simulate", "--set", word])
    assert isinstance(result.exception, ConfigError)
    assert said in str(result.exception)


@pytest.mark.slow
def test_a_year_at_100_000_gpus_in_five_seconds() -> None:
    """One year, 100,000 GPUs, four tiers, some 17,000 failures: within 5 s of processor time."""
    scenario, design = solve_settings({"gpus": "100000", "params": "405B", "step": "5s"})
    start_s = time.process_time()
    rows = compare(scenario, [planned(scenario, design)], [1])
    assert time.process_time() - start_s <= 5
    assert sum(rows[0].books[0].failures.values()) > 15_000
