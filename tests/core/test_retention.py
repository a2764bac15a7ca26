"""Which committed steps may be deleted: the rows A-KEEP of the faults that bit others."""

from __future__ import annotations

import random

import pytest
from core_values import at, history
from hypothesis import given
from hypothesis import strategies as st

from hinan.core.errors import ConfigError
from hinan.core.ids import StepId
from hinan.core.lineage import Lineage, lineage
from hinan.core.retention import Keep, removable

LINE = lineage(history(None))


def gone(
    steps: list[int], keep: Keep, line: Lineage = LINE, source: StepId | None = None, w: int | None = 10**6
) -> list[int]:
    newest = at(max(line.limits), w) if w is not None else None
    return [s.step for s in removable([at(1, s) for s in steps], line, keep, resumed_from=source, w=newest)]


def test_keep_1_keep_the_old_one_until_its_successor_is_committed() -> None:
    """A-KEEP-1: with keep=1 the only committed step is never removable; the older of two is."""
    assert gone([1], Keep(last=1)) == []
    assert gone([1, 2], Keep(last=1)) == [1]


def test_keep_2_steps_are_numbers() -> None:
    """A-KEEP-2: saved in any order, kept are the largest numbers, not the largest texts."""
    steps = [8, 9, 10, 11, 99, 100, 1000]
    for seed in range(5):
        shuffled = random.Random(seed).sample(steps, len(steps))
        assert gone(shuffled, Keep(last=2)) == [8, 9, 10, 11, 99]


def test_keep_3_steps_of_another_past_neither_count_nor_go() -> None:
    """A-KEEP-3: after a fresh start an old step 1000 does not push out 10 and 20, and is not deleted itself."""
    line = lineage(history(None, None))
    found = removable([at(1, 1000), at(2, 10), at(2, 20)], line, Keep(last=1), resumed_from=None, w=at(2, 20))
    assert found == (at(2, 10),)


def test_keep_5_a_rolled_back_step_hides_nothing() -> None:
    """A-KEEP-5: after a rollback to 10, a stale 20 of the old attempt does not count as newest."""
    line = lineage(history(None, at(1, 10)))
    assert removable([at(1, 10), at(1, 20)], line, Keep(last=1), resumed_from=at(1, 10), w=at(1, 10)) == ()


@pytest.mark.parametrize("last", [0, -1, True, 1.5, "3"])
def test_keep_6_nonsense_is_refused(last: object) -> None:
    """A-KEEP-6: 0 and -1 are not "all": they are errors that say what to write."""
    with pytest.raises(ConfigError, match="at least 1, or None"):
        Keep(last=last)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="at least 1, or None"):
        Keep(every=last)  # type: ignore[arg-type]


@given(st.sets(st.integers(1, 200)), st.one_of(st.none(), st.integers(1, 5)), st.one_of(st.none(), st.integers(1, 50)))
def test_keep_6_no_setting_deletes_the_newest(steps: set[int], last: int | None, every: int | None) -> None:
    """A-KEEP-6: the newest `last` stay, multiples of `every` stay, None keeps all."""
    found = gone(sorted(steps), Keep(last=last, every=every))
    kept = steps - set(found)
    assert set(found) <= steps
    assert set(sorted(steps)[-(last or len(steps) or 1) :]) <= kept
    assert not any(every and s % every == 0 for s in found)


def test_keep_7_asking_twice_is_the_same() -> None:
    """A-KEEP-7: what is gone already is not asked for again; the rest of the answer does not change."""
    assert gone([1, 2, 3, 4], Keep(last=2)) == [1, 2]
    assert gone([2, 3, 4], Keep(last=2)) == [2]
    assert gone([3, 4], Keep(last=2)) == []


@pytest.mark.parametrize(
    ("committed", "w", "pinned"),
    [
        (at(2, 50), at(2, 50), False),
        (at(2, 50), at(2, 60), False),
        (at(2, 50), at(1, 40), True),
        (at(2, 50), None, True),
    ],
)
def test_the_resume_source_is_pinned_until_something_newer_is_safe_twice(
    committed: StepId, w: StepId | None, pinned: bool
) -> None:
    """F3: a newer step must be committed on the target and held everywhere in RAM before the source may go."""
    line = lineage(history(None, at(1, 40)))
    found = removable([at(1, 40), committed], line, Keep(last=1), resumed_from=at(1, 40), w=w)
    assert (at(1, 40) not in found) is pinned
