"""Gradients are not kept: no evacuation falls into an accumulation, and none is put off for gradients that nobody needs.

Each loop is SIGKILLed in mid-iteration; resumed, it is the run that nothing happened to, bit for bit.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.harness.job import MakeJob, assert_same_run
from tests.programs.loop import resumes

AFTER_A_STEP_OF_FOUR = [8, 12, 16, 20, 28, 32]
AS_DUE = [5, 10, 15, 20, 25, 30]


@pytest.mark.parametrize(
    ("kind", "held"),
    [
        ("accumulated", AFTER_A_STEP_OF_FOUR),
        ("accumulated_beside_writes", AFTER_A_STEP_OF_FOUR),
        ("middle_accumulated", AFTER_A_STEP_OF_FOUR),
        ("windows_of_one_and_two", [6, 10, 15, 21, 25, 30]),
        ("zeroed_in_place", AS_DUE),
        ("adversarial", AS_DUE),
    ],
)
def test_a_killed_run_resumes_outside_all_accumulations(make_job: MakeJob, kind: str, held: list[int]) -> None:
    """Due at every fifth step. What is held are boundaries at which no gradient is needed, before the kill and after it."""
    plain, job = (make_job(name, kind=kind, steps=34) for name in ("plain", "run"))
    for one in (plain, job):
        one.start_agent()
    plain.run(program="pending:main", every=1000)
    (child,) = job.start(program="pending:main", every=5, die_at=held[3] + 3)
    assert child.wait() == -9
    log = child.output
    job.run(program="pending:main", every=5)
    assert held_steps(log) == held[:4]
    assert held_steps(job.children[-1].output.removeprefix(log)) == held[4:]
    assert [step for _, step, _ in resumes(job.out)] == [0, held[3]]
    assert_same_run(job, plain)


def test_what_is_put_off_and_what_is_not_kept_is_said_once(make_job: MakeJob) -> None:
    logs = {kind: trained(make_job, kind, every=5) for kind in ("accumulated", "adversarial", "zeroed_in_place")}
    assert logs["accumulated"].count("hinan INFO put off step=5 optimizer=optim why=its gradients wait") == 1
    assert logs["adversarial"].count("gradients of critics that have changed after its step") == 1
    assert [log.count("put off") for log in logs.values()] == [1, 0, 0]
    assert "not kept" not in logs["zeroed_in_place"]


def test_distrust_that_comes_after_the_first_evacuation_is_told_once(make_job: MakeJob) -> None:
    """Nothing had been earned that it could lose."""
    log = trained(make_job, "accumulated_beside_writes", every=1)
    assert held_steps(log) == [4, 8, 12, 16, 20, 24]
    assert log.count("is changed after evac.step() and before its optimizer steps") == 1


def test_no_two_images_are_of_the_same_accumulation(make_job: MakeJob) -> None:
    """A copy is torn once, and the accumulation goes on: images of one window would be equal, and alarm the agent."""
    log = trained(make_job, "accumulated_torn_once", every=1, check="bits")
    assert "lost step=8" in log
    assert held_steps(log) == [4, 12, 16, 20, 24]
    assert "is bit-equal to step" not in log


def trained(make_job: MakeJob, kind: str, **settings: Any) -> str:
    """The log of a whole run."""
    job = make_job(kind, kind=kind, steps=24)
    job.start_agent()
    job.run(program="pending:main", **settings)
    return job.children[-1].output


def held_steps(log: str) -> list[int]:
    return [int(step) for step in re.findall(r"held step=(\d+)", log)]
