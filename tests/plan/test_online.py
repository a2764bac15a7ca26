"""The interval of a running job: learns from failures, moves for reasons, never breaks its cap."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hinan.core.errors import ConfigError
from hinan.plan.intervals.formulas import exact_interval_s
from hinan.plan.observed.online import Measured, decide
from hinan.plan.observed.posterior import Prior

HOUR_S = 3600.0


def seen(failures: int = 0, observed_s: float = 0.0, **more: float) -> Measured:
    """A job with steps of 2 s and a stall of half a second."""
    facts = {"step_s": 2.0, "stall_s": 0.5, "drain_s": 0.0, **more}
    return Measured(failures=failures, observed_s=observed_s, **facts)


def test_the_first_interval_is_the_optimum_in_steps() -> None:
    """sqrt(2 x 0.5 s x 1 h) = 60 s = 30 steps."""
    decision = decide(seen(), Prior(1 / HOUR_S), None)
    assert decision.every_steps == 30
    assert decision.changed
    assert "stall 500.0 ms" in decision.reason


def test_noise_does_not_move_it_and_a_real_change_does() -> None:
    """A tenth more stall changes nothing; ten times the failures does, and the reason says how much."""
    prior = Prior(1 / HOUR_S)
    calm = decide(seen(20, 20 * HOUR_S, stall_s=0.55), prior, 30)
    assert (calm.every_steps, calm.changed) == (30, False)
    storm = decide(seen(200, 20 * HOUR_S), prior, 30)
    assert storm.changed
    assert storm.every_steps < 15
    assert "staying loses" in storm.reason


def test_the_cap_and_the_drain_are_hard() -> None:
    """The overhead cap and the drain set a floor, whatever hysteresis would like."""
    prior = Prior(1 / 100.0)
    capped = decide(seen(), prior, 3, max_overhead_ratio=0.01)
    assert capped.every_steps >= 0.5 / 0.01 / 2
    assert "cap" in capped.reason
    drained = decide(seen(drain_s=120.0), prior, 3)
    assert drained.every_steps >= 60
    assert "drain" in drained.reason


def test_a_stall_of_zero_is_a_measurement() -> None:
    """Below what the clock tells: each step is right, and only the drain can ask for more."""
    free = decide(seen(stall_s=0.0), Prior(1 / HOUR_S), None)
    assert free.every_steps == 1
    assert "stall 0" in free.reason
    assert decide(seen(stall_s=0.0), Prior(1 / HOUR_S), 1).changed is False
    assert decide(seen(stall_s=0.0, drain_s=9.0), Prior(1 / HOUR_S), None).every_steps == 5


@pytest.mark.parametrize("load", [1e-9, 4e-11, 6e-11, 1e-18, 1e-30, 1e-300])
def test_tiny_stalls_keep_their_digits(load: float) -> None:
    """x + ln(1 - x) = -d/M near zero: x = s - s^2/3 + s^3/36 with s = sqrt(2 d/M); Newton's sum would be all rounding."""
    s = math.sqrt(2 * load)
    assert exact_interval_s(stall_s=load, mtti_s=1.0) == pytest.approx(s - s**2 / 3 + s**3 / 36, rel=1e-11)


def test_it_is_never_more_often_than_what_it_is_taken_from() -> None:
    """A floor from outside holds against hysteresis too."""
    held = decide(seen(), Prior(1 / HOUR_S), 30, taken_from_steps=40)
    assert (held.every_steps, held.changed) == (40, True)
    assert "was 30 steps: nothing is saved more often" in held.reason


def test_multiples_are_chosen_by_what_they_lose() -> None:
    """30 steps are best: of saves every 28 the same, of every 17 two (34, not 17), of every 22 one, for two lose more."""
    chosen = {unit: decide(seen(), Prior(1 / HOUR_S), None, taken_from_steps=unit).every_steps for unit in (28, 17, 22)}
    assert chosen == {28: 28, 17: 34, 22: 22}


def test_what_is_no_multiple_any_more_moves_to_the_better_one_beside_it() -> None:
    """Evacuations every 28 steps now: commits every 30 are every 28, although 30 was right; and then they stay."""
    prior = Prior(1 / HOUR_S)
    moved = decide(seen(), prior, 30, taken_from_steps=28)
    assert (moved.every_steps, moved.changed) == (28, True)
    assert moved.reason.startswith("was 30 steps, no multiple of 28: ")
    assert not decide(seen(), prior, 28, taken_from_steps=28).changed


@settings(max_examples=60, deadline=None)
@given(
    st.floats(0.05, 20), st.floats(0, 30), st.floats(0, 600), st.integers(0, 500),
    st.floats(0, 1e7), st.floats(1e-8, 1e-3), st.one_of(st.none(), st.integers(1, 10_000)), st.floats(0.001, 0.5),
)  # fmt: skip
def test_cap_drain_and_purity(
    step_s: float, stall_s: float, drain_s: float, failures: int, observed_s: float, per_s: float,
    current: int | None, cap: float,
) -> None:  # fmt: skip
    """For any facts: cap and drain hold, the same facts decide the same, and asking again changes nothing."""
    facts = Measured(step_s, stall_s, drain_s, failures, observed_s)
    decision = decide(facts, Prior(per_s), current, max_overhead_ratio=cap)
    assert stall_s / (decision.every_steps * step_s) <= cap * (1 + 1e-6)
    assert decision.every_steps * step_s >= drain_s * (1 - 1e-6)
    assert decide(facts, Prior(per_s), current, max_overhead_ratio=cap) == decision
    again = decide(facts, Prior(per_s), decision.every_steps, max_overhead_ratio=cap)
    assert not again.changed


@pytest.mark.parametrize("bad", [{"step_s": 0.0}, {"stall_s": -1.0}, {"drain_s": float("nan")}])
def test_impossible_measurements_are_refused(bad: dict[str, float]) -> None:
    """A clock that ran backwards is not an interval."""
    with pytest.raises(ConfigError):
        seen(**bad)
