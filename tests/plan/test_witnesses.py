"""The three witnesses agree where theory says so, and the simulation shares no code with the forms it checks."""

import ast
import math
import random
import time
from pathlib import Path

import numpy as np
import pytest

import hinan.plan.arrivals
import hinan.plan.montecarlo
from hinan.plan import formulas
from hinan.plan.arrivals import Bursts, Exponential, Lemons, Racks, Replay, Weibull
from hinan.plan.exact import exact_ettr
from hinan.plan.joint import Bounds, first_order_loss, solve
from hinan.plan.levels import Cause, Level, Pattern
from hinan.plan.montecarlo import Track, simulate

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


def z_score(levels: list[Level], pattern: Pattern, seed: int, failures: int = 900) -> float:
    """Simulation minus exact form, in standard errors."""
    track, rates = track_of(levels, pattern)
    found = simulate(track, Exponential(rates), lives=100, wall_s=failures / sum(rates), seed=seed)
    return (found.ettr - exact_ettr(levels, pattern)) / found.stderr


@pytest.mark.slow
def test_simulation_and_exact_form_agree_on_200_scenarios() -> None:
    """Within 3 standard errors on all of 200 random scenarios, and without a common bias."""
    rng = random.Random(20)
    scores = [z_score(*random_case(rng), seed=seed) for seed in range(200)]
    assert max(map(abs, scores)) < 3
    assert abs(np.mean(scores)) < 3 / math.sqrt(200)
    assert 0.75 < np.std(scores) < 1.25
