"""`hinan rm`: delete steps of a run, its orphans, its leftovers, or its RAM."""

from __future__ import annotations

from typing import Annotated

import typer

from hinan.cli.output import Json, emit
from hinan.cli.places import TargetPath, arena_of, open_target
from hinan.core.errors import ConfigError, TargetError
from hinan.core.ids import StepId
from hinan.core.lineage import lineage, resume_source
from hinan.host.process import Process
from hinan.tiers.arena import Arena
from hinan.tiers.target import Target

EPILOG = "Example:  hinan rm /shared/runs/gpt --orphans"


def rm_verb(
    target: TargetPath,
    step: Annotated[list[int] | None, typer.Option(help="Delete this step; may be given several times.")] = None,
    orphans: Annotated[bool, typer.Option("--orphans", help="Delete all steps that are not on the lineage.")] = False,
    arena: Annotated[bool, typer.Option("--arena", help="Free this node's RAM copies.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also the last committed step, or RAM that is not committed.")
    ] = False,
    json: Json = False,
) -> None:
    """Delete what is named, and nothing else. What a restart would need is refused without --force."""
    if not (step or orphans or arena):
        raise ConfigError("say what to delete: --step N, --orphans or --arena")
    place = open_target(target)
    chosen = _chosen(place, step or [], orphans=orphans)
    ram = arena_of(place) if arena else None
    # Ordering: every refusal comes before anything is deleted, so that what is refused has changed nothing.
    if not force:
        _refuse_needed(place, chosen)
    if ram is not None:
        _refuse_ram(ram, place, force=force)
    _delete(place, chosen)
    freed = _free(ram) if ram is not None else None
    removed = [{"step": s.step, "attempt": s.attempt} for s in chosen]
    lines = [f"deleted {s}" for s in chosen] + ([f"freed {freed}"] if freed else [])
    emit({"deleted": removed, "freed_arena": freed}, as_json=json, text=lambda: lines or ["nothing to delete"])


def _chosen(target: Target, steps: list[int], *, orphans: bool) -> list[StepId]:
    known, line = target.step_ids(), lineage(target.history())
    for number in steps:
        if not any(s.step == number for s in known):
            raise ConfigError(f"there is no step {number} on {target.root}; it has {sorted({s.step for s in known})}")
    return [s for s in known if s.step in steps or (orphans and s not in line)]


def _refuse_needed(target: Target, chosen: list[StepId]) -> None:
    stored, line = target.stored(), lineage(target.history())
    everywhere = [s for s, t in stored.items() if t.committed and not t.buried]
    committed = [s for s in everywhere if s in line]
    if chosen and (bad := target.unreadable_attempts()):
        raise ConfigError(f"what is an orphan cannot be told while {min(bad)} is unreadable; --force deletes all the same")
    if everywhere and set(everywhere) <= set(chosen):
        raise ConfigError(f"{max(everywhere)} is the last committed step of this run; --force deletes it all the same")
    if committed and max(committed) in chosen:
        raise ConfigError(f"{max(committed)} is what a restart would resume from; --force deletes it all the same")
    source = resume_source(target.history())
    if source in chosen and not any(s > source for s in committed):
        raise ConfigError(f"the run resumed from {source}, and nothing newer is committed; --force deletes it all the same")


def _delete(target: Target, chosen: list[StepId]) -> None:
    """Bury and remove these steps; where the file system refuses one, the error says which are gone already."""
    for at, step_id in enumerate(chosen):
        try:
            target.bury(step_id, "hinan rm")
            target.remove(step_id)
        except OSError as error:
            gone = ", ".join(map(str, chosen[:at])) or "nothing"
            raise TargetError(
                f"cannot delete {step_id}: {error.strerror or error} ({error.filename}); deleted before it: {gone}",
                target=str(target.root),
            ) from error


def _refuse_ram(arena: Arena, target: Target, *, force: bool) -> None:
    """Of an arena that a trainer writes into; without `force` also of one that holds what the target does not."""
    files = arena.scan() if arena.exists else []
    writer = next((f.owner for f in files if Process(f.owner.pid, f.owner.start_ticks).is_alive), None)
    if writer is not None:
        raise ConfigError(
            f"rank {writer.rank} (pid {writer.pid}) still writes into {arena.root}; end the job first; nothing was deleted"
        )
    line = lineage(target.history())
    newest = max((f.sealed.step_id for f in files if f.sealed is not None and f.sealed.step_id in line), default=None)
    committed = {s for s, t in target.stored().items() if t.committed and not t.buried and s in line}
    if not force and newest is not None and not any(s >= newest for s in committed):
        raise ConfigError(
            f"{arena.root} holds {newest}, which is not committed on the target; --force frees it all the same; "
            "nothing was deleted"
        )


def _free(arena: Arena) -> str | None:
    """Wipe an arena that no trainer writes into. Its agent, if one lives, would lose what it keeps: it must be stopped."""
    if not arena.exists:
        return None
    arena.wipe()
    return str(arena.root)
