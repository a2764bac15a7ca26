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

from hinan.core.errors import HinanError
from hinan.core.lineage import lineage
from hinan.core.watermark import watermark
from hinan.formats.records import AgentRecord
from hinan.host.mounts import file_system
from hinan.host.process import Process
from hinan.tiers.arena import AGENT, LOCK, Arena
from hinan.tiers.remains import sealed_slots
from hinan.tiers.target import Target

log = logging.getLogger("hinan.agent")

STARTING_S = 60.0
"""An arena without an owner record that was touched within this time belongs to an agent that is only starting."""


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
            # An agent that ends removes the file it has locked: a lock on a file without its name keeps nobody out.
            if _is_still(arena / LOCK, fd):
                yield True
                return
        finally:
            os.close(fd)


def _is_still(path: Path, fd: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(fd))
    return False


def reclaim(own: Path) -> list[str]:
    """Remove the abandoned arenas of this user beside `own` that nobody needs; the reasons why others stay."""
    kept = []
    for directory in sorted(own.parent.parent.glob("*/*")):
        if directory == own or not directory.is_dir():
            continue
        with contextlib.suppress(OSError, HinanError):
            # Asked before the lock is taken: a target that hangs must not keep that run's own agent from starting.
            if (reason := why_needed(Arena(directory))) is not None:
                kept.append(f"{directory}: {reason}")
                continue
            with lock(directory) as free:
                if free and why_needed(Arena(directory), may_be_starting=False) is None:
                    log.info("arena.reclaimed path=%s", directory)
                    Arena(directory).wipe()
    return kept


def why_needed(arena: Arena, *, may_be_starting: bool = True) -> str | None:
    """Why an arena without an agent must stay; None if it may be removed.

    Args:
        may_be_starting: whether a young arena without an owner record counts as needed (not while its lock is held: then
            nobody can be starting in it, and the lock's own file has just made it look young).
    """
    record = arena.fact(AGENT, AgentRecord)
    files = arena.scan()
    if any(Process(f.owner.pid, f.owner.start_ticks).is_alive for f in files):
        return "a trainer that writes into it still runs"
    if record is None:
        if any(f.sealed for f in files):
            return "it holds sealed images and no owner record"
        fresh = time.time() - arena.root.stat().st_mtime < STARTING_S
        return "it was made a moment ago and its agent is only starting" if fresh and may_be_starting else None
    target = Target(Path(record.target))
    if not target.root.parent.is_dir() or file_system(target.root) != (record.target_device or file_system(target.root)):
        return f"its target {target.root} is not mounted"
    if not (target.root / "run.json").exists() or target.run().run_id != record.run_id:
        return None
    history = target.history()
    if (target.root / "attempts" / f"{history.newest_claim:06d}.closed").exists():
        return None
    line = lineage(history)
    w = watermark(sealed_slots(files), line, arena.lost())
    if w is None or any(stored.committed for s, stored in target.stored().items() if s >= w and s in line):
        return None
    return f"it holds {w}, which is not on its target"
