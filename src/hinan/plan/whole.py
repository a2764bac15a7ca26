"""The search in whole steps and whole multiples, on the exact form.

Owns:      the moves. `best_pattern` takes a space (levels, bounds, least and most intervals) and intervals to start from.
Promises:  deterministic. What it returns keeps every bound if any pattern it met does. Along a stall budget whole multiples
           are climbed with the first interval solved from the budget: there one interval alone is stuck.
Relies on: nested intervals: least and most intervals never shrink from level to level.
Never:     says why nothing keeps the bounds; `joint.py` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from hinan.plan.exact import exact_ettr
from hinan.plan.first_order import first_order_loss, stall_ratio
from hinan.plan.levels import Level, Pattern

_MAX_MULTIPLE = 1_000_000
_TOPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Multiples of the slowest level from which the climb along a budget may begin."""
_LEAPS = (1.25, 1.5, 2.0, 5.0)
"""Beside one more or less, a count moves by these factors along a budget."""
_STEPS = 4
"""By so many steps the first interval moves along a budget: whole numbers make its edge jagged."""


@dataclass(frozen=True)
class Bounds:
    """What the search must respect beside the levels' own limits."""

    quantum_s: float | None = None
    """Training step: level-1 intervals are whole multiples of it; None: any length."""
    max_stall_ratio: float | None = None
    fixed_first_s: float | None = None
    """Judge this level-1 interval: only the others are searched."""


@dataclass(frozen=True)
class Space:
    """Where to search: levels, bounds, and least and most interval of each level once nesting is taken into account."""

    levels: tuple[Level, ...]
    bounds: Bounds
    least_s: tuple[float, ...]
    most_s: tuple[float, ...]
    _seen: dict[Pattern, tuple[float, float]] = field(default_factory=dict, compare=False, repr=False)
    """Many trials snap to the same whole numbers."""

    @property
    def quantum_s(self) -> float | None:
        """What the first interval is a whole multiple of; None: any length, or given."""
        return None if self.bounds.fixed_first_s is not None else self.bounds.quantum_s

    def value(self, pattern: Pattern) -> tuple[float, float]:
        """What the search makes large: first the bounds are kept, then the exact share of kept training counts. Where a
        float cannot hold it: minus the first-order loss, so that the search still knows which way is better."""
        if pattern not in self._seen:
            excess = self._excess(pattern)
            kept = 0.0
            if excess <= 0:
                kept = exact_ettr(self.levels, pattern) or -first_order_loss(self.levels, pattern.intervals_s())
            self._seen[pattern] = (-excess if excess > 0 else 0.0, kept)
        return self._seen[pattern]

    def _excess(self, pattern: Pattern) -> float:
        """By how much the pattern breaks its bounds, as a sum of shares of them [0-]; 0: allowed."""
        intervals = pattern.intervals_s()
        excess = 0.0
        for low, tau, high in zip(self.least_s, intervals, self.most_s, strict=True):
            if not low * (1 - 1e-9) <= tau <= high * (1 + 1e-9):
                excess += max(low / tau, tau / high) - 1
        limit = self.bounds.max_stall_ratio
        if limit is not None and (ratio := stall_ratio(self.levels, intervals)) > limit * (1 + 1e-9):
            excess += ratio / limit - 1
        return excess

    def snap(self, aims: Sequence[float]) -> Pattern:
        """The nested pattern nearest to the intervals aimed at."""
        least, most, quantum = self.least_s, self.most_s, self.quantum_s
        first = min(max(aims[0], least[0]), most[0])
        if quantum is not None:
            steps = max(1, round(first / quantum))
            steps = max(steps, math.ceil(least[0] / quantum - 1e-9))
            while steps > 1 and steps * quantum > most[0] * (1 + 1e-12):
                steps -= 1
            first = steps * quantum
        multiples, below = [], first
        for k in range(1, len(aims)):
            wanted = max(1, round(min(max(aims[k], least[k]), most[k]) / below))
            wanted = max(wanted, math.ceil(least[k] / below - 1e-9))
            if wanted * below > most[k] * (1 + 1e-12) and wanted > 1:
                wanted = max(1, math.floor(most[k] / below + 1e-9))
            multiples.append(min(wanted, _MAX_MULTIPLE))
            below *= multiples[-1]
        return Pattern(first, tuple(multiples))

    def with_multiples(self, multiples: Sequence[int]) -> Pattern:
        """These multiples over the first interval that suits them to first order, as short as the budget and the least
        intervals allow and no longer than the most ones do."""
        if self.bounds.fixed_first_s is not None:
            return Pattern(self.bounds.fixed_first_s, tuple(multiples))
        counts = [1]
        for multiple in multiples:
            counts.append(counts[-1] * multiple)
        stall_s = sum(level.stall_s / count for level, count in zip(self.levels, counts, strict=True))
        redo_per_s = sum(level.per_s * count for level, count in zip(self.levels, counts, strict=True))
        low = max(least / count for least, count in zip(self.least_s, counts, strict=True))
        if self.bounds.max_stall_ratio is not None:
            low = max(low, stall_s / self.bounds.max_stall_ratio)
        high = min(most / count for most, count in zip(self.most_s, counts, strict=True))
        wanted = max(low, min(math.sqrt(2 * stall_s / redo_per_s), high))
        if self.quantum_s is not None:
            wanted = max(1, math.ceil(wanted / self.quantum_s - 1e-9)) * self.quantum_s
        return Pattern(wanted, tuple(multiples))

    def with_first(self, work_s: float, multiples: Sequence[int], k: int) -> Pattern | None:
        """This first interval and these multiples, but for the k-th: it is the least that the budget allows; None: none."""
        limit = self.bounds.max_stall_ratio
        intervals = Pattern(work_s, (*multiples[:k], 1, *multiples[k + 1 :])).intervals_s()
        below, above = (
            stall_ratio(self.levels[: k + 1], intervals[: k + 1]),
            stall_ratio(self.levels[k + 1 :], intervals[k + 1 :]),
        )
        if limit is None or below >= limit or (least := math.ceil(above / (limit - below) - 1e-9)) > _MAX_MULTIPLE:
            return None
        return Pattern(work_s, (*multiples[:k], max(1, least), *multiples[k + 1 :]))


def best_pattern(space: Space, start: Sequence[float]) -> Pattern:
    """The best pattern met; it may break a bound where nothing met keeps them all."""
    horizon = 10 / min(level.per_s for level in space.levels if level.per_s > 0)
    best = _by_factors(space, [tau if math.isfinite(tau) else horizon for tau in start])
    best = _climbed(best, lambda pattern: _neighbours(pattern, space.quantum_s), space)
    if space.bounds.max_stall_ratio is None or not best.multiples:
        return best
    seeds = [space.with_multiples((*best.multiples[:-1], top)) for top in _TOPS]
    along = _climbed(max([best, *seeds], key=space.value), lambda pattern: _on_the_edge(pattern, space), space)
    along = _climbed(along, lambda pattern: _neighbours(pattern, space.quantum_s), space)
    return max(best, along, key=space.value)


def _by_factors(space: Space, aims: Sequence[float]) -> Pattern:
    """Pattern search: intervals by factors that shrink until nothing moves.

    Each interval alone, and each against another: along a limit only two together can move.
    """
    best = space.snap(aims)
    factor, last = 1.6, 1.0003 if space.bounds.quantum_s else 1.000002
    while factor > last:
        moved = False
        for scales in _directions(len(aims), factor):
            trial_aims = [aim * scale for aim, scale in zip(aims, scales, strict=True)]
            trial = space.snap(trial_aims)
            if space.value(trial) > space.value(best):
                aims, best, moved = trial_aims, trial, True
        if not moved:
            factor = math.sqrt(factor)
    return best


def _directions(count: int, factor: float) -> list[list[float]]:
    """Factors on the intervals: one longer or shorter, or one longer and another shorter."""
    alone = [[scale if k == j else 1.0 for k in range(count)] for j in range(count) for scale in (factor, 1 / factor)]
    pairs = [
        [factor if k == up else 1 / factor if k == down else 1.0 for k in range(count)]
        for up in range(count)
        for down in range(count)
        if up != down
    ]
    return alone + pairs


def _climbed(best: Pattern, neighbours: Callable[[Pattern], Sequence[Pattern]], space: Space) -> Pattern:
    """Improves until no neighbour is better."""
    for _ in range(200):
        better = max(neighbours(best), key=space.value, default=best)
        if space.value(better) <= space.value(best):
            break
        best = better
    return best


def _neighbours(pattern: Pattern, quantum_s: float | None) -> list[Pattern]:
    """One step or one multiple more or less: all slower intervals move along, or stay nearly where they are."""
    unit = pattern.work_s if quantum_s is None else quantum_s
    counts = [round(pattern.work_s / unit), *pattern.multiples]
    found: list[list[int]] = []
    for k in range(1 if quantum_s is None else 0, len(counts)):
        for count in (counts[k] - 1, counts[k] + 1):
            if count >= 1:
                found += _moved(counts, k, count)
    return [Pattern(first * unit, tuple(multiples)) for first, *multiples in found]


def _on_the_edge(pattern: Pattern, space: Space) -> list[Pattern]:
    """Patterns near the budget: other multiples with the first interval that suits them, or another first interval with
    one multiple as small as the budget then allows, the last one also beside another that moves by one."""
    counts = [*pattern.multiples]
    found = []
    for k, count in enumerate(counts):
        for other in _others(count, 1):
            found += [space.with_multiples(multiples) for multiples in _moved(counts, k, other)]
    if space.quantum_s is not None:
        for steps in _others(round(pattern.work_s / space.quantum_s), _STEPS):
            tight = (space.with_first(steps * space.quantum_s, counts, k) for k in range(len(counts)))
            found += [each for each in tight if each is not None]
            beside = (
                [*counts[:k], other, *counts[k + 1 :]] for k in range(len(counts) - 1) for other in _by_one(counts[k])
            )
            tight = (space.with_first(steps * space.quantum_s, each, len(counts) - 1) for each in beside)
            found += [each for each in tight if each is not None]
    return found


def _by_one(count: int) -> list[int]:
    return [other for other in (count - 1, count + 1) if other >= 1]


def _others(count: int, near: int) -> list[int]:
    """Counts near this one, and by leaps."""
    leaps = [round(count * leap) for leap in _LEAPS] + [round(count / leap) for leap in _LEAPS]
    others = {*range(count - near, count + near + 1), *leaps} - {count}
    return sorted(other for other in others if 1 <= other <= _MAX_MULTIPLE)


def _moved(counts: Sequence[int], k: int, count: int) -> Iterator[list[int]]:
    """Counts with another one at `k`: the slower intervals move along, or stay nearly where they are."""
    moved = [*counts[:k], count, *counts[k + 1 :]]
    yield moved
    if k + 1 < len(counts):
        stays = counts[k] * counts[k + 1] / count
        for near in (math.floor(stays), math.ceil(stays)):
            if near >= 1:
                yield [*moved[: k + 1], near, *moved[k + 2 :]]
