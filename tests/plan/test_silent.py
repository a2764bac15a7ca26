"""Silent corruption: seen by the next verification, which keeps no step with the saves. Played event by event."""

import math
import random

import pytest
from plan_command import LLAMA, ask

from hinan.plan.decision.nearest import solve_settings
from hinan.plan.intervals.formulas import mean_unseen_s
from hinan.plan.model.failures import Tier
from hinan.plan.model.scenario import RESTARTS
from hinan.plan.simulated.policy import Policy, TierPolicy
from hinan.plan.simulated.world import Happening
from hinan.plan.simulated.year import Job, Year

QUESTION = {"gpus": "16384", "params": "405B", "step": "5s"}


def redone_s(rng: random.Random, *, interval_s: float, drain_s: float, cadence_s: float) -> float:
    """Training redone after one corruption: saves at multiples of the interval, each usable a drain later; verifications in
    a rhythm of their own; back to the newest save that is older than the corruption and usable when it is seen."""
    struck_s, first_s = rng.uniform(1e6, 2e6), rng.uniform(0, cadence_s)
    seen_s = first_s + (math.floor((struck_s - first_s) / cadence_s) + 1) * cadence_s
    save = math.floor(struck_s / interval_s)
    while save * interval_s + drain_s > seen_s:
        save -= 1
    return seen_s - save * interval_s


@pytest.mark.parametrize(
    ("interval_s", "drain_s", "cadence_s"),
    [(1260.0, 56.7, 1248.0), (300.0, 250.0, 400.0), (700.0, 600.0, 50.0), (50.0, 0.0, 3600.0)],
)
def test_what_a_corruption_costs_follows_from_its_events(interval_s: float, drain_s: float, cadence_s: float) -> None:
    """Mean and worst of a hundred thousand, also where the drain is longer than the cadence."""
    rng = random.Random(5)
    redone = [redone_s(rng, interval_s=interval_s, drain_s=drain_s, cadence_s=cadence_s) for _ in range(100_000)]
    expected_s = mean_unseen_s(cadence_s=cadence_s, drain_s=drain_s) + interval_s / 2
    assert sum(redone) / len(redone) == pytest.approx(expected_s, rel=0.01)
    assert max(redone) == pytest.approx(max(cadence_s, drain_s) + interval_s, rel=0.02)


@pytest.mark.parametrize("words", [[], ["--latency", "1h"], ["--latency", "20s", "--verify", "10ms"]])
def test_the_plan_says_what_its_corruptions_cost(words: list[str]) -> None:
    """Mean and worst redo of the class, with the plan's own cadence, interval and drain."""
    answer, rng = ask(*LLAMA, *words), random.Random(7)
    (silent,) = [row for row in answer["classes"] if row["failure"] == "silent"]
    (tier,) = [row for row in answer["tiers"] if row["tier"] == silent["tier"]]
    played = {"interval_s": tier["interval_s"], "drain_s": tier["drain_s"], "cadence_s": answer["verify_every_s"]}
    redone = [redone_s(rng, **played) for _ in range(50_000)]
    assert silent["rpo_mean_s"] == pytest.approx(sum(redone) / len(redone), rel=0.01)
    assert silent["rpo_worst_s"] == pytest.approx(max(redone), rel=0.02)


def test_no_other_cadence_keeps_more() -> None:
    """Verified more often it costs more than it saves, and less often the other way round: by the exact form."""
    _, chosen = solve_settings(QUESTION)
    assert chosen.verify_every_s is not None
    for factor in (0.7, 0.85, 1.18, 1.4):
        _, other = solve_settings({**QUESTION, "latency": f"{chosen.verify_every_s * factor}s"})
        assert other.ettr < chosen.ettr


def test_a_year_redoes_as_much() -> None:
    """Two thousand corruptions of one long year, none while another is made good: the mean of the formula."""
    every_s, drain_s, cadence_s, apart_s, count = 1000.0, 250.0, 640.0, 9000.0, 2000
    job = Job(16, compute_s=4.0, allreduce_s=1.0, parts=RESTARTS, init_extra_s=0.0, verify_every_s=cadence_s)
    policy = Policy("store", (TierPolicy(Tier.SHARED, every_s, 0.0, drain_s, 0.0),), spares=count)
    rng = random.Random(3)
    struck = [Happening((k + rng.random()) * apart_s, "silent", 3, 1.0, False) for k in range(1, count + 1)]
    books = Year(job, policy, apart_s * (count + 2)).run(struck)
    assert books.seconds["redo"] / count == pytest.approx(
        mean_unseen_s(cadence_s=cadence_s, drain_s=drain_s) + every_s / 2, rel=0.03
    )
    assert books.worst_redo_s == pytest.approx(cadence_s + every_s, rel=0.03)
