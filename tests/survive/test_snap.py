"""No image holds a byte that is older or younger than its step: rows A-SNAP of the faults that bit others."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from hinan.core.ids import StepId, image_file
from tests.harness.job import Job, MakeJob, until
from tests.programs.loop import losses
from tests.programs.points import VARIABLE

Tensors = dict[str, torch.Tensor]


def image(job: Job, step: int, rank: int = 0) -> Tensors:
    """A committed image, by a reader that knows nothing of us."""
    step_id = next(s for s in job.target.step_ids() if s.step == step)
    with safe_open(job.target.directory(step_id) / image_file(rank), "pt") as found:
        return {name: found.get_tensor(name) for name in found.keys() if not name.startswith("__")}  # noqa: SIM118


def with_held_drain(make_job: MakeJob, tmp_path: Path, program: str, **settings: object) -> Job:
    """A job whose agent waits in front of the first byte it would write, as long as the file `held` is there."""
    held = tmp_path / "held"
    held.touch()
    job = make_job("run")
    job.start_agent(hold={"do": "WRITE_ASIDE", "file": str(held)})
    (child,) = job.start(program=program, held=str(held), **settings)
    child.ok()
    return job


def test_live_tensors_overwritten_at_once(make_job: MakeJob, tmp_path: Path) -> None:
    """A-SNAP-1: what was filled with twos right after evacuate() is all ones on the target."""
    job = with_held_drain(make_job, tmp_path, "snap:ones")
    found = image(job, 1)
    assert len(found) == 8
    assert all(torch.equal(t, torch.ones(250_000)) for t in found.values())


def test_first_moments_stay_those_of_step_one(make_job: MakeJob, tmp_path: Path) -> None:
    """A-SNAP-2: counters, moments and weights of step 1, though step 2 ran before the drain; nothing live is shared."""
    job = with_held_drain(make_job, tmp_path, "snap:first_moments")
    found = image(job, 1)
    wanted = torch.load(job.out / "wanted", weights_only=True)
    steps = [t for name, t in found.items() if name.endswith(".step")]
    assert [t.item() for t in steps] == [1.0, 1.0]
    assert sorted(t.numpy().tobytes() for t in found.values()) == sorted(t.numpy().tobytes() for t in wanted)


def test_a_slot_is_not_given_out_while_it_drains(make_job: MakeJob, tmp_path: Path) -> None:
    """A-SNAP-3: with room for two, later evacuations use the other slot or are given up; the first stays bit for bit."""
    job = with_held_drain(make_job, tmp_path, "snap:two_slots", ram="82MiB")
    ends = (job.out / "ends").read_text().split()
    assert ends[:2] == ["held", "held"]
    assert "lost" in ends[2:]
    assert torch.equal(image(job, 1)["t"], torch.ones(2_000_000))


def test_an_image_that_does_not_change_is_named(make_job: MakeJob) -> None:
    """A-SNAP-4: bit-equal tensors at two steps are an alarm at the trainer's next call, and in the agent's log."""
    job = make_job("run")
    job.start_agent()
    (child,) = job.start(program="snap:frozen")
    child.ok()
    assert "every tensor evacuated at step 2 is bit-equal to step 1" in child.output + job.agents[0].output


@pytest.mark.parametrize("by_gate", [False, True])
def test_all_tensors_are_of_one_step(make_job: MakeJob, by_gate: bool) -> None:
    """A-SNAP-5: 200 tensors that all count up without a pause, copied before the loop goes on or until its gate."""
    job = make_job("run")
    job.start_agent()
    (child,) = job.start(program="snap:counting", by_gate=by_gate)
    child.ok()
    committed = {s.step for s in job.target.step_ids()}  # a step that a newer one overtook is not drained
    assert 30 in committed
    for step in committed:
        values = {float(v) for t in image(job, step).values() for v in (t.min(), t.max())}
        assert values == {float(step)}


def test_overlapped_and_waited_copies_are_the_same(make_job: MakeJob) -> None:
    """A-SNAP-6: two ranks, with copies beside training and without: equal digests of each tensor, equal losses."""
    overlapped, waited = make_job("overlapped", ranks=2), make_job("waited", ranks=2)
    for job, program in ((overlapped, "loop:main"), (waited, "snap:waited")):
        job.start_agent()
        for child in job.start(program=program, wait_committed=[12, 18]):
            child.ok()
    for step in (12, 18):
        for rank in (0, 1):
            digests = []
            for job in (overlapped, waited):
                manifest = job.target.manifest(StepId(1, step), rank)
                assert manifest is not None
                digests.append({box.name: box.digests for box in manifest.proven.boxes})
            assert digests[0] == digests[1]
    assert losses(overlapped.out, 1) == losses(waited.out, 1)


def test_a_step_on_its_way_is_not_offered(make_job: MakeJob, tmp_path: Path) -> None:
    """A-SNAP-7: while the copy is under way a restart takes the step before it, on the same trajectory."""
    points = tmp_path / "points"
    points.mkdir()
    reference = make_job("reference", width=160)
    reference.run()
    job = make_job("run", width=160)
    (child,) = job.start(env={VARIABLE: str(points)}, program="torture:main", touch_at={"8": str(points / "copying-0")})
    until((points / "copying-0.reached").exists, what="the copy of step 9")
    assert {f.sealed.step for f in job.arena.scan() if f.sealed is not None} <= {3, 6}
    child.kill()
    child.wait()
    job.run()
    assert losses(job.out) == losses(reference.out)


@pytest.mark.parametrize("by_hand", [False, True])
def test_closing_evacuates_nothing(by_hand: bool, make_job: MakeJob) -> None:
    """D4: due at step 6, put off, and the run ends at 7 with its gradients pending: close() says that this end is not kept.
    Asked for by hand it is, as it was then: what the loop does with its weights before close() is no training."""
    job = make_job("run")
    job.start_agent()
    (child,) = job.start(program="snap:put_off", by_hand=by_hand)
    child.ok()
    newest = max(job.target.step_ids())
    assert newest.step == (7 if by_hand else 5)
    assert child.output.count("the last evacuation was at step 5, the loop ended at 7 in an accumulation") == (not by_hand)
    assert child.output.count("evacuating step=7 although gradients of optim have waited") == by_hand
    assert child.output.count("held step=7") == by_hand
    if by_hand:
        kept = load_file(job.target.directory(newest) / "rank-00000.safetensors")["model.weight"]
        assert torch.equal(kept, torch.load(job.out / "weight"))


def test_a_copy_that_fails_costs_its_step_only(make_job: MakeJob) -> None:
    """No device memory for a bucket, or a copy that breaks off: that step is given up, the others are held."""
    job = make_job("run")
    job.start_agent()
    (child,) = job.start(program="snap:failing_copies")
    child.ok()
    ends = (job.out / "ends").read_text().splitlines()
    assert [i for i, end in enumerate(ends, 1) if end != "held"] == [3, 5]
    assert "could not be started: RuntimeError('no memory for a bucket')" in ends[2]
    assert "the copy failed (lost on its way)" in ends[4]
    assert image(job, 7)["model.weight"].shape == (256, 256)
