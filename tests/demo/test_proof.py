"""The proof notices every difference, however small, and whatever is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hinan.demo.diary import Diary, Line, read_diaries
from hinan.demo.proof import Record, bump, can_fail, compare, record

STEPS, RANKS = 4, 2


def diary(attempt: int = 1, steps: range = range(1, STEPS + 1)) -> list[Line]:
    """A run as its loop would write it."""
    lines: list[Line] = []
    for rank in range(RANKS):
        for step in steps:
            at = {"rank": rank, "attempt": attempt, "step": step, "at": float(step)}
            lines.append({"event": "step", "loss": (5.0 - step * 0.25 + rank).hex(), **at})
            if step % 2 == 0:
                lines.append({"event": "state", "digests": {"model.w": f"{rank}{step}", "rng.torch": "cafe"}, **at})
    return lines


def same(run: list[Line]) -> tuple[str, ...]:
    return compare(record(diary()), record(run), ranks=RANKS, steps=STEPS).differences


def test_a_run_equals_itself_also_with_steps_made_twice() -> None:
    """A resumed run that repeats steps exactly is the same run."""
    assert same(diary()) == ()
    assert same(diary(1, range(1, 4)) + diary(2, range(3, STEPS + 1))) == ()


@pytest.mark.parametrize("attempt", [1, 2])
def test_one_bit_of_one_loss(attempt: int) -> None:
    """Also a wrong loss in an attempt whose steps were made again later."""
    run = diary(1, range(1, 4)) + diary(2, range(3, STEPS + 1))
    line = next(x for x in run if x["event"] == "step" and x["attempt"] == attempt and x["step"] == 3)
    value = torch.tensor(float.fromhex(line["loss"]))
    line["loss"] = torch.nextafter(value, value + 1).item().hex()
    (difference,) = same(run)
    assert difference.startswith(f"loss of rank 0, attempt {attempt}, step 3")


@pytest.mark.parametrize("change", [{"model.w": "x"}, {"rng.torch": ""}, {"extra": "1"}])
def test_one_digest(change: dict[str, str]) -> None:
    """A changed, or an additional, value is named."""
    run = diary()
    run[-1]["digests"] = run[-1]["digests"] | change
    (difference,) = same(run)
    assert difference == f"{next(iter(change))} of rank 1, attempt 1, after step 4"


def test_what_is_missing_is_not_equal() -> None:
    """A run that lost a step, a value or its end is a different run; so is every run beside an empty reference."""
    assert any("no loss of rank 1, step 3" in text for text in same([x for x in diary() if x["step"] != 3]))
    assert any("no final state" in text for text in same([x for x in diary() if x["event"] == "step"]))
    run = diary()
    del run[-1]["digests"]["rng.torch"]
    assert same(run)
    assert not compare(Record({}, {}), Record({}, {}), ranks=RANKS, steps=STEPS).equal


def test_the_control_is_a_real_one() -> None:
    """`can_fail` is what the demo prints about its own proof; without anything to compare it is False."""
    assert can_fail(record(diary()), ranks=RANKS, steps=STEPS)
    assert not can_fail(Record({}, {}), ranks=RANKS, steps=STEPS)


def test_bump() -> None:
    """The largest and the mean difference of the losses after the resume."""
    run = diary()
    for line in run:
        if line["event"] == "step" and line["step"] == 3:
            line["loss"] = (float.fromhex(line["loss"]) + 0.5).hex()
    found = bump(record(diary()), record(run), ranks=RANKS, steps=STEPS, after=2)
    assert (found.step, found.largest, found.mean, found.steps) == (3, 0.5, 0.25, 2)


def test_a_torn_last_line_is_no_line(tmp_path: Path) -> None:
    """What a killed process had not finished to write does not count, and hides nothing else."""
    pen = Diary(tmp_path, 0)
    pen.write("step", step=1)
    pen.write("step", step=2)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-3])
    assert [line["step"] for line in read_diaries(tmp_path)] == [1]


def test_the_loops_digests_see_every_part_of_the_state() -> None:
    """One bit of a parameter, a moment, a generator, the schedule or the data position changes exactly its digest."""
    from hinan.demo import train
    from hinan.demo.settings import Plan

    plan = Plan("", "", batch=1, context=8, width=16, layers=1, heads=2)
    model, optimizer, schedule, data = train.build(plan, torch.device("cpu"), 0, 1)
    model(*data.next_batch()).backward()
    optimizer.step()
    schedule.step()
    state: dict[str, Any] = {"model": model, "optim": optimizer, "sched": schedule, "data": data}
    before = train.digests(state)
    assert train.digests(state) == before

    def changed() -> set[str]:
        now = train.digests(state)
        found = {name for name in now if now[name] != before[name]}
        before.update(now)
        return found

    model.head.bias.data.view(torch.int32)[0] ^= 1
    assert changed() == {"model.head.bias"}
    optimizer.state[model.norm.weight]["exp_avg_sq"].view(torch.int32)[-1] ^= 1
    assert changed() == {"optim.norm.weight.exp_avg_sq"}
    torch.rand(1)
    assert changed() == {"rng.torch"}
    data.next_batch()
    assert changed() == {"data"}
    optimizer.state.clear()
    assert changed() == set()
    assert not any(name.startswith("optim.norm") for name in train.digests(state))
