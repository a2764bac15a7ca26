"""All ranks change the cadence at the same step, whoever is slow, and never by a clock (rule M2)."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from hinan.core.cadence import Cadence, parse_every
from hinan.formats.records import CadenceRecord
from hinan.plan.observed.running import RunningJob
from hinan.tiers.arena import Arena
from hinan.trainer.attempt.cadence import CadenceKeeper

FAST = RunningJob(step_s=0.1, stall_s=0.01, drain_s=0.5)


def ranks(tmp_path: Path, count: int, every: str = "2s", commit: str = "4s") -> list[CadenceKeeper]:
    asked = parse_every(every, "every"), parse_every(commit, "commit_every")
    return [CadenceKeeper(Arena(tmp_path), rank, count, 1, asked, Cadence(0, 10, 1)) for rank in range(count)]


def advance(keeper: CadenceKeeper, step: int, measured: RunningJob = FAST) -> bool:
    """What `Evacuator.step` does at a step; whether it evacuates."""
    if keeper.next_look and step >= keeper.next_look:
        keeper.at_step(step)
    due = keeper.now.due(step)
    if due:
        keeper.at_evacuation(step, lambda: measured)
    return due


@pytest.mark.parametrize("seed", range(30))
def test_every_rank_evacuates_the_same_steps(tmp_path: Path, seed: int) -> None:
    """Ranks run up to 45 steps apart in a random order; the sets of evacuated steps are equal all the same."""
    order = random.Random(seed)
    keepers = ranks(tmp_path, 3)
    at, evacuated = [0, 0, 0], [[], [], []]
    while min(at) < 150:
        rank = order.choice([r for r in range(3) if at[r] < 150 and at[r] - min(at) < order.choice([1, 5, 45])])
        at[rank] += 1
        if advance(keepers[rank], at[rank]):
            evacuated[rank].append(at[rank])
    assert evacuated[0] == evacuated[1] == evacuated[2]


def test_a_duration_becomes_steps_from_rank_0s_measurements(tmp_path: Path) -> None:
    """2 s at 0.1 s a step is 20 steps, although rank 1 measured something else; commits are a multiple."""
    keepers = ranks(tmp_path, 2)
    for step, keeper in itertools.product(range(1, 60), keepers):
        advance(keeper, step, FAST if keeper is keepers[0] else RunningJob(step_s=9.0))
    assert {(k.now.every_steps, k.now.commit_multiple) for k in keepers} == {(20, 2)}
    assert keepers[0].now.from_step == 40


def test_a_rank_that_never_saw_the_proposal_keeps_all_ranks_on_the_old_one(tmp_path: Path) -> None:
    """Without the acknowledgement of every rank the change is rejected for all, and the next one may succeed."""
    keepers = ranks(tmp_path, 2)
    for step in range(1, 45):
        advance(keepers[0], step)
    assert keepers[0].now.every_steps == 10
    for step in range(1, 45):
        advance(keepers[1], step)
    assert keepers[1].now == keepers[0].now
    for step, keeper in itertools.product(range(45, 140), keepers):
        advance(keeper, step)
    assert [k.now.every_steps for k in keepers] == [20, 20]


def test_a_rank_that_arrives_before_the_verdict_binds_all_to_the_old_one(tmp_path: Path) -> None:
    """Rank 1 promises, runs ahead and finds no verdict: it publishes "rejected", and rank 0's later "accepted" is void."""
    keepers = ranks(tmp_path, 2)
    evacuated: list[list[int]] = [[], []]
    for step in range(1, 11):
        advance(keepers[0], step)
    for rank, steps in ((1, range(1, 81)), (0, range(11, 81))):
        evacuated[rank] = [step for step in steps if advance(keepers[rank], step) and step > 10]
    assert evacuated[0] == evacuated[1]
    assert [k.now.every_steps for k in keepers] == [10, 10]


def test_steps_asked_for_never_change(tmp_path: Path) -> None:
    """`every=10` stays 10, whatever is measured."""
    (keeper,) = ranks(tmp_path, 1, every=10, commit=30)  # type: ignore[arg-type]
    keeper.now = Cadence(0, 10, 3)
    assert [s for s in range(1, 100) if advance(keeper, s)] == list(range(10, 100, 10))
    assert [path.name for path in tmp_path.glob("cadence-*")] == ["cadence-000001-0000.json"]


def changing(step: int) -> RunningJob:
    """Steps that take 0.1 s and 0.4 s in turn, so that another cadence is wanted again and again."""
    return RunningJob(step_s=(0.1, 0.4)[step // 70 % 2], stall_s=0.01, drain_s=0.5)


@pytest.mark.parametrize("seed", range(6))
def test_facts_of_changes_do_not_pile_up(tmp_path: Path, seed: int) -> None:
    """Dozens of changes, accepted and rejected, by ranks that run up to 45 steps apart: every rank evacuates the same
    steps, and what stands is the last accepted change and the one under way."""
    order = random.Random(seed)
    keepers = ranks(tmp_path, 3)
    at, evacuated, changes = [0, 0, 0], [[], [], []], set()
    while min(at) < 1000:
        rank = order.choice([r for r in range(3) if at[r] < 1000 and at[r] - min(at) < order.choice([1, 5, 45])])
        at[rank] += 1
        if advance(keepers[rank], at[rank], changing(at[rank])):
            evacuated[rank].append(at[rank])
        changes.add(keepers[0].now)
        standing = {name.partition(".")[0] for name in keepers[0]._arena.names("cadence-")}
        late = {n for n in standing if int(n[-4:]) < keepers[0]._number and int(n[-4:]) != keepers[0]._accepted}
        assert len(standing - late) <= 2
        assert all(len(keepers[0]._arena.names(n)) <= 2 for n in late)  # a late acknowledgement and its own rejection
        assert len(late) <= 2
    assert evacuated[0] == evacuated[1] == evacuated[2]
    assert len(changes) >= 5
    assert all(len(keeper._arena._cache) <= 8 for keeper in keepers)


def test_a_rank_that_missed_removed_changes_joins_the_next(tmp_path: Path) -> None:
    """Rank 1 is far behind, so that changes are rejected and their facts removed: it acknowledges the one that stands."""
    keepers = ranks(tmp_path, 2)
    for step in range(1, 200):
        advance(keepers[0], step)
    assert keepers[0]._number >= 4
    standing = {n[:19] for n in keepers[0]._arena.names("cadence-")}
    assert standing == {"cadence-000001-0000", f"cadence-000001-{keepers[0]._number:04d}"}
    for step in range(1, 200):
        advance(keepers[1], step)
    for step, keeper in itertools.product(range(200, 260), keepers):
        advance(keeper, step)
    assert [k.now.every_steps for k in keepers] == [20, 20]


def test_a_new_attempt_removes_the_facts_of_older_ones(tmp_path: Path) -> None:
    """An arena outlives its attempts: their changes go, those of an attempt that is newer still stay."""
    arena = Arena(tmp_path)
    for name in ("cadence-000001-0000.json", "cadence-000001-0000.ack-3", "cadence-000003-0001.json"):
        (tmp_path / name).write_text("x")
    asked = parse_every(10, "every"), parse_every(10, "commit_every")
    CadenceKeeper(arena, 1, 2, 2, asked, Cadence(0, 10, 1))
    assert len(arena.names("cadence-")) == 3
    CadenceKeeper(arena, 0, 2, 2, asked, Cadence(0, 10, 1))
    assert arena.names("cadence-") == ["cadence-000002-0000.json", "cadence-000003-0001.json"]


def test_auto_is_decided_by_rank_0_and_again_when_more_is_known(tmp_path: Path) -> None:
    """Nothing before a stall was measured; then evacuations; commits once a drain has ended; and noise moves nothing."""
    keepers = ranks(tmp_path, 2, every="auto", commit="auto")

    def go_on(first: int, last: int, job: RunningJob) -> list[tuple[int, int]]:
        for step, keeper in itertools.product(range(first, last), keepers):
            advance(keeper, step, job if keeper is keepers[0] else RunningJob())
        assert keepers[0].now == keepers[1].now
        return [(keepers[0].now.every_steps, keepers[0].now.commit_multiple)]

    assert go_on(1, 60, RunningJob(step_s=0.5, drain_s=4.0)) == [(10, 1)]
    assert not keepers[0].next_look
    (every, multiple), *_ = go_on(60, 120, RunningJob(step_s=0.5, stall_s=0.001))
    assert every > 10
    assert multiple == 1
    known = RunningJob(step_s=0.5, stall_s=0.001, drain_s=30.0)
    (again, multiple), *_ = go_on(120, 120 + 8 * every, known)
    assert again == every
    assert multiple > 1
    noisy = RunningJob(step_s=0.5, stall_s=0.0011, drain_s=27.0)
    number = keepers[0]._number
    assert go_on(120 + 8 * every, 120 + 40 * every, noisy) == [(every, multiple)]
    assert keepers[0]._number == number


def test_a_decision_equal_to_the_warm_up_is_written_down_with_its_reason(tmp_path: Path) -> None:
    """Ten steps by chance are not "nothing was measured yet"."""
    (keeper,) = ranks(tmp_path, 1, every="auto", commit=10)  # type: ignore[arg-type]
    lucky = RunningJob(step_s=0.5, stall_s=3.4e-4)
    for step in range(1, 60):
        advance(keeper, step, lucky)
    assert keeper.now.every_steps == 10
    assert keeper.now.from_step > 0
    (record,) = [r for n in range(9) if (r := keeper._arena.fact(f"cadence-000001-{n:04d}.json", CadenceRecord))]
    assert record.is_decided
    assert "stall 340 µs" in record.every_why
