"""Both intervals of a running job: what each tier answers, the shared cap, and what is not known yet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hinan.plan.model.interference import INTERFERENCE_RATIO
from hinan.plan.observed.attempts import Failures
from hinan.plan.observed.online import MAX_OVERHEAD_RATIO
from hinan.plan.observed.running import Intervals, RunningJob, inputs, intervals, lost, rates

HOUR_S = 3600.0
JOB = RunningJob(step_s=0.5, stall_s=0.02, drain_s=10.0, observed_s=HOUR_S)


def decide(job: RunningJob, **fixed: Any) -> Intervals:
    return intervals(job, **{"evacuate_steps": None, "commit_steps": None, "current": (None, None), **fixed})


def steps(job: RunningJob, **fixed: Any) -> tuple[int, int]:
    decided = decide(job, **fixed)
    assert decided.evacuate and decided.commit
    return decided.evacuate.every_steps, decided.commit.every_steps


@pytest.mark.parametrize("unknown", ["step_s", "stall_s"])
def test_nothing_is_decided_before_it_is_measured(unknown: str) -> None:
    """Unknown is not zero: without a step's time or a stall there is no decision, without a drain none on commits."""
    assert decide(replace(JOB, **{unknown: None})) == Intervals()
    no_drain = decide(replace(JOB, drain_s=None))
    assert no_drain.evacuate is not None
    assert no_drain.commit is None
    assert decide(JOB).adds_to(no_drain)
    assert not decide(JOB).adds_to(decide(JOB))


def test_each_tier_counts_the_failures_that_it_answers() -> None:
    """Killed processes shorten the evacuations, lost hosts the commits, and neither the other (but for whole multiples)."""
    calm = steps(JOB)
    killed = steps(replace(JOB, failures=Failures(ram=40)))
    hosts = steps(replace(JOB, failures=Failures(target=40)))
    assert killed[0] < calm[0] / 2 and hosts[0] == calm[0]
    assert hosts[1] < calm[1] / 2 and abs(killed[1] - calm[1]) < calm[0]
    ram, target = rates(JOB)
    assert ram.mean_per_s / target.mean_per_s == pytest.approx(323 / 96, rel=0.05)  # the classes of the table


def test_what_the_user_has_fixed_is_not_decided() -> None:
    """And a commit falls on an evacuation: it is never decided to come more often."""
    fixed = decide(JOB, evacuate_steps=100_000)
    assert fixed.evacuate is None
    assert fixed.commit is not None
    assert fixed.commit.every_steps == 100_000
    assert "only evacuated steps can be committed" in fixed.commit.reason
    assert decide(JOB, commit_steps=7).commit is None


@settings(max_examples=100, deadline=None)
@given(
    st.floats(0.001, 20), st.floats(0, 30), st.floats(0, 600), st.integers(0, 10_000), st.integers(0, 10_000),
    st.floats(0, 1e6), st.one_of(st.none(), st.integers(1, 10_000)), st.one_of(st.none(), st.integers(1, 10_000)),
)  # fmt: skip
def test_the_cap_holds_for_both_together(
    step_s: float, stall_s: float, drain_s: float, ram: int, target: int, observed_s: float,
    every: int | None, commit: int | None,
) -> None:  # fmt: skip
    """However often it fails: stalls and drains together cost at most the cap, and drains do not overlap."""
    job = RunningJob(step_s, stall_s, drain_s, None, Failures(ram, target), observed_s)
    evacuate_steps, commit_steps = steps(job, current=(every, commit))
    costs = lost(job, evacuate_steps=evacuate_steps, commit_steps=commit_steps)
    assert costs["stall"] + costs["interference"] <= MAX_OVERHEAD_RATIO * (1 + 1e-6)
    assert commit_steps * step_s >= drain_s * (1 - 1e-6)
    assert commit_steps % evacuate_steps == 0


def test_each_number_says_where_it_is_from() -> None:
    """Measured, default and guessed are told apart; what is missing is missing."""
    of = inputs(replace(JOB, failures=Failures(ram=3), observed_s=20 * HOUR_S, samples={"step_s": 63}))
    assert {name: str(each.origin.kind) for name, each in of.items()} == {
        "step_s": "measured",
        "stall_s": "measured",
        "drain_s": "measured",
        "ram_mtti_s": "measured",
        "target_mtti_s": "default",
        "interference_ratio": "guessed",
    }
    assert of["step_s"].origin.source == "median of 63 in this run"
    assert of["ram_mtti_s"].origin.source.startswith("3 seen in 20 h 0 min, 90 % between ")
    assert of["interference_ratio"].value == INTERFERENCE_RATIO


def test_a_band_that_excludes_what_was_seen_is_not_called_measured() -> None:
    """Three deaths in 33 s: the number is the prior's, and says how much that weighs and what was seen alone."""
    origin = inputs(replace(JOB, failures=Failures(ram=3), observed_s=33.0))["ram_mtti_s"].origin
    assert str(origin.kind) == "default"
    assert origin.source.startswith("3 seen in 33.0 s (alone every 11.0 s: the prior outweighs it), 90 % between ")
    assert "; prior, as good as 2 failures seen: llama3 x 1 node" in origin.source


def test_the_expected_loss_is_the_first_order_sum() -> None:
    """Restarts count once they are measured."""
    ram, target = (rate.mean_per_s for rate in rates(JOB))
    found = lost(replace(JOB, restart_s=30.0), evacuate_steps=40, commit_steps=400)
    assert found == pytest.approx(
        {
            "stall": 0.02 / 20,
            "interference": INTERFERENCE_RATIO * 10 / 200,
            "redo": ram * 10 + target * 110,
            "restart": (ram + target) * 30,
        }
    )
    assert "restart" not in lost(JOB, evacuate_steps=40, commit_steps=400)
