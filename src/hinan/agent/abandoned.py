"""Arenas of other runs that nobody needs: their agent is gone, and their target is gone, closed, or has all they hold (B8).

Never:     removes the only copy of a step. An arena whose newest held step is not on its target stays and is reported.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

from hinan.core.lineage import lineage
from hinan.core.slot import Phase, Slot
from hinan.core.watermark import watermark
from hinan.formats.records import AgentRecord
from hinan.host.process import Process
from hinan.tiers.arena import AGENT, LOCK, Arena
from hinan.tiers.target import Target, file_system

log = logging.getLogger("hinan.agent")

BEING_MADE_S = 60.0
"""An arena without an owner record is left alone for this long: its agent is just starting."""


@contextlib.contextmanager
def lock(arena: Path) -> Iterator[bool]:
    """Hold the arena's agent lock for the block; yields whether it was free."""
    while True:
        fd = os.open(arena / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            if _still_stands(arena / LOCK, fd):
                yield True
                return
        finally:
            os.close(fd)


def _still_stands(path: Path, fd: int) -> bool:
    """Whether the locked file is the one under the name: whoever wipes an arena unlinks its lock while holding it."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(fd))
    return False


def reclaim(own: Path) -> list[str]:
    """Remove the abandoned arenas of this user beside `own` that nobody needs; the reasons why others stay."""
    kept = []
    for directory in sorted(own.parent.parent.glob("*/*")):
        if directory == own or not directory.is_dir():
            continue
        if _is_being_made(directory):
            continue
        with contextlib.suppress(OSError), lock(directory) as free:
            if not free:
                continue
            reason = why_needed(Arena(directory))
            if reason is None:
                log.info("arena.reclaimed path=%s", directory)
                Arena(directory).wipe()
            else:
                kept.append(f"{directory}: {reason}")
    return kept


def _is_being_made(directory: Path) -> bool:
    """A trainer makes the directory a moment before its agent signs it; to lock or remove it then would stop the agent."""
    with contextlib.suppress(OSError):
        return not (directory / AGENT).exists() and time.time() - directory.stat().st_mtime < BEING_MADE_S
    return True


def why_needed(arena: Arena) -> str | None:
    """Why an arena without an agent must stay; None if it may be removed."""
    record = arena.fact(AGENT, AgentRecord)
    files = arena.scan()
    if any(Process(f.owner.pid, f.owner.start_ticks).is_alive for f in files):
        return "a trainer that writes into it still runs"
    if record is None:
        return "it holds sealed images and no owner record" if any(f.sealed for f in files) else None
    target = Target(Path(record.target))
    if not target.root.parent.is_dir() or file_system(target.root) != (record.target_device or file_system(target.root)):
        return f"its target {target.root} is not mounted"
    if not (target.root / "run.json").exists() or target.run().run_id != record.run_id:
        return None
    history = target.history()
    if (target.root / "attempts" / f"{history.newest_claim:06d}.closed").exists():
        return None
    slots = [
        Slot(
            f.name,
            f.rank,
            f.owner.attempt,
            False,
            f.owner.pid,
            Phase.SEALED,
            f.sealed.step_id,
            f.sealed.world_size,
            f.image_bytes,
        )
        for f in files
        if f.sealed is not None
    ]
    w = watermark(slots, lineage(history))
    if w is None or any(stored.committed for s, stored in target.stored().items() if s >= w):
        return None
    return f"it holds {w}, which is not on its target"
