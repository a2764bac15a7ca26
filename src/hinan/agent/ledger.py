"""What the agent knows of the target: a snapshot, read in a thread, so that a hung mount never stops the agent.

Owns:      the last snapshot and how old it is.
Never:     writes. Tasks that write (drain, commit, bury) read again what they depend on just before.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from hinan.core.agenda import Stored
from hinan.core.errors import HinanError
from hinan.core.ids import StepId
from hinan.core.lineage import History
from hinan.host.mounts import file_system
from hinan.host.process import Process
from hinan.tiers.target import Target


@dataclass(frozen=True)
class Snapshot:
    """The target at one moment.

    Attributes:
        served: newest attempt that was claimed on this node.
        claimant_alive: whether the process that made the newest claim runs on this node now.
        gone: the target is no longer there, or is another run's: then `another` is that run.
    """

    history: History = field(default_factory=History)
    stored: Mapping[StepId, Stored] = field(default_factory=dict)
    served: int = 0
    claimant_alive: bool = False
    closed: bool = False
    gone: bool = False
    another: str = ""
    reachable: bool = False
    taken_at: float = 0.0
    error: str = ""

    @property
    def settled(self) -> bool:
        """Whether the lineage is at rest: the newest claim has its resume, or will never have one."""
        newest = self.history.newest_claim
        return newest in self.history.resumes or not self.claimant_alive

    @property
    def committed(self) -> int:
        """Newest committed step, 0 before the first."""
        return max((s.step for s, stored in self.stored.items() if stored.committed and not stored.buried), default=0)


def served_attempt(target: Target, node: str) -> int:
    """The newest attempt that was claimed on this node, read now; 0 before the first."""
    return max((n for n, claim in target.claims().items() if claim is not None and claim.node == node), default=0)


def take_snapshot(target: Target, run_id: str, node: str, device: int) -> Snapshot:
    """Read the target. Blocks as long as its file system does.

    Args:
        device: the file system that the target lies on. A target that is missing from another one is not gone: its own
            is not mounted, and the RAM copies may be all there is.
    """
    try:
        if file_system(target.root) != device:
            return Snapshot(taken_at=time.monotonic(), error="its file system is not mounted")
        if (found := _found(target)) != run_id:
            return _gone(found, "it is not there any more")
        # Ordering: the history first. A claim made between the two is then this agent's own, and the history too old to
        # tell; the other way round it would be a stranger's, and this agent would stop for good.
        history = target.history()
        claims = target.claims()
        stored = target.stored()
        # Again: a target that was deleted or renamed meanwhile shows a part of itself, from which anything might follow.
        if (found := _found(target)) != run_id:
            return _gone(found, "it went away while it was read")
    except (OSError, HinanError) as error:
        return Snapshot(taken_at=time.monotonic(), error=str(error))
    here = {n: claim for n, claim in claims.items() if claim is not None and claim.node == node}
    newest = here.get(history.newest_claim)
    return Snapshot(
        history=history,
        stored=stored,
        served=max(here, default=0),
        claimant_alive=newest is not None and Process(newest.pid, newest.start_ticks).is_alive,
        closed=(target.root / "attempts" / f"{history.newest_claim:06d}.closed").exists(),
        reachable=True,
        taken_at=time.monotonic(),
    )


def _found(target: Target) -> str:
    """The run whose target it is; "" if there is nothing any more."""
    return target.run().run_id if target.root.is_dir() else ""


def _gone(found: str, why: str) -> Snapshot:
    return Snapshot(gone=True, another=found, taken_at=time.monotonic(), error=f"it is run {found}'s" if found else why)
