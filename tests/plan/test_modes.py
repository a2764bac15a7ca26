"""Where the copy lands: what fits into RAM, when the ring takes over, and where two ways break even."""

import json
import random
import re
from typing import Any

import pytest
from drawn import drawn
from plan_command import LLAMA, ask
from typer.testing import CliRunner

from hinan.cli.main import app
from hinan.plan.checks import Infeasible
from hinan.plan.costs import load_s
from hinan.plan.failures import Tier
from hinan.plan.nearest import solve_settings


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
    ],
)
@pytest.mark.parametrize("tiers", ["nvme,shared", "shared"])
def test_fewer_tiers_never_keep_more(words: str, tiers: str) -> None:
    """What does not stay in RAM passes through it: counted, and no way to more than the RAM holds. Where RAM has no room
    for an image to stay, the planner passes it by itself."""
    asked = dict(word.split("=") for word in words.split())
    free, few = (solve_settings({**asked, **other})[1] for other in ({}, {"tiers": tiers}))
    assert (free.ram.fits, few.ram.fits) == (True, True)
    assert few.variant.mode != "ram" or few.ram.slots == 2
    assert few.ettr <= free.ettr + 1.01e-4


@pytest.mark.slow
def test_fewer_tiers_never_keep_more_at_length() -> None:
    """Random questions of large states in little RAM. A given stall is left out, for it is another save on other tiers, and
    so is a job of restarts: struck in a restart, that of the slower tier begins anew; one tier for all looks better.
    Where drives load slower than the store, one tier less is better."""
    rng = random.Random(5)
    answered = 0
    while answered < 200:
        asked = drawn(rng) | {"keep": f"{rng.uniform(0.1, 1):.3g}", "ram": f"{10 ** rng.uniform(2, 3.5):.4g}GB"}
        for name in ("params", "stall"):
            asked.pop(name, None)
        tiers = rng.choice(["shared", "nvme,shared", "peer,shared", "peer,nvme,shared", "ram,shared"])
        try:
            (scenario, free), (_, few) = (solve_settings({**asked, **other}) for other in ({}, {"tiers": tiers}))
        except Infeasible:
            continue
        if free.ettr < 0.7 or load_s(scenario, Tier.NVME) > load_s(scenario, Tier.SHARED):
            continue
        answered += 1
        assert free.ram.fits and few.ram.fits
        assert few.ettr <= free.ettr + 1.01e-4, f"{asked}: {tiers}"


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
