"""Intervals enclose, verdicts say only what the samples say, and a floor pairs with its own sample."""

from __future__ import annotations

import random

import pytest
from bench.row import Goal, counted, sampled
from bench.statistics import extras, median, median_interval, verdict


def test_an_interval_is_made_of_the_right_order_statistics() -> None:
    """The textbook values of the sign test: of 6 samples the 1st and the 6th, of 20 the 6th and the 15th."""
    for n, low, high in ((6, 1, 6), (8, 1, 8), (9, 2, 8), (20, 6, 15), (30, 10, 21)):
        assert median_interval(list(range(n, 0, -1))) == (low, high)


def test_an_interval_covers_the_median_as_often_as_it_says() -> None:
    """Of 2000 medians of 20 skewed samples at least 95 % are enclosed, and not nearly all (the interval is no wider)."""
    draw = random.Random(1)
    true_median = 2.0**0.5
    hits = 0
    for _ in range(2000):
        low, high = median_interval([draw.paretovariate(2.0) for _ in range(20)])
        hits += low <= true_median <= high
    assert 0.95 <= hits / 2000 <= 0.97


@pytest.mark.parametrize(
    ("interval", "samples", "ok"),
    [
        ((0.1, 0.4), 20, True), ((0.1, 0.5), 20, True), ((0.4, 0.6), 20, None), ((0.6, 0.7), 20, False),
        ((0.1, 0.2), 5, None), ((0.6, 0.7), 5, None), ((0.1, 0.1), 0, True), ((0.6, 0.6), 0, False),
    ],
)  # fmt: skip
def test_a_verdict_is_open_where_the_interval_covers_the_goal(
    interval: tuple[float, float], samples: int, ok: bool | None
) -> None:
    """Below the goal it holds, above it does not; across it, or from too few samples, nothing is said; a count is exact."""
    assert verdict(0.5, interval, samples) is ok


def test_extras_are_taken_against_both_neighbours() -> None:
    """A machine that slows down steadily adds nothing; an evacuation adds what it takes."""
    drift = [10.0 + i for i in range(9)]
    assert extras([t + 0.25 for t in drift[1::2]], drift[0::2]) == pytest.approx([0.25] * 4)
    with pytest.raises(ValueError, match="zip"):
        extras([1.0, 2.0], [1.0, 2.0])


def test_a_part_of_another_figure_has_no_goal_and_no_verdict() -> None:
    """It is told beside the whole: goal and ok are null, however many samples there are."""
    told = sampled(Goal("f", "title", None, "s"), [1.0] * 20).as_json()
    assert (told["goal"], told["ok"], told["value"]) == (None, None, 1.0)


def test_a_count_of_too_little_says_nothing() -> None:
    """Neither that a goal is kept nor that it is missed."""
    goal = Goal("f", "title", 1.0, "things")
    assert [counted(goal, amount, enough=False).ok for amount in (0.0, 2.0)] == [None, None]
    assert [counted(goal, amount).ok for amount in (0.0, 2.0)] == [True, False]


def test_ratios_are_those_of_pairs() -> None:
    """Sample and floor doubled together, as on a busy machine, leave the ratio; the row keeps the median floor."""
    row = sampled(Goal("f", "title", 2.0, "× floor_ram"), [3.0, 6.0] * 5, [2.0, 4.0] * 5)
    assert (row.amount, row.interval, row.ok, row.floor_s) == (1.5, (1.5, 1.5), True, median([2.0, 4.0]))


def test_a_row_says_ratio_or_value_by_its_unit() -> None:
    """Exactly the seven keys; a unit that begins with × is a ratio."""
    keys = {"figure", "unit", "goal", "ok", "interval", "floor_s"}
    assert set(sampled(Goal("f", "t", 1.0, "× steady"), [1.0] * 6).as_json()) == keys | {"ratio"}
    assert set(counted(Goal("f", "t", 0.0, "names"), 0).as_json()) == keys | {"value"}
