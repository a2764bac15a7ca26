"""What an arena still holds whose agent is gone, or whose target is another run's by now."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from hinan.core.errors import HinanError
from hinan.core.slot import Phase, Slot
from hinan.core.watermark import held_everywhere
from hinan.formats.records import AgentRecord
from hinan.host.signals import suppress_ours
from hinan.tiers.arena import AGENT, Arena, SlotFiles


def sealed_slots(files: Iterable[SlotFiles]) -> list[Slot]:
    """The whole copies, as the rules see them when nobody writes into them any more."""
    return [
        Slot(
            name=f.name,
            rank=f.rank,
            owner_attempt=f.owner.attempt,
            owner_alive=False,
            owner_pid=f.owner.pid,
            phase=Phase.SEALED,
            holds=f.sealed.step_id,
            world_size=f.sealed.world_size,
            image_bytes=f.image_bytes,
        )
        for f in files
        if f.sealed is not None
    ]


def forsaken(target: Path, own: Arena) -> Iterator[str]:
    """Newest whole steps in RAM of other runs whose target was this very path, in words.

    No attempt of such a run can find them, and the next agent of this user frees them (rule B8): so they are named before.

    Args:
        own: the arena of the run that has the path now.
    """
    here = os.path.realpath(target)
    for directory in sorted(own.root.parent.parent.glob("*/*")):
        arena = Arena(directory)
        with suppress_ours(OSError, HinanError):
            record = arena.fact(AGENT, AgentRecord)
            if record is None or directory.parent == own.root.parent or os.path.realpath(record.target) != here:
                continue
            newest = max(held_everywhere(sealed_slots(arena.scan())), default=None)
            if newest is not None:
                yield f"{newest} of run {record.run_id} in {directory}"
