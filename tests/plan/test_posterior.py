"""The failure rate of a running job: the table first, then what was seen; quantiles against scipy."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaincinv

from hinan.core.errors import ConfigError
from hinan.plan.observed.posterior import SMALL_JOB_MTTI_S, Prior, gamma_quantile, posterior, prior_of

HOUR_S = 3600.0


def test_the_table_rules_until_failures_come() -> None:
    """Before anything was seen the mean is the table's; after 50 failures it is the job's own."""
    prior = prior_of(per_node_day=3.79e-3, nodes=2048)
    assert prior.per_s == pytest.approx(3.79e-3 * 2048 / 86400)
    assert posterior(prior, failures=0, observed_s=0.0).mean_per_s == pytest.approx(prior.per_s)
    own = posterior(prior, failures=50, observed_s=50 * HOUR_S)
    assert own.mean_per_s == pytest.approx(1 / HOUR_S, rel=0.08)
    assert own.quantile_per_s(0.05) < own.mean_per_s < own.quantile_per_s(0.95)


def test_a_small_job_does_not_start_from_a_rate_that_no_small_job_has() -> None:
    """One node of the table would fail once in 264 days; it starts from what small jobs were measured to have."""
    assert prior_of(per_node_day=3.79e-3, nodes=1).per_s == pytest.approx(1 / SMALL_JOB_MTTI_S)
    assert prior_of(per_node_day=3.79e-3, nodes=1, share_ratio=0.25).per_s == pytest.approx(0.25 / SMALL_JOB_MTTI_S)


@given(st.integers(0, 1000), st.floats(0, 1e8), st.floats(1e-8, 1e-2))
def test_failures_raise_the_rate_and_quiet_time_lowers_it(failures: int, observed_s: float, per_s: float) -> None:
    """For any counts: one failure more is a higher rate, one quiet hour more a lower one."""
    prior = Prior(per_s)
    now = posterior(prior, failures=failures, observed_s=observed_s).mean_per_s
    assert posterior(prior, failures=failures + 1, observed_s=observed_s).mean_per_s > now
    assert posterior(prior, failures=failures, observed_s=observed_s + HOUR_S).mean_per_s < now


@settings(max_examples=200, deadline=None)
@given(st.floats(0.05, 1e4), st.floats(1e-4, 1 - 1e-4))
def test_quantiles_are_those_of_scipy(shape: float, chance: float) -> None:
    """The small routine and the library agree to nine digits."""
    assert gamma_quantile(shape, chance) == pytest.approx(float(gammaincinv(shape, chance)), rel=1e-9, abs=1e-300)


@pytest.mark.parametrize(("shape", "chance"), [(0.0, 0.5), (2.0, 0.0), (2.0, 1.0), (2.0, float("nan"))])
def test_what_has_no_quantile_is_refused(shape: float, chance: float) -> None:
    """No number for a question without an answer."""
    with pytest.raises(ConfigError):
        gamma_quantile(shape, chance)
