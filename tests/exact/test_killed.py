"""Trainers with every kind of state, SIGKILLed in the middle of a step: the run that nothing happened to, bit for bit."""

from __future__ import annotations

import msgspec
import pytest

from hinan.tiers.reading import read_file
from tests.harness.job import MakeJob, assert_same_run, until
from tests.programs.lines import read_lines
from tests.programs.loop import losses, resumes
from tests.trainer.helpers import saved_tensors


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_every_kind_of_state_survives_a_kill(make_job: MakeJob, workers: int) -> None:
    """A-EXACT-6, D8: resumed from RAM, and once more from the target alone; the run it is compared with saved nothing."""
    plain, job = (make_job(name, workers=workers) for name in ("plain", "run"))
    plain.run(program="kinds:main", every=1000, commit_every=1000)
    for die_at in (5, 9):
        (child,) = job.start(program="kinds:main", die_at=die_at)
        assert child.wait() == -9
    until(lambda: max(job.committed(), default=0) >= 8, what="a commit")
    job.kill_agent()
    job.arena.wipe()
    job.run(program="kinds:main")
    assert [r[1:] for r in resumes(job.out)] == [(0, ""), (4, "ram"), (8, "target")]
    assert_same_run(job, plain)


@pytest.mark.slow
def test_every_rank_gets_its_own_generators_back(make_job: MakeJob) -> None:
    """A-EXACT-4: two ranks with other seeds and dropout, 5 steps, a kill, 5 more: losses of each rank are its own."""
    plain, job = (make_job(name, ranks=2, every=5, commit_every=5, steps=10) for name in ("plain", "run"))
    plain.run()
    for child in job.start(die_at=6):
        child.wait()
    job.run()
    assert [resumes(job.out, rank)[-1][1:] for rank in (0, 1)] == [(5, "ram"), (5, "ram")]
    assert_same_run(job, plain)
    first, second = (losses(job.out, rank) for rank in (0, 1))
    assert all(first[step] != second[step] for step in range(1, 11))


def test_the_step_says_how_many_updates_are_in_it(make_job: MakeJob) -> None:
    """A-EXACT-5: saved after update N, the first update of the next attempt is N + 1; schedule, data and optimizer hold N
    updates, and the manifest says N."""
    job = make_job("run", every=3, commit_every=3, wait_committed=[6])
    (child,) = job.start(die_at=7)
    child.wait()
    (step_id,) = (i for i in job.target.step_ids() if i.step == 6)
    manifest = job.target.manifest(step_id, 0)
    assert manifest is not None
    small = msgspec.json.decode(manifest.sealed.small)["state"]
    tensors = saved_tensors(bytearray(read_file(job.target.image_path(step_id, 0))))
    assert manifest.sealed.step == step_id.step == 6
    assert small["sched"]["$stateful"]["last_epoch"] == 6
    assert small["data"] == {"position": 6 * 8, "seen": [2, 3, 4, 5]}
    for _, entry in small["optim"]["$optimizer"]["state"]:
        assert float(tensors[entry["step"]["$tensor"][0]].copy()) == 6
    job.run()
    steps = [line["step"] for line in read_lines(job.out / "rank-0.jsonl")]
    assert steps == [*range(1, 8), *range(7, 21)]
