"""Where the copy lands: what fits into RAM, when the ring takes over, and where two ways break even."""

import json
import random
import re
from dataclasses import asdict
from typing import Any

import pytest
from drawn import TIER_SETS, drawn
from plan_command import LLAMA, ask
from typer.testing import CliRunner

from hinan.cli.main import app
from hinan.plan.decision.answer import answer
from hinan.plan.decision.demands import checked_design
from hinan.plan.decision.modes import compare_modes
from hinan.plan.decision.nearest import solve_settings
from hinan.plan.model.checks import Infeasible
from hinan.plan.model.failures import Tier
from hinan.plan.observed.from_settings import scenario_from


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
    """Two slots of a partner's image for each peer copy, and two for images on their way: counted, shown, and held
    against the budget."""
    words = ("--gpus", "1024", "--keep", "0.4", "--step", "5s", "--tiers", "peer,shared")
    answer = ask(*words)
    assert (answer["slots"], answer["ram"]["peer_slots"]) == (2, 2)
    assert answer["ram"]["needed_bytes"] == pytest.approx(4 * 0.4 * 8 * 80e9, rel=0.02)
    assert "mode ram, 2 slots and 2 for peers" in CliRunner().invoke(app, ["plan", *words]).output
    refused = CliRunner().invoke(app, ["plan", *words, "--ram", "300GB"])
    assert (refused.exit_code, "evacuation needs 1027 GB of RAM per node" in refused.output) == (1, True)


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_peer_copies_take_the_time_of_the_traffic_that_is_shown(copies: int) -> None:
    """Each copy is read out, received and proven once: three bytes of DRAM more per byte of the image, and no more."""
    answer = ask("--gpus", "1024", "--keep", "0.2", "--step", "5s", "--tiers", "ram,peer,shared", "--peers", str(copies))
    traffic = next(mode for mode in answer["modes"] if mode["mode"] == "ram + peer")["dram_traffic_ratio"]
    assert traffic == 3 + 3 * copies
    drain_s = next(tier for tier in answer["tiers"] if tier["tier"] == "peer")["drain_s"]
    assert drain_s == pytest.approx(traffic * 0.2 * 8 * 80e9 / 490e9)


@pytest.mark.parametrize("peers", [(), ("--peers", "0")])
def test_copies_that_are_not_made_slow_no_drives_down(peers: tuple[str, ...]) -> None:
    """Without a peer tier DRAM carries three bytes per byte: 9.6 s, the drives take 12.8 s."""
    words = ("--gpus", "1024", "--keep", "0.5", "--tiers", "ram,nvme,shared", "--dram", "100GB/s", "--step", "5s")
    nvme = next(tier for tier in ask(*words, *peers)["tiers"] if tier["tier"] == "nvme")
    assert (nvme["drain_s"], nvme["limited_by"]) == (pytest.approx(12.8), "storage bandwidth")


def test_small_ram_goes_through_the_ring() -> None:
    """No room for two images: the ring, with the stall of the drives; asked for, GDS spares the DRAM."""
    answer = ask("--gpus", "1024", "--keep", "0.9", "--ram", "700GB", "--step", "5s")
    assert answer["mode"] == "ring"
    ring, gds = (next(m for m in answer["modes"] if m["mode"] == mode) for mode in ("ring", "gds"))
    assert ring["limited_by"] == "storage bandwidth"
    assert ring["dram_traffic_ratio"] == 3
    assert gds["dram_traffic_ratio"] == 0
    assert "ring mode" in " ".join(answer["warnings"])


def test_more_ram_never_keeps_less() -> None:
    """Where two images fit, but no third for the drain, a ring that hides keeps more than RAM; and it is said."""
    words = ("--gpus", "65536", "--keep", "1", "--step", "60s")
    small, large = (ask(*words, "--ram", ram) for ram in ("1000GB", "1300GB"))
    assert (small["mode"], large["mode"]) == ("ring", "ring")
    assert large["ettr"]["exact"] >= small["ettr"]["exact"]
    kept = {mode["mode"]: mode["ettr"] for mode in large["modes"]}
    assert kept["ring"] == large["ettr"]["exact"] > kept["ram"] + 0.01
    assert f"ring mode keeps {kept['ring']:.4f}, images in RAM {kept['ram']:.4f}" in " ".join(large["warnings"])
    forced = ask(*words, "--ram", "1300GB", "--mode", "ram")
    assert forced["ettr"]["exact"] == kept["ram"]


@pytest.mark.parametrize(
    "words",
    [
        "gpus=49 params=486.9B preset=hgx-h200 step=31.1s mtti=5143s drain=614s",
        "gpus=184 params=524.1B preset=small-cloud step=40.5s drain=852s ram=10GB mode=ring",
        "gpus=65536 keep=1 step=20s ram=1300GB",
        "gpus=256 preset=hgx-h200 params=3.127B step=0.922s mtti=1671s",
        "gpus=4096 preset=hgx-h200 params=61.59B step=28.4s mtti=872.8s store-bandwidth=4.727GB/s",
        "gpus=256 preset=hgx-h200 params=369.8B mtti=8406s store-bandwidth=4.854GB/s stall=1.101s",
    ],
)
def test_fewer_tiers_never_keep_more(words: str) -> None:
    """What does not stay in RAM passes through it: counted, and no way to more than the RAM holds. Where that keeps more,
    by faster restarts of one kind or for want of room, the planner takes it by itself."""
    asked = dict(word.split("=") for word in words.split())
    fewer_tiers_keep_no_more(asked, [tiers for tiers in TIER_SETS if tiers != "shared" or "stall" not in asked])


def fewer_tiers_keep_no_more(asked: dict[str, str], choices: list[str]) -> int:
    """Asks with each choice of tiers; how many were answered. None keeps more (beyond the 10^-4 in favour of RAM)."""
    free = checked_design(scenario_from(asked))
    answered = 0
    for tiers in choices:
        try:
            few = checked_design(scenario_from({**asked, "tiers": tiers}))
        except Infeasible:
            continue
        answered += 1
        assert free.ram.fits and few.ram.fits
        assert few.ettr <= free.ettr + 1.01e-4, f"{asked}: {tiers}"
    return answered


@pytest.mark.parametrize("count", [3, pytest.param(80, marks=pytest.mark.slow)])
def test_fewer_tiers_never_keep_more_whatever_is_asked(count: int) -> None:
    """Random questions of large states in little RAM, jobs of restarts and slow drives among them. One is left out: asked
    of the store alone, a stall that is given is the whole save, and that is another question."""
    rng = random.Random(5)
    answered = 0
    while answered < count:
        asked = drawn(rng) | {"keep": f"{rng.uniform(0.1, 1):.3g}", "ram": f"{10 ** rng.uniform(2, 3.5):.4g}GB"}
        asked.pop("params")
        choices = [tiers for tiers in TIER_SETS if tiers != "shared" or "stall" not in asked]
        try:
            answered += fewer_tiers_keep_no_more(asked, choices) > 0
        except Infeasible as error:
            if "no whole image fits" in str(error):
                continue  # refused although a ring could: the RAM named was to hold it
            for tiers in choices:  # else what is refused is refused of any tiers
                with pytest.raises(Infeasible):
                    checked_design(scenario_from({**asked, "tiers": tiers}))


@pytest.mark.parametrize(
    ("words", "more"),
    [("gpus=256 preset=hgx-h200 keep=0.5 step=0.783s mtti=8857s store-bandwidth=15.47GB/s stall=2.115s restart=1.436s",
      "3TB"),
     ("gpus=256 preset=hgx-h200 params=369.8B mtti=8406s store-bandwidth=4.854GB/s stall=1.101s ram=400GB", "2TB")],
)  # fmt: skip
def test_a_given_stall_hides_no_drain(words: str, more: str) -> None:
    """What the copy out of HBM takes was given, what lies behind it was not: drains of all ways go on, slots are counted,
    and with less RAM no more is kept."""
    asked = dict(word.split("=") for word in words.split())
    small, large = (solve_settings({**asked, **other})[1] for other in ({}, {"ram": more}))
    assert small.ettr <= large.ettr
    for tiers in ("peer,shared", "nvme,shared"):
        scenario, design = solve_settings({**asked, "tiers": tiers, "ram": more, "mode": "ram"})
        level = design.levels[0]
        assert level.least_interval_s > 0
        assert min(cause.lag_s for cause in level.causes) == pytest.approx(level.least_interval_s)
        assert (design.ram.slots, design.ram.fits) == (2, True)
        assert level.stall_s == pytest.approx(float(asked["stall"][:-1]) + 0.02 * level.least_interval_s)
        assert answer(scenario, design).tiers[0].drain_s == pytest.approx(level.least_interval_s)
    _, ring = solve_settings({**asked, "tiers": "nvme,shared", "mode": "ring"})
    drives_s = ring.levels[0].least_interval_s + ring.levels[0].stall_s
    assert drives_s > 3 * float(asked["stall"][:-1])


def test_a_stall_given_for_the_store_alone_is_the_whole_save() -> None:
    """No image waits in RAM, nothing lags; with a drain said it is behind the stall as on any tier."""
    words = {"gpus": "256", "keep": "0.5", "tiers": "shared", "stall": "30s"}
    whole, behind = (solve_settings({**words, **other})[1] for other in ({}, {"drain": "100s"}))
    assert (whole.ram.slots, min(cause.lag_s for cause in whole.levels[0].causes)) == (0, 0)
    assert (behind.ram.slots, min(cause.lag_s for cause in behind.levels[0].causes)) == (2, 100)


def test_ram_is_compared_by_the_tiers_asked_for() -> None:
    """Without a RAM tier two slots are what it needs; said not to fit, it keeps nothing."""
    words = ("--gpus", "49", "--params", "486.9B", "--preset", "hgx-h200", "--step", "31.1s", "--drain", "614s")
    ways = {mode["mode"]: mode for mode in ask(*words, "--tiers", "nvme,shared")["modes"]}
    assert (ways["ram"]["possible"], ways["ram"]["ettr"]) == (False, None)
    waits = {mode["mode"]: mode for mode in ask(*words[:-2], "--stall", "30s", "--tiers", "shared")["modes"]}
    assert (waits["ram"]["possible"], waits["ram"]["break_even"]) == (
        True, "no whole image waits in RAM: training waits for the save")  # fmt: skip


def test_ram_is_taken_where_drives_keep_no_more_to_speak_of() -> None:
    """Without a peer RAM and ring keep the same to five digits: the optimizer does not wait for drives for that."""
    answer = ask(*LLAMA, "--peers", "0")
    kept = {mode["mode"]: mode["ettr"] for mode in answer["modes"]}
    assert answer["mode"] == "ram"
    assert kept["ring"] == pytest.approx(kept["ram"], abs=1e-4)


@pytest.mark.parametrize("mode", ["ring", "gds"])
def test_a_mode_asked_for_is_not_excused(mode: str) -> None:
    """RAM had room enough: neither the warning nor a tier left out says otherwise."""
    answer = ask(*LLAMA, "--mode", mode)
    assert f"{mode} mode, as asked" in " ".join(answer["warnings"])
    assert answer["unused_tiers"]["ram"] == f"{mode} mode keeps no image in RAM"
    assert "no room" not in json.dumps([answer["warnings"], answer["unused_tiers"]])


def modes(*words: str) -> dict[str, Any]:
    """The ways out of HBM by name, as `--json` has them."""
    scenario, _ = solve_settings({"gpus": "1024", "step": "5s", **settings_of(words)})
    return {mode.mode: asdict(mode) for mode in compare_modes(scenario)}


def settings_of(words: tuple[str, ...]) -> dict[str, str]:
    """Settings from the words of a command line."""
    return {name.removeprefix("--"): text for name, text in zip(words[::2], words[1::2], strict=True)}


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
            asked = {"gpus": "1024", "mode": "ram", **settings_of(words + tiers), "keep": keep}
            try:
                found = checked_design(scenario_from(asked)).ram.slots
            except Infeasible:
                found = 0
            assert (found >= int(slots)) is fits
