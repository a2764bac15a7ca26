"""Every demand filters what is chosen from: a design that keeps it is found if any way to build it does."""

import random
from typing import Any

import pytest
from drawn import RACKY, TIER_SETS, drawn
from test_report_model import on_the_page

from hinan.plan.decision.binding import knobs
from hinan.plan.decision.demands import checked_design
from hinan.plan.decision.design import Design, restarts_s
from hinan.plan.decision.nearest import solve_settings
from hinan.plan.model.checks import Infeasible
from hinan.plan.model.failures import Tier
from hinan.plan.observed.from_settings import scenario_from

STORE_READS_FAST = "gpus=64 keep=1 ram=4TB store-bandwidth=5GB/s store-read-bandwidth=2000GB/s mtti=6h step=5s"
RACKS = (
    f"preset=small-cloud keep=1 gpus=64 step=5s failures={RACKY} mtti=6h store-bandwidth=5GB/s store-read-bandwidth=400GB/s"
)


def words_of(words: str) -> dict[str, str]:
    """Settings from words."""
    return dict(word.split("=", 1) for word in words.split())


def longest_restart_s(asked: dict[str, str]) -> float | None:
    """What a design gives back in at worst; None: there is none."""
    try:
        scenario = scenario_from(asked)
        return max(restarts_s(scenario, checked_design(scenario).variant.tiers).values())
    except Infeasible:
        return None


@pytest.mark.parametrize(
    ("words", "limit_s", "tiers"),
    [(STORE_READS_FAST, 680, "ram,peer,shared"), (RACKS, 680, "ram,shared")],
)
def test_a_restart_limit_that_some_way_keeps_is_kept(words: str, limit_s: float, tiers: str) -> None:
    """The best of all ways does not; fewer tiers do, and are taken, by the planner and by its page."""
    asked = words_of(words) | {"max-rto": f"{limit_s}s"}
    scenario, design = solve_settings(asked)
    assert max(restarts_s(scenario, design.variant.tiers).values()) <= limit_s
    assert design.ettr >= solve_settings({**asked, "tiers": tiers})[1].ettr - 1e-4
    ((taus_s, ettr, impossible),) = on_the_page(f"{words} max-rto={limit_s}s", [{}])
    assert (taus_s, ettr, impossible) == (pytest.approx(design.pattern.intervals_s()), pytest.approx(design.ettr), None)


@pytest.mark.parametrize(("words", "limit_s"), [(STORE_READS_FAST, 600), (RACKS, 665)])
def test_the_nearest_restart_limit_is_the_least_of_all_ways(words: str, limit_s: float) -> None:
    """No choice of tiers is back sooner than what is offered, up to its rounding."""
    asked = words_of(words) | {"max-rto": f"{limit_s}s"}
    with pytest.raises(Infeasible) as refused:
        solve_settings(asked)
    offered_s = float(refused.value.nearest["max-rto"][:-1])
    free = words_of(words)
    least_s = min(filter(None, (longest_restart_s({**free, "tiers": tiers}) for tiers in TIER_SETS)))
    assert least_s <= offered_s <= least_s * 1.001


@pytest.mark.parametrize("count", [2, pytest.param(80, marks=pytest.mark.slow)])
def test_a_restart_limit_against_all_choices_of_tiers(count: int) -> None:
    """Random questions with a limit between what the choices of tiers take: answered if and only if one of them is, and no
    choice keeps more than the free one (beyond the ten-thousandth in favour of RAM)."""
    rng = random.Random(7)
    compared = 0
    while compared < count:
        asked = drawn(rng) | {"store-read-bandwidth": f"{10 ** rng.uniform(0, 3.3):.4g}GB/s"}
        for name in ("restart", "stall"):
            asked.pop(name, None)
        scenario = scenario_from(asked)
        sets = [[tier for tier in Tier if tier in tiers.split(",")] for tiers in TIER_SETS]
        worst_s = sorted({max(restarts_s(scenario, tiers).values()) for tiers in sets})
        if len(worst_s) < 2 or not isinstance(kept_or_refused(asked), Design):
            continue
        compared += 1
        limit_s = rng.choice([worst_s[0] * 0.99, worst_s[0] * 1.001, (worst_s[0] + worst_s[1]) / 2])
        limited = {**asked, "max-rto": f"{limit_s:.6f}s"}
        few = {tiers: kept_or_refused({**limited, "tiers": tiers}) for tiers in TIER_SETS}
        designs = [each.ettr for each in few.values() if isinstance(each, Design)]
        free = kept_or_refused(limited)
        assert isinstance(free, Design) is bool(designs), limited
        if isinstance(free, Design):
            assert free.ettr >= max(designs) - 1.01e-4, limited


def kept_or_refused(asked: dict[str, str]) -> Any:
    """The design, or the refusal."""
    try:
        return checked_design(scenario_from(asked))
    except Infeasible as error:
        return error


def test_a_budget_that_drives_keep_is_not_refused_for_ram() -> None:
    """The ring keeps a little more than RAM, too little to be taken for it; under a budget between the two it is taken."""
    words = "gpus=16384 params=405B step=5s peers=0"
    assert solve_settings(words_of(words))[1].variant.mode == "ram"
    lost = [1 - solve_settings(words_of(f"{words} mode={mode}"))[1].ettr for mode in ("ring", "ram")]
    _, design = solve_settings(words_of(f"{words} budget={(lost[0] + lost[1]) * 50:.6f}%"))
    assert 1 - design.ettr == pytest.approx(lost[0])
    with pytest.raises(Infeasible) as refused:
        solve_settings(words_of(f"{words} budget=1%"))
    assert float(refused.value.nearest["budget"][:-1]) / 100 == pytest.approx(lost[0], rel=2e-3)


def test_a_longer_restart_allowed_buys_what_it_is_said_to() -> None:
    """A tenth more opens a way that keeps more: said so, and true."""
    asked = words_of(STORE_READS_FAST) | {"max-rto": "680s"}
    scenario, design = solve_settings(asked)
    said = next(knob for knob in knobs(scenario, design) if knob.name == "max-rto")
    wider = solve_settings({**asked, "max-rto": "748s"})[1]
    assert said.gain_ratio == pytest.approx(wider.ettr - design.ettr, rel=1e-3)
    assert (said.hard, said.gain_ratio > 1e-4) == (True, True)
