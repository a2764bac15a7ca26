"""Finds the arena that a verb is about without its target, and the newest step in it. Nothing in it is touched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hinan.cli.places import DEFAULT_TMPFS, arena_of, open_target
from hinan.core.errors import ConfigError
from hinan.formats.records import AgentRecord
from hinan.host.process import Process
from hinan.tiers.arena import AGENT, Arena, SlotFiles


@dataclass(frozen=True)
class HeldSlot:
    """A whole copy in RAM. `agent`: the process that keeps it; None if none runs."""

    path: Path
    rank: int
    step: int
    attempt: int
    image_bytes: int
    agent: int | None


def held_slot(target: Path | None, *, tmpfs: Path = DEFAULT_TMPFS) -> HeldSlot:
    """The slot with the newest step that is whole, of the lowest rank that has it.

    Args:
        target: the run; None for the only run whose agent is alive below `tmpfs`.
    Raises:
        ConfigError: no run, several, or nothing held yet; the message lists what there is.
        TargetError: no run at this target.
    """
    arena = _only_arena(tmpfs) if target is None else arena_of(open_target(target))
    if not arena.exists:
        raise ConfigError(
            f"the run at {target} has no arena on this machine: no agent has kept it here", arena=str(arena.root)
        )
    slot = newest(arena.scan())
    if slot is None or slot.sealed is None:
        raise ConfigError(f"{arena.root} holds no step yet: wait for the first evacuation", arena=str(arena.root))
    return HeldSlot(
        arena.path(slot.name), slot.rank, slot.sealed.step, slot.sealed.attempt, slot.image_bytes, _agent(arena)
    )


def newest(slots: list[SlotFiles]) -> SlotFiles | None:
    """The newest sealed slot; of several ranks' the lowest rank's."""
    sealed = [slot for slot in slots if slot.sealed is not None]
    return max(sealed, key=lambda slot: (slot.sealed.step_id, -slot.rank) if slot.sealed else (), default=None)


def _only_arena(tmpfs: Path) -> Arena:
    found = [arena for arena in map(Arena, sorted(tmpfs.glob("hinan-*/*/*"))) if _agent(arena) is not None]
    if len(found) == 1:
        return found[0]
    if not found:
        raise ConfigError(f"no agent of yours keeps an arena below {tmpfs}; name the run: --arena TARGET", tmpfs=str(tmpfs))
    runs = "\n".join(f"  --arena {record.target}" for arena in found if (record := arena.fact(AGENT, AgentRecord)))
    raise ConfigError(f"{len(found)} agents run on this machine; name one run:\n{runs}", tmpfs=str(tmpfs))


def _agent(arena: Arena) -> int | None:
    record = arena.fact(AGENT, AgentRecord)
    return record.pid if record is not None and Process(record.pid, record.start_ticks).is_alive else None
