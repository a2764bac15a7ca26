"""The search misses nothing: against all patterns there are, against given intervals, and with more of a good thing."""

import random
from dataclasses import replace

import numpy as np
import pytest
from drawn import drawn

from hinan.plan.decision.nearest import solve_settings
from hinan.plan.intervals.exact import exact_ettr, exact_ettrs
from hinan.plan.intervals.joint import solve
from hinan.plan.intervals.levels import Cause, Level
from hinan.plan.intervals.space import Bounds, Rows
from hinan.plan.model.checks import Infeasible

STEPS, MULTIPLES = 40, 40


def drawn_levels(rng: random.Random, demand: str) -> tuple[list[Level], Bounds]:
    """Two to four tiers, a step, and a redo limit, a stall budget or both, near what can hold."""

    def log(low: float, high: float) -> float:
        return float(10 ** rng.uniform(low, high))

    rate, lag_s, step_s, levels = log(-5, -2.5), 0.0, log(0, 1.5), []
    for index in range(rng.choice([2, 3, 3, 4])):
        lag_s = max(lag_s, log(-1, 2.3)) if index else 0.0
        cause = Cause("x", rate * log(-1.5, 0), log(0.5, 2.5), lag_s)
        levels.append(Level(f"l{index}", log(-2.5, 1), (cause,), least_interval_s=lag_s))
    if demand != "stall":
        limit_s = 2 * lag_s + step_s * rng.uniform(1, 30)
        levels = [replace(level, most_interval_s=limit_s - level.causes[0].lag_s) for level in levels]
    return levels, Bounds(quantum_s=step_s, max_stall_ratio=log(-3, -1) if demand != "redo" else None)


def drawn_coarse(rng: random.Random) -> tuple[list[Level], Bounds]:
    """A big job with long steps: few steps in every interval, a drain to the store of many, restarts that lose much."""
    step_s, drain_s, stall_s = rng.uniform(30, 200), 10 ** rng.uniform(2.3, 3.5), 10 ** rng.uniform(-2.3, 0.7)
    levels = [Level("ram", stall_s, (Cause("x", 10 ** rng.uniform(-4, -2.7), rng.uniform(50, 300)),), step_s / 2)]
    for index in range(rng.choice([1, 1, 2])):
        own_s = drain_s * 10 ** rng.uniform(-2.5, -0.3)
        cause = Cause("x", 10 ** rng.uniform(-6, -4), rng.uniform(100, 900), own_s)
        levels.append(Level(f"between {index}", 0.02 * own_s, (cause,), own_s))
    levels[1:] = sorted(levels[1:], key=lambda level: level.least_interval_s)
    cause = Cause("x", 10 ** rng.uniform(-5.5, -3.5), rng.uniform(200, 1000), drain_s)
    return [*levels, Level("shared", 0.02 * drain_s, (cause,), drain_s)], Bounds(quantum_s=step_s)


def drawn_any(rng: random.Random) -> tuple[list[Level], Bounds]:
    """Three or four tiers of any cost and any rate, whose intervals are a few times one another: a count changed by one
    moves the slowest far, if all those above do not change as well."""

    def log(low: float, high: float) -> float:
        return float(10 ** rng.uniform(low, high))

    step_s, rate, lag_s, levels = log(0.5, 2.5), log(-5, -2.7), 0.0, []
    for index in range(rng.choice([3, 4])):
        lag_s = max(lag_s, log(-1, 3)) if index and rng.random() < 0.8 else lag_s
        least_s = lag_s if index else step_s * rng.random()
        cause = Cause("x", rate * log(-2.5, 0), log(1, 3), lag_s)
        levels.append(Level(f"l{index}", log(-3, 1.3), (cause,), least_s))
    return levels, Bounds(quantum_s=step_s)


def every_pattern(levels: list[Level], bounds: Bounds, steps: int = STEPS, multiples: int = MULTIPLES) -> Rows:
    """All nested patterns of so many steps and multiples that keep the bounds."""
    assert bounds.quantum_s is not None
    rows = np.arange(1, steps + 1)[:, None] * bounds.quantum_s
    for level in levels[1:]:
        rows = np.column_stack([np.repeat(rows, multiples, axis=0), np.tile(np.arange(1, multiples + 1), len(rows))])
        rows = rows[rows.prod(axis=1) <= level.most_interval_s]
    taus = rows.cumprod(axis=1)
    keeps = np.all(
        [(tau >= e.least_interval_s) & (tau <= e.most_interval_s) for e, tau in zip(levels, taus.T, strict=True)], axis=0
    )
    if bounds.max_stall_ratio is not None:
        keeps &= sum(level.stall_s / tau for level, tau in zip(levels, taus.T, strict=True)) <= bounds.max_stall_ratio
    return rows[keeps]


@pytest.mark.parametrize("demand", ["redo", "stall", "both"])
@pytest.mark.parametrize("count", [10, pytest.param(150, marks=pytest.mark.slow)])
def test_nothing_better_exists(demand: str, count: int) -> None:
    """Random levels under demands: of all patterns none keeps more than the one found, and where one is allowed one is
    found."""
    rng = random.Random(f"{demand}{count}")
    compared = 0
    while compared < count:
        levels, bounds = drawn_levels(rng, demand)
        if len(levels) == 4 and demand == "stall":
            levels = levels[:3]  # without a redo limit there are millions
        rows = every_pattern(levels, bounds)
        if not len(rows):
            continue
        compared += 1
        best = exact_ettrs(levels, rows)
        found = solve(levels, bounds)
        assert exact_ettr(levels, found) >= best.max() - 1e-9, f"{levels} {bounds}: {found}, best {rows[best.argmax()]}"


@pytest.mark.parametrize("count", [20, pytest.param(600, marks=pytest.mark.slow)])
def test_nothing_better_exists_where_steps_are_long(count: int) -> None:
    """Few steps in every interval: between, the best meets the drain of a slower level, far from what it wants."""
    rng = random.Random(count)
    for _ in range(count):
        levels, bounds = drawn_coarse(rng)
        rows = every_pattern(levels, bounds, 20, MULTIPLES if len(levels) == 3 else 14)
        best = exact_ettrs(levels, rows)
        found = solve(levels, bounds)
        assert exact_ettr(levels, found) >= best.max() - 1e-9, f"{levels} {bounds}: {found}, best {rows[best.argmax()]}"


@pytest.mark.parametrize("count", [20, pytest.param(600, marks=pytest.mark.slow)])
def test_nothing_better_exists_where_all_counts_change_at_once(count: int) -> None:
    """One count up, all others down: the slowest interval stays, and only a pattern with every count changed is better."""
    rng = random.Random(21)
    compared = 0
    while compared < count:
        levels, bounds = drawn_any(rng)
        rows = every_pattern(levels, bounds, *((30, 60) if len(levels) == 3 else (14, 20)))
        if not len(rows):
            continue
        compared += 1
        best = exact_ettrs(levels, rows)
        found = solve(levels, bounds)
        assert exact_ettr(levels, found) >= best.max() - 1e-9, f"{levels} {bounds}: {found}, best {rows[best.argmax()]}"


@pytest.mark.parametrize(
    ("words", "pattern"),
    [
        ("gpus=65536 keep=0.33 preset=gb200 step=60s stall=200ms nvme=18.2GB/s", (60, 11, 1)),
        (
            "gpus=65536 keep=0.5 preset=hgx-h200 step=90s stall=200ms tiers=ram,nvme,shared nvme=10GB/s "
            "store-bandwidth=50GB/s",
            (90, 17, 1),
        ),
        (
            "gpus=32768 keep=0.5 preset=hgx-h200 step=120s stall=2s tiers=ram,nvme,shared nvme=25GB/s "
            "store-bandwidth=50GB/s",
            (120, 13, 1),
        ),
    ],
)
def test_a_tier_between_may_wait_for_the_store(words: str, pattern: tuple[float, ...]) -> None:
    """Steps of a minute, a drain of ten: the tier between is saved with the store, not at what it wants: a multiple of
    that would miss the drain by much."""
    found = solve_settings(dict(word.split("=") for word in words.split()))[1].pattern
    assert (found.work_s, *found.multiples) == pattern


@pytest.mark.parametrize(
    ("words", "given_s"),
    [
        ("gpus=512 params=846B step=20s max-redo=215.119s drain=58.7767s", 140),
        ("gpus=65536 params=14.14B step=5s tiers=ram,shared max-redo=187.674s floor=0.490994s drain=68.8966s", 55),
        ("gpus=512 params=10.35B step=30s tiers=ram,peer,shared max-redo=244.289s drain=10.312s", 30),
        ("gpus=512 params=15.37B step=20s tiers=ram,peer,shared max-redo=548.873s drain=106.281s", 40),
        ("gpus=1024 params=1845B step=20s tiers=ram,peer,nvme,shared max-stall=0.162% mtti=2010.68s", 20),
        ("gpus=66029 params=291.3B tiers=nvme,shared mode=ring max-stall=0.187%", 20.847593582),
        (
            "gpus=278345 params=2.917B preset=dgx-h100 step=2.01s max-redo=67.74s ram=65.87GB interference=4.74% "
            "max-stall=0.1375%",
            12.06,
        ),
        (
            "gpus=18 params=3.011B preset=gb200 step=9s mtti=597.9s drain=6.39s max-redo=529s max-stall=0.177% "
            "hidden=0.749 interference=3.7%",
            9,
        ),
        (
            "gpus=158 preset=hgx-h200 step=185.07s keep=0.138 stall=0.064953s nvme=4.1018GB/s tiers=ram,peer,nvme,shared "
            "nodes-return=4.8122%",
            370.14,
        ),
        ("gpus=194 params=5.456B preset=small-cloud step=24.6s mtti=1090s max-redo=6680s max-stall=0.0153%", 49.2),
    ],
)
def test_no_given_interval_beats_the_recommended_one(words: str, given_s: float) -> None:
    """Cases in which a search that moves by ones and twos stood still at a redo limit or a stall budget, in which restarts
    lose so much that first order ranks badly, and in which several counts change at once, along a budget or without one."""
    asked = dict(word.split("=") for word in words.split())
    assert solve_settings({**asked, "interval": f"{given_s}s"})[1].ettr <= solve_settings(asked)[1].ettr + 1e-9


@pytest.mark.parametrize("count", [6, pytest.param(80, marks=pytest.mark.slow)])
def test_a_longer_drain_and_more_failures_never_help_under_demands(count: int) -> None:
    """Random questions with a redo limit, half of them with a stall budget: with drains a little longer, or failures more
    frequent, no more is kept."""
    rng = random.Random(count)
    answered = 0
    while answered < count:
        drain_s, mtti_s = 10 ** rng.uniform(0, 2.5), 10 ** rng.uniform(3.5, 6)
        asked = drawn(rng) | {
            "max-redo": f"{drain_s * rng.uniform(2.5, 6) + 30:.6g}s",
            "step": f"{rng.uniform(1, 30):.3g}s",
        }
        asked |= {"drain": f"{drain_s:.6g}s", "mtti": f"{mtti_s:.6g}s"}
        asked.pop("interval", None)
        try:
            kept = [
                solve_settings({**asked, **other})[1].ettr
                for other in ({}, {"drain": f"{drain_s * 1.04:.6g}s"}, {"mtti": f"{mtti_s / 1.06:.6g}s"})
            ]
        except Infeasible:
            continue
        answered += 1
        assert max(kept[1:]) <= kept[0] + 1e-6, asked
