"""The explorer: the core keeps its promises under random kills, and each planted bug is found."""

from __future__ import annotations

import pytest

from hinan.core.ids import StepId
from hinan.sim.__main__ import main
from hinan.sim.plants import PLANTS
from hinan.sim.schedule import first_violation, play
from hinan.sim.truth import Truth

EVERYDAY_SEEDS = 120
LONG_SEEDS = range(10_000, 13_500)
SEEDS_A_PLANT = 4_000


def test_the_core_keeps_its_promises() -> None:
    """Section H: no schedule of kills, power losses, zombies and damage breaks an invariant, and all get on again."""
    found = first_violation(range(EVERYDAY_SEEDS))
    assert found is None, found.text()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_core_keeps_its_promises_for_long() -> None:
    """The same over thousands of other schedules."""
    found = first_violation(LONG_SEEDS)
    assert found is None, found.text()


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_is_found(name: str) -> None:
    """An explorer that misses a broken rule proves nothing about whole ones; what it found is printed."""
    found = first_violation(range(SEEDS_A_PLANT), PLANTS[name])
    assert found is not None, f"{SEEDS_A_PLANT} seeds did not notice: {PLANTS[name].mistake}"
    print(found.text())


def test_a_seed_is_a_schedule() -> None:
    """The same seed is the same schedule, event by event, so that a transcript can be played again."""
    assert play(7) == play(7)
    assert play(7).transcript != play(8).transcript


def test_the_truth_is_walked_by_its_own_way() -> None:
    """The yardstick knows chains, rollbacks and fresh starts without the core's lineage."""
    truth = Truth()
    for attempt, parent in [(1, None), (2, StepId(1, 40)), (3, StepId(1, 20)), (4, None)]:
        truth.resumed(attempt, parent)
    assert truth.pasts[3] == "1:0>3:20"
    assert [truth.on_line(s, 3) for s in (StepId(1, 20), StepId(1, 21), StepId(2, 50), StepId(3, 99))] == [
        True,
        False,
        False,
        True,
    ]
    assert not truth.on_line(StepId(3, 99))


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0 when promises are kept or a plant is found; one seed prints its transcript."""
    assert main(["--seeds", "2"]) == 0
    assert "2 schedules" in capsys.readouterr().out
    assert main(["--plant", "commit-before-fsync", "--seeds", "5"]) == 0
    assert "before the image of rank" in capsys.readouterr().out
    assert main(["--seed", "3", "--lines", "5"]) == 0
    assert "seed 3" in capsys.readouterr().out
