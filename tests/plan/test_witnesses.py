"""The three witnesses agree where theory says so, and the simulation shares no code with the forms it checks."""

import ast
import math
import random
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hinan.plan.decision.witnesses
import hinan.plan.intervals.arrivals
import hinan.plan.intervals.montecarlo
from hinan.plan.decision.answer import answer, to_json
from hinan.plan.decision.nearest import solve_settings
from hinan.plan.decision.witnesses import question, seed_of
from hinan.plan.intervals import formulas
from hinan.plan.intervals.arrivals import Bursts, Exponential, Lemons, Racks, Replay, Weibull
from hinan.plan.intervals.exact import exact_ettr
from hinan.plan.intervals.first_order import first_order_loss
from hinan.plan.intervals.joint import solve
from hinan.plan.intervals.levels import Cause, Level, Pattern
from hinan.plan.intervals.montecarlo import Track, simulate
from hinan.plan.intervals.space import Bounds
from hinan.plan.show.explain import explain
from hinan.plan.show.terminal import table

YEAR_S = 365 * 86_400


def random_case(rng: random.Random) -> tuple[list[Level], Pattern]:
    """Levels, causes, lags and a pattern as a designer might meet them, drawn at random."""
    count = rng.randint(1, 4)
    mtti_s = 10 ** rng.uniform(3, 5)
    shares = [10 ** rng.uniform(-1.5, 0) for _ in range(count)]
    multiples = tuple(rng.randint(1, 6) for _ in range(count - 1))
    first_s = mtti_s * 10 ** rng.uniform(-2.5, -0.7)
    levels: list[Level] = []
    lag_s = 0.0
    for k, share in enumerate(shares):
        per_s = share / sum(shares) / mtti_s
        split = rng.uniform(0.1, 0.9)
        # As on machines: slower tiers have a copy later, and are not asked for one faster than they drain.
        lag_s = 0.0 if k == 0 else max(lag_s, rng.choice([0.0, rng.random()]) * first_s * math.prod(multiples[:k]))
        causes = (
            Cause(f"a{k}", per_s * split, rng.uniform(0, 0.1) * mtti_s, lag_s),
            Cause(f"b{k}", per_s * (1 - split), rng.uniform(0, 0.02) * mtti_s, lag_s),
        )
        levels.append(Level(f"level{k}", 10 ** rng.uniform(-5, -2) * mtti_s, causes))
    pattern = Pattern(first_s, multiples)
    return (levels, pattern) if exact_ettr(levels, pattern) > 0.3 else random_case(rng)


def late_case(rng: random.Random) -> tuple[list[Level], Pattern, float]:
    """The same, with one cause that is noticed many blocks after it struck, and its lag."""
    levels, pattern = random_case(rng)
    first, second = levels[-1].causes
    late = replace(second, lag_s=first.lag_s + rng.choice([0.1, 0.5, 1.0, 2.0]) / second.per_s)
    levels[-1] = replace(levels[-1], causes=(first, late))
    return (levels, pattern, late.lag_s) if exact_ettr(levels, pattern) > 0.02 else late_case(rng)


def track_of(levels: list[Level], pattern: Pattern) -> tuple[Track, tuple[float, ...]]:
    """The same case in the simulation's own words."""
    rows = [(k, cause) for k, level in enumerate(levels) for cause in level.causes]
    track = Track(
        pattern.work_s,
        pattern.multiples,
        tuple(level.stall_s for level in levels),
        tuple(k for k, _ in rows),
        tuple(cause.restart_s for _, cause in rows),
        tuple(cause.lag_s for _, cause in rows),
    )
    return track, tuple(cause.per_s for _, cause in rows)


def z_score(levels: list[Level], pattern: Pattern, seed: int, failures: int = 900, lag_s: float = 0.0) -> float:
    """Simulation minus exact form, in standard errors. Lives are long against `lag_s`, and counted once settled."""
    track, rates = track_of(levels, pattern)
    wall_s = max(failures / sum(rates), 20 * lag_s)
    found = simulate(track, Exponential(rates), lives=100, wall_s=wall_s, seed=seed, settle_s=10 * lag_s)
    return (found.ettr - exact_ettr(levels, pattern)) / found.stderr


@pytest.mark.slow
def test_simulation_and_exact_form_agree_on_200_scenarios() -> None:
    """Within 3 standard errors on all of 200 random scenarios, and without a common bias."""
    rng = random.Random(20)
    scores = [z_score(*random_case(rng), seed=seed) for seed in range(200)]
    assert max(map(abs, scores)) < 3
    assert abs(np.mean(scores)) < 3 / math.sqrt(200)
    assert 0.75 < np.std(scores) < 1.25


def test_agreement_in_short() -> None:
    """The everyday part of the same claim: 12 scenarios, within 3.5 standard errors."""
    rng = random.Random(5)
    scores = [z_score(*random_case(rng), seed=seed, failures=200) for seed in range(12)]
    assert max(map(abs, scores)) < 3.5


def test_agreement_where_one_cause_is_seen_late() -> None:
    """Within 3 standard errors on 20 random scenarios with a lag of up to two of its cause's mean times."""
    rng = random.Random(7)
    scores = [z_score(*(case := late_case(rng))[:2], seed=seed, failures=200, lag_s=case[2]) for seed in range(20)]
    assert max(map(abs, scores)) < 3
    assert abs(np.mean(scores)) < 3 / math.sqrt(20)


@pytest.mark.parametrize("latency", ["1d", "3d"])
def test_late_detection_is_charged(latency: str) -> None:
    """Failures during the redo of a day: exact form and simulation agree, whatever the seed."""
    _, design = solve_settings({"gpus": "16384", "params": "405B", "step": "5s", "latency": latency})
    found = [question(design, seed=seed) for seed in range(1, 5)]
    scores = [(each.simulated - (each.exact or 0.0)) / each.simulated_stderr for each in found]
    assert all(each.agree for each in found)
    assert abs(sum(scores)) < 3 * math.sqrt(len(scores))


def test_the_exact_form_is_withheld_beyond_its_range() -> None:
    """Corruption seen up to 60 days late, striking every nine days: no number, the reason, and the loss as simulated."""
    words = {"gpus": "16384", "params": "405B", "step": "5s", "latency": "60d"}
    found = answer(*solve_settings(words))
    plain = to_json(found)
    assert plain["ettr"]["exact"] is None
    assert "silent" in plain["ettr"]["exact_refused"]
    assert any(text.startswith("exact form refused") for text in plain["warnings"])
    assert sum(part["ratio"] for part in plain["lost"].values()) == pytest.approx(1 - plain["ettr"]["monte_carlo"])
    assert "exact refused" in table(found)


def test_witnesses_that_disagree_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exact form that is off by a hundredth is withheld, and no other arrivals are blamed for it."""
    scenario, design = solve_settings({"gpus": "16384", "params": "405B", "step": "5s"})
    right = hinan.plan.decision.witnesses.exact_ettr
    monkeypatch.setattr(hinan.plan.decision.witnesses, "exact_ettr", lambda levels, pattern: right(levels, pattern) - 0.01)
    found = answer(scenario, design)
    assert found.witnesses.exact is None
    assert not found.witnesses.agree
    assert "standard errors away" in " ".join(found.warnings)
    assert "independent" not in " ".join(found.warnings)


def test_a_run_far_away_is_done_once_more_and_said() -> None:
    """More than two standard errors away: a second run of four times the lives takes its place, and the answer says so."""
    scenario, design = solve_settings({"gpus": "16384", "params": "405B", "step": "5s"})
    runs = [question(design, lives=30, failures_per_life=60, seed=seed) for seed in range(40)]
    again = [each for each in runs if each.first_apart_stderrs is not None]
    assert 0 < len(again) < 9  # one of 22 in the long run
    for each in runs:
        assert each.monte_carlo.lives == (120 if each in again else 30)
        assert each.first_apart_stderrs is None or abs(each.first_apart_stderrs) > 2
        assert ("it is a second run with 4 times the lives" in each.how_far) is (each in again)
        assert each.agree is (abs(each.apart_stderrs) <= 3)
    assert all(abs(each.apart_stderrs) <= 2 for each in runs if each not in again)
    found = answer(scenario, design)
    assert f"(seed {seed_of(design)}), {found.witnesses.how_far}" in explain(found)


def test_the_luck_of_a_question_is_its_own() -> None:
    """No seed that all questions share: the same design has the same one, another design another."""
    one, same, other = (solve_settings({"gpus": gpus, "params": "70B"})[1] for gpus in ("1024", "1024", "1032"))
    assert seed_of(one) == seed_of(same) != seed_of(other)
    assert question(one).seed == seed_of(one)


def test_a_settled_life_is_simulated_as_asked() -> None:
    """What passes before counting begins is not counted: shares of the same size, and they add up."""
    track, rates = track_of(*random_case(random.Random(3)))
    young, old = (
        simulate(track, Exponential(rates), lives=200, wall_s=400 / sum(rates), seed=1, settle_s=settle / sum(rates))
        for settle in (0, 100)
    )
    for name in ("ettr", "redo_ratio", "restart_ratio", "stall_ratio"):
        assert getattr(old, name) == pytest.approx(getattr(young, name), abs=5 * young.stderr)


def test_one_level_is_daly() -> None:
    """For one level the recursion is Daly's complete cost, also where failures are near certain."""
    for stall_s, mtti_s, restart_s, tau_s in ((60, 11_135, 300, 1155.9), (40, 15, 10, 15), (300, 900, 600, 550)):
        level = Level("store", stall_s, (Cause("all", 1 / mtti_s, restart_s),))
        closed = formulas.exact_ettr(interval_s=tau_s, stall_s=stall_s, mtti_s=mtti_s, restart_s=restart_s)
        assert exact_ettr([level], Pattern(tau_s)) == pytest.approx(closed, rel=1e-12)


def test_a_split_cause_changes_nothing() -> None:
    """Two causes that differ in name only are one cause, in the exact form."""
    one = [Level("a", 1, (Cause("x", 1e-4, 60, 30),)), Level("b", 20, (Cause("z", 1e-5, 300, 200),))]
    two = [
        Level("a", 1, (Cause("x", 4e-5, 60, 30), Cause("y", 6e-5, 60, 30))),
        Level("b", 20, (Cause("z", 1e-5, 300, 200),)),
    ]
    pattern = Pattern(150, (7,))
    assert exact_ettr(one, pattern) == pytest.approx(exact_ettr(two, pattern), rel=1e-12)


def test_first_order_is_close_where_losses_are_small() -> None:
    """Where little is lost the closed form and the exact form meet."""
    levels = [Level("ram", 0.01, (Cause("p", 1e-6, 30),)), Level("store", 1.0, (Cause("n", 1e-7, 60, 20),))]
    pattern = solve(levels, Bounds())
    assert 1 - first_order_loss(levels, pattern.intervals_s()) == pytest.approx(exact_ettr(levels, pattern), abs=2e-6)


def test_the_simulation_imports_nothing_of_the_forms() -> None:
    """Independence: montecarlo.py and arrivals.py import only numpy, the standard library and the error class."""
    for module in (hinan.plan.intervals.montecarlo, hinan.plan.intervals.arrivals):
        tree = ast.parse(Path(module.__file__ or "").read_text(encoding="utf-8"))
        imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
        assert {name for name in imported if name.startswith("hinan")} <= {"hinan.core.errors"}


def test_same_seed_same_numbers() -> None:
    """A simulation is its seed."""
    track, rates = track_of(*random_case(random.Random(1)))
    first, again, other = (
        simulate(track, Exponential(rates), lives=20, wall_s=50 / sum(rates), seed=seed) for seed in (3, 3, 4)
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize("arrivals", ["weibull", "bursts", "lemons", "racks"])
def test_other_arrivals_keep_the_mean_rate(arrivals: str) -> None:
    """Clustered failures come as often as asked (racks: plus their followers), so that only their shape matters."""
    rates, lives, end_s = (8e-5, 2e-5), 300, 2e6
    made = {
        "weibull": lambda: Weibull(rates, 0.62),
        "bursts": lambda: Bursts(rates, again=0.3, within_s=200),
        "lemons": lambda: Lemons(rates, nodes=128, shape=0.6, lives=lives, seed=1),
        "racks": lambda: Racks(rates, rack=1, node=0, size=4, spread_s=60),
    }[arrivals]()
    found = simulate(Track(500.0, (), (5.0,), (0, 0), (60.0, 60.0), (0.0, 0.0)), made, lives=lives, wall_s=end_s, seed=2)
    expected = sum(rates) + (3 * rates[1] if arrivals == "racks" else 0.0)
    assert found.failures / lives / end_s == pytest.approx(expected, rel=0.05)


def test_clustered_failures_cost_less_redo() -> None:
    """A failure right after another has little to redo: Weibull below shape 1 keeps more than the exact form says."""
    level = Level("store", 30, (Cause("all", 1e-4, 60),))
    pattern = Pattern(700)
    track, rates = track_of([level], pattern)
    found = simulate(track, Weibull(rates, 0.5), lives=100, wall_s=3e6, seed=1)
    assert found.ettr > exact_ettr([level], pattern) + 5 * found.stderr


def test_replay_strikes_when_the_trace_says() -> None:
    """Aligned replay of two failures: the lost time is what a pencil says."""
    times = np.array([250.0, 1000.0])
    replay = Replay(times, np.zeros(2, dtype=np.int64), horizon_s=2000.0, lives=2, aligned=True)
    found = simulate(Track(100.0, (), (0.0,), (0,), (30.0,), (0.0,)), replay, lives=2, wall_s=2000.0, seed=1)
    # 250: back to 200, 50 lost, restart 30; then 720 s from 280 on reach 200 + 720 = 920: back to 900, 20 lost.
    assert found.ettr == pytest.approx((2000 - 50 - 30 - 20 - 30) / 2000)
    assert found.failures == 4


@pytest.mark.slow
def test_a_thousand_job_years_in_ten_seconds() -> None:
    """1,000 job-years at 16,384 GPUs, two levels, on one core in 10 s of its time."""
    track = Track(111.2, (33,), (0.5, 60.0), (0, 1), (60.0, 300.0), (0.0, 30.0))
    start_s = time.process_time()
    found = simulate(track, Exponential((0.9 / 11_135, 0.1 / 11_135)), lives=1000, wall_s=YEAR_S, seed=1)
    assert time.process_time() - start_s <= 10
    assert found.failures > 2_700_000
