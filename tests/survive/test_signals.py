"""Handlers of signals that raise, or call the evacuator, while it is at work."""

from __future__ import annotations

import pytest

from tests.harness.job import MakeJob


@pytest.mark.parametrize("then", ["again", "on", "close"])
def test_an_exception_of_a_handler_passes_through_and_no_copy_is_left_behind(then: str, make_job: MakeJob) -> None:
    """A-HANG-1, D2: what a handler raises in the middle of a copy is the loop's, not a failed copy; whatever the loop does
    next, the slot is neither unmapped nor given away before the copy has ended."""
    job = make_job("run")
    (child,) = job.start(program="signalled:during_the_copy", then=then)
    child.ok()
    assert (job.out / "done").exists()
    assert child.output.count("lost step=2") == (then != "again")


def test_calls_from_a_handler_inside_a_call_are_refused(make_job: MakeJob) -> None:
    """The call that was interrupted cannot go on meanwhile: waiting for it there would never end."""
    job = make_job("run")
    (child,) = job.start(program="signalled:nested")
    child.ok()
    assert job.committed() == [1, 2]
    assert (job.out / "done").exists()


def test_an_evacuation_in_the_middle_of_an_iteration_is_refused(make_job: MakeJob) -> None:
    """The state behind optimizer.step() is not that of the step that was counted last."""
    job = make_job("run")
    (child,) = job.start(program="signalled:in_an_iteration")
    child.ok()
    assert job.committed()[-1] == 4
    assert (job.out / "done").exists()


@pytest.mark.parametrize("where", ["emit", "flush"])
@pytest.mark.parametrize("call", ["close", "evacuate", "wait", "wait for a lost one"])
def test_a_handler_that_interrupts_a_line_of_the_log_may_call(call: str, where: str, make_job: MakeJob) -> None:
    """A-HANG-1: the lock of that line is held all the while, and what lands the copy logs; the line comes afterwards."""
    job = make_job("run")
    (child,) = job.start(program="signalled:in_a_line_of_the_log", call=call, where=where)
    child.ok()
    assert (job.out / "done").exists()
    assert child.output.count("report lost step=6" if "lost" in call else "held step=6") == 1
