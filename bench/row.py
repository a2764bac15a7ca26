"""One row of the table: a figure, its goal, and what the samples say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.statistics import median, median_interval, ratios, verdict


@dataclass(frozen=True)
class Goal:
    """What a figure promises: at most `most`, in `unit`. A unit that begins with × makes it a ratio to a floor.

    Attributes:
        most: None for a part of another figure, which is told and promises nothing by itself.
    """

    figure: str
    title: str
    most: float | None
    unit: str

    @property
    def is_ratio(self) -> bool:
        return self.unit.startswith("×")


@dataclass(frozen=True)
class Row:
    """A figure as it was measured."""

    goal: Goal
    amount: float
    interval: tuple[float, float]
    ok: bool | None
    floor_s: float | None

    def as_json(self) -> dict[str, Any]:
        """Exactly figure, ratio or value, unit, goal, ok, interval, floor_s."""
        return {
            "figure": self.goal.figure,
            "ratio" if self.goal.is_ratio else "value": self.amount,
            "unit": self.goal.unit,
            "goal": self.goal.most,
            "ok": self.ok,
            "interval": list(self.interval),
            "floor_s": self.floor_s,
        }


def sampled(goal: Goal, samples: Sequence[float], floors_s: Sequence[float] | None = None) -> Row:
    """The median of samples; of their ratios to the floors measured beside them, where there are floors."""
    amounts = list(samples) if floors_s is None else ratios(samples, floors_s)
    interval = median_interval(amounts)
    floor_s = None if floors_s is None else median(floors_s)
    return Row(goal, median(amounts), interval, verdict(goal.most, interval, len(amounts)), floor_s)


def counted(goal: Goal, amount: float, *, enough: bool = True) -> Row:
    """A count, which has no interval.

    Args:
        enough: as much was counted as the goal speaks of; less says nothing about it.
    """
    return Row(goal, amount, (amount, amount), verdict(goal.most, (amount, amount), 0) if enough else None, None)
