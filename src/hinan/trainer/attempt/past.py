"""What earlier attempts of this run left: facts on the target and in RAM, read once on rank 0, before training."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from hinan.core.errors import HinanError
from hinan.host.signals import ours
from hinan.plan.observed.attempts import Attempt, Image, Save, attempts_of, clock_s
from hinan.tiers.arena import Arena
from hinan.tiers.remains import forsaken
from hinan.tiers.target import Target

log = logging.getLogger("hinan")


@dataclass(frozen=True)
class Past:
    """Attempts up to this one, in order, and the newest saves of them that RAM still holds."""

    attempts: tuple[Attempt, ...] = ()
    saves: tuple[Save, ...] = ()


def past_of(target: Target, arena: Arena) -> Past:
    """Read it. Nothing depends on it but how often is saved: what cannot be read is logged and left out, all of it.

    Half of the attempts would be a failure rate that nobody has seen.
    """
    try:
        attempts = attempts_of(target.claims(), target.resumes(), target.closed())
        unreadable = target.unreadable_attempts()
        sealed = [files.sealed for files in arena.scan() if files.sealed is not None]
    except ours(HinanError, OSError) as error:
        log.warning("cadence.past unreadable: %s", error)
        return Past()
    if unreadable:
        log.warning("cadence.past failures are not counted, records cannot be read: %s", ", ".join(unreadable))
        return Past()
    saves = [Save(s.step_id, (Image(s.image_bytes, None, clock_s(s.held_at)),)) for s in sealed]
    return Past(tuple(attempts), tuple(sorted(saves, key=lambda save: save.step_id)))


def warn_of_forsaken(target: Path, own: Arena) -> None:
    """Name what RAM holds of a run whose target was deleted or replaced. Before this run's agent starts: it frees that.

    An empty target is a fresh start (rule G3), so it is no reason to refuse; but nothing is given up without a word.
    """
    for held in forsaken(target, own):
        log.warning(
            "forsaken: RAM holds %s. The target of that run was %s, which was deleted or replaced, so no attempt can go on "
            "from it, and it will be freed", held, target,
        )  # fmt: skip
