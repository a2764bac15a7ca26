"""`hinan plan --from-run TARGET`: reads from a run's target what the planner can measure. No agent is asked.

Where the run's arena stands on this machine, what its trainers measured for `every="auto"` fills in what the target does
not bear out: a restart of which there was only one, say.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from pathlib import Path

from hinan.cli.places import arena_of, open_target
from hinan.core.errors import FormatError, TargetError
from hinan.core.ids import StepId
from hinan.plan.model.origin import Kind
from hinan.plan.observed.attempts import Image, Save, attempts_of, clock_s
from hinan.plan.observed.measured import Figure, MeasuredRun, RunFacts, measure, together
from hinan.tiers.arena import Arena
from hinan.tiers.cadences import in_force
from hinan.tiers.target import COMMIT, Target

_SETTINGS = {"step_s": "step", "stall_s": "stall", "drain_s": "drain", "restart_s": "restart"}
"""What a cadence rests on, and the settings of the planner that say the same."""
_OTHERWISE = "name the target of another run, or leave --from-run out and give --stall, --drain, --step and --mtti"


def measured_run(path: Path) -> MeasuredRun:
    """What the run at this target has measured.

    Raises:
        TargetError: no run there, or it cannot be read.
        ConfigError: a run without any whole step on its target.
    """
    try:
        target = open_target(path)
        run = measure(_facts(target, f"run {target.run().run_id} at {path}"))
        return together(run, _arenas_word(arena_of(target), run.figures)) or run
    except TargetError as error:
        raise TargetError(f"--from-run: {error}; {_OTHERWISE}", target=str(path)) from error
    except FormatError as error:
        raise TargetError(f"--from-run: {error}; without it this is no run: {_OTHERWISE}", target=str(path)) from error
    except OSError as error:
        why = error.strerror or str(error)
        raise TargetError(f"--from-run: {path} cannot be read ({why}); {_OTHERWISE}", target=str(path)) from error


def _arenas_word(arena: Arena, known: Collection[str]) -> MeasuredRun | None:
    """The measured inputs of the cadence in force that the target does not tell; None without an arena here, or any."""
    if not arena.exists:
        return None
    standing = in_force(arena, [slot.sealed.step_id for slot in arena.scan() if slot.sealed is not None])
    inputs = {} if standing is None else standing.now.inputs
    figures = {
        setting: Figure(inputs[name].value, f"{arena.root}: {inputs[name].source}")
        for name, setting in _SETTINGS.items()
        if setting not in known and name in inputs and inputs[name].kind == Kind.MEASURED
    }
    return MeasuredRun(f"its arena {arena.root}", figures) if figures else None


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
