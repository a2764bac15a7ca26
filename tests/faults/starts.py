"""Attempts that only start: refused with which words, or going on from what was saved."""

from __future__ import annotations

from typing import Any

from tests.harness.job import Job, until


def start_once(job: Job, **arguments: Any) -> dict[str, Any]:
    """One attempt of `small:start_once`; what rank 0 told."""
    for child in job.start(program="small:start_once", **arguments):
        child.ok()
    return job.result()


def refused(job: Job, kind: str, *texts: str, **arguments: Any) -> None:
    """An attempt is refused with an error of this kind that says all of these."""
    error = start_once(job, **arguments)["error"]
    assert error is not None
    assert error["type"] == kind, error
    for text in texts:
        assert text in error["text"], error["text"]


def saved(job: Job) -> Job:
    """A job that has run once to a good end: step 1 is committed, and its state is 1 above the start."""
    job.start_agent()
    assert start_once(job)["error"] is None
    until(lambda: job.agent is None, what="the agent's end after close")
    return job


def still_resumes(job: Job) -> None:
    """Earlier evacuations are intact: the next attempt goes on from the step that `saved` left."""
    job.start_agent()
    found = start_once(job)
    assert (found["error"], found["step"], found["w"]) == (None, 1, [1.0, 2.0, 3.0, 4.0])
