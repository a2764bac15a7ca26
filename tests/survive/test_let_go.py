"""Who drops an evacuator after its end gets back the memory of model, optimizer and RAM copies at once."""

from __future__ import annotations

import pytest

from tests.harness.job import MakeJob


@pytest.mark.parametrize("how", ["closed", "raised", "copy failed", "not closed"])
def test_nothing_is_kept_until_python_collects_garbage(how: str, make_job: MakeJob) -> None:
    """On a device the restart in the same process needs the old model's memory for the new one."""
    job = make_job("run")
    (child,) = job.start(program="let_go:main", how=how)
    child.ok()
    assert (job.out / "done").exists()
