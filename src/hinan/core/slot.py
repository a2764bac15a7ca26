"""The life of a slot: room for one image in the arena (rules B1, B2).

    FREE ──lease──► FILLING ──seal──► SEALED ──prove──► PROVEN
     ▲                 │                 │                 │
     └──────lose───────┘                 └────recycle──────┴──► FILLING (again leased)

When the process that writes a slot has exited (its pidfd said so), a slot with nothing sealed in it is released (GONE);
a sealed or proven one stays as *remains*, which nobody writes again, until its step is no longer needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from hinan.core.ids import StepId


class Phase(Enum):
    """Where a slot is in its life."""

    FREE = "free"
    FILLING = "filling"
    SEALED = "sealed"
    PROVEN = "proven"
    GONE = "gone"


class Event(Enum):
    """What can happen to a slot."""

    LEASE = "lease"
    SEAL = "seal"
    PROVE = "prove"
    RECYCLE = "recycle"
    LOSE = "lose"
    RELEASE = "release"


class Effect(Enum):
    """What must be done when a slot moves, in the order given."""

    WITHDRAW_PROVEN = "withdraw proven"
    WITHDRAW_SEALED = "withdraw sealed"
    UNLINK_IMAGE = "unlink image"


class IllegalTransition(AssertionError):
    """A slot was asked to do what its phase does not allow: a bug, never a condition of the world."""


# Ordering: facts are withdrawn before the bytes they describe may change, and the seal first. Whoever finds a seal without
# its proof, because the agent was killed, takes the digests late: of bytes that may have been known to be damaged. A proof
# without its seal says nothing, and is gone before the slot is filled again.
_FORGET = (Effect.WITHDRAW_SEALED, Effect.WITHDRAW_PROVEN)
_REMOVE = (*_FORGET, Effect.UNLINK_IMAGE)

_TABLE: dict[tuple[Phase, Event], tuple[Phase, tuple[Effect, ...]]] = {
    (Phase.FREE, Event.LEASE): (Phase.FILLING, (Effect.WITHDRAW_PROVEN,)),
    (Phase.FILLING, Event.SEAL): (Phase.SEALED, ()),
    (Phase.FILLING, Event.LOSE): (Phase.FREE, ()),
    (Phase.SEALED, Event.PROVE): (Phase.PROVEN, ()),
    (Phase.SEALED, Event.RECYCLE): (Phase.FILLING, _FORGET),
    (Phase.PROVEN, Event.RECYCLE): (Phase.FILLING, _FORGET),
    (Phase.FREE, Event.RELEASE): (Phase.GONE, _REMOVE),
    (Phase.FILLING, Event.RELEASE): (Phase.GONE, _REMOVE),
    (Phase.SEALED, Event.RELEASE): (Phase.GONE, _REMOVE),
    (Phase.PROVEN, Event.RELEASE): (Phase.GONE, _REMOVE),
}


def advance(phase: Phase, event: Event) -> tuple[Phase, tuple[Effect, ...]]:
    """Next phase, and what must now be done, in order.

    Raises:
        IllegalTransition: names phase and event.
    """
    try:
        return _TABLE[phase, event]
    except KeyError:
        raise IllegalTransition(f"a {phase.value} slot cannot {event.value}") from None


@dataclass(frozen=True)
class Slot:
    """What is known of one slot, read from its facts and from the leases.

    Attributes:
        name: stem of its files in the arena.
        rank: whose images it holds.
        owner_attempt: attempt of the one process that may ever write it.
        owner_alive: False only after that process's pidfd reported exit, never on EOF or silence.
        owner_pid: pid of that process (with its start time it is unique; the agent checks that).
        phase: where it is in its life.
        holds: what is sealed in it, if anything.
        world_size: number of ranks that make `holds` complete.
        commit_at: newest step at or below `holds.step` whose commit was due by the cadence; 0 if none was.
        image_bytes: length of the image file.
        readers: read leases on it right now.
    """

    name: str
    rank: int
    owner_attempt: int
    owner_alive: bool
    owner_pid: int
    phase: Phase
    holds: StepId | None
    world_size: int
    image_bytes: int
    commit_at: int = 0
    readers: int = 0

    @property
    def is_sealed(self) -> bool:
        return self.phase in (Phase.SEALED, Phase.PROVEN)
