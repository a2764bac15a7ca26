"""Curves for pictures: loss against interval, interval against scale. The exact form at a few points.

Owns:      which points. Never: draws.
"""

from __future__ import annotations

from hinan.plan.decision.design import Design
from hinan.plan.intervals.exact import exact_ettr
from hinan.plan.intervals.levels import Pattern


def waste_curve(design: Design, *, count: int = 61, span: float = 30.0) -> list[tuple[float, float]]:
    """(interval of the fastest tier [s], loss) from optimum / span to optimum x span, on a logarithmic grid.

    Slower tiers keep their intervals as nearly as whole multiples allow.
    """
    centre_s = design.pattern.work_s
    points = []
    for i in range(count):
        interval_s = centre_s * span ** (2 * i / (count - 1) - 1)
        points.append(
            (interval_s, 1 - exact_ettr(design.levels, with_first(design, interval_s)) / (1 + design.verify_ratio))
        )
    return points


def with_first(design: Design, interval_s: float) -> Pattern:
    """The design's pattern with another first interval, the others kept as nearly as nesting allows."""
    multiples, below_s = [], interval_s
    for wanted_s in design.pattern.intervals_s()[1:]:
        multiples.append(max(1, round(wanted_s / below_s)))
        below_s *= multiples[-1]
    return Pattern(interval_s, tuple(multiples))
