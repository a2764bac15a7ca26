"""Young's interval: right in value, and it moves the right way."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hinan.core import interval
from hinan.core.errors import ConfigError

positive = st.floats(1e-3, 1e6)


def test_young_1974() -> None:
    """sqrt(2 C M)."""
    assert interval.young_interval_s(stall_s=2.0, mtti_s=7200.0) == pytest.approx(169.7, abs=0.1)


@given(positive, positive)
def test_it_is_where_lost_time_is_least(stall_s: float, mtti_s: float) -> None:
    """The first-order loss, stall a interval and half an interval a failure, is not smaller on either side."""
    best = interval.young_interval_s(stall_s=stall_s, mtti_s=mtti_s)

    def loss(tau: float) -> float:
        return stall_s / tau + tau / (2 * mtti_s)

    assert loss(best) <= min(loss(best * 0.9), loss(best * 1.1))


@given(positive, positive, st.floats(1, 100))
def test_a_longer_mtti_never_shortens_it(stall_s: float, mtti_s: float, factor: float) -> None:
    """Rarer failures and dearer stalls both mean rarer evacuations."""
    base = interval.young_interval_s(stall_s=stall_s, mtti_s=mtti_s)
    assert interval.young_interval_s(stall_s=stall_s, mtti_s=mtti_s * factor) >= base
    assert interval.young_interval_s(stall_s=stall_s * factor, mtti_s=mtti_s) >= base


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_nonsense_is_named(bad: float) -> None:
    """A stall or a mean time that is not positive and finite is refused by its name."""
    with pytest.raises(ConfigError, match="stall_s"):
        interval.young_interval_s(stall_s=bad, mtti_s=1.0)
    with pytest.raises(ConfigError, match="mtti_s"):
        interval.young_interval_s(stall_s=1.0, mtti_s=bad)


def test_auto_has_a_floor_and_drains_never_overlap() -> None:
    """Unmeasured: the shortest; measured: Young's; a commit interval is at least twice the drain."""
    assert interval.auto_interval_s(None) == interval.SHORTEST_AUTO_S
    assert interval.auto_interval_s(1e-9) == interval.SHORTEST_AUTO_S
    assert interval.auto_interval_s(1.0) == pytest.approx(math.sqrt(2 * interval.ASSUMED_PROCESS_MTTI_S))
    assert interval.auto_commit_s(None) == interval.SHORTEST_AUTO_COMMIT_S
    assert interval.auto_commit_s(1e5) >= 2e5
