"""`hinan plan --from-run TARGET`: reads from a run's target what the planner can measure. No agent is asked."""

from __future__ import annotations

import contextlib
from pathlib import Path

from hinan.cli.places import open_target
from hinan.core.errors import FormatError, TargetError
from hinan.core.ids import StepId
from hinan.plan.attempts import Image, Save, attempts_of, clock_s
from hinan.plan.measured import MeasuredRun, RunFacts, measure
from hinan.tiers.target import COMMIT, Target

_OTHERWISE = "name the target of another run, or leave --from-run out and give --stall, --drain, --step and --mtti"


def measured_run(path: Path) -> MeasuredRun:
    """What the run at this target has measured.

    Raises:
        TargetError: no run there, or it cannot be read.
        ConfigError: a run without any whole step on its target.
    """
    try:
        target = open_target(path)
        return measure(_facts(target, f"run {target.run().run_id} at {path}"))
    except TargetError as error:
        raise TargetError(f"--from-run: {error}; {_OTHERWISE}", target=str(path)) from error
    except FormatError as error:
        raise TargetError(f"--from-run: {error}; without it this is no run: {_OTHERWISE}", target=str(path)) from error
    except OSError as error:
        why = error.strerror or str(error)
        raise TargetError(f"--from-run: {path} cannot be read ({why}); {_OTHERWISE}", target=str(path)) from error


def _facts(target: Target, where: str) -> RunFacts:
    damaged_attempts = [f"{name}: {why}" for name, why in target.unreadable_attempts().items()]
    saves = [save for save in (_save(target, step_id) for step_id in target.step_ids()) if save is not None]
    damaged_steps = [f"{name}: {why}" for name, why in sorted(target.problems.items()) if name.startswith("steps/")]
    attempts = attempts_of(target.claims(), target.resumes(), target.closed())
    return RunFacts(where, attempts, saves, damaged_attempts, damaged_steps)


def _save(target: Target, step_id: StepId) -> Save | None:
    """A step with the manifests of all its ranks; None for one that is not whole, or that somebody deletes just now."""
    images: list[Image] = []
    world_size = 1
    while len(images) < world_size:
        record = target.manifest(step_id, len(images))
        if record is None or (record.sealed.step_id, record.sealed.rank) != (step_id, len(images)):
            return None
        sealed = record.sealed
        images.append(Image(sealed.image_bytes, sealed.settled_stall_s, clock_s(sealed.held_at)))
        world_size = sealed.world_size
    committed_at_s = None
    if target.commit_record(step_id) is not None:
        with contextlib.suppress(FileNotFoundError):
            committed_at_s = (target.directory(step_id) / COMMIT).stat().st_mtime
    return Save(step_id, tuple(images), committed_at_s)
