"""Finds the arena that a verb is about without its target, and the newest step in it. Nothing in it is touched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hinan.cli.agent import ANSWER_S, ask_status
from hinan.cli.places import DEFAULT_TMPFS, arena_of, open_target
from hinan.core.errors import AgentError, ConfigError
from hinan.formats.records import AgentRecord
from hinan.host.process import Process
from hinan.host.rpc import AgentClient
from hinan.tiers.arena import AGENT, SOCKET, Arena, SlotFiles

PATIENCE_S = 2.0


@contextmanager
def _readable() -> Iterator[None]:
    """Runs and arenas are readable to the user who trains; to others that is said instead of a traceback.

    Raises:
        ConfigError: for the PermissionError of a read.
    """
    try:
        yield
    except PermissionError as error:
        raise ConfigError(
            f"cannot read {error.filename}: ask as the user who runs the training, or as root", path=str(error.filename)
        ) from error


@dataclass(frozen=True)
class HeldSlot:
    """A whole copy in RAM. agent: the process that keeps it; None if none runs. device: PCI address of what writes it."""

    path: Path
    rank: int
    step: int
    attempt: int
    image_bytes: int
    agent: int | None
    device: str | None


@_readable()
def held_slot(target: Path | None, *, device: str | None = None, tmpfs: Path = DEFAULT_TMPFS) -> HeldSlot:
    """The slot with the newest step that is whole, of the lowest rank that has it.

    Args:
        target: the run; None for the only run whose agent is alive below `tmpfs`.
        device: only of the rank that writes from this PCI address, if the agent knows from where any rank does.
    Raises:
        ConfigError: no run, several, nothing held yet, or no such rank; the message lists what there is. Or another
            user's run.
        TargetError: no run at this target.
    """
    arena = _only_arena(tmpfs) if target is None else arena_of(open_target(target))
    if not arena.exists:
        raise ConfigError(
            f"the run at {target} has no arena on this machine: no agent has kept it here", arena=str(arena.root)
        )
    devices = {placed["rank"]: placed["device"] for placed in _placement(arena) if placed["device"] is not None}
    slot = newest(arena.scan(), on_device(devices, device))
    if slot is None or slot.sealed is None:
        raise ConfigError(f"{arena.root} holds no step yet: wait for the first evacuation", arena=str(arena.root))
    return HeldSlot(
        path=arena.path(slot.name),
        rank=slot.rank,
        step=slot.sealed.step,
        attempt=slot.sealed.attempt,
        image_bytes=slot.image_bytes,
        agent=_agent(arena),
        device=devices.get(slot.rank),
    )


def on_device(devices: dict[int, str], wanted: str | None) -> set[int] | None:
    """Ranks that write from a device; None for all: none was asked for, or of none it is known.

    Raises:
        ConfigError: it is known of others only.
    """
    if wanted is None or not devices:
        return None
    ranks = {rank for rank, device in devices.items() if device == wanted}
    if not ranks:
        known = ", ".join(f"rank {rank} from {device}" for rank, device in sorted(devices.items()))
        raise ConfigError(f"no rank of this run writes from {wanted}; {known}", device=wanted)
    return ranks


def newest(slots: list[SlotFiles], ranks: set[int] | None = None) -> SlotFiles | None:
    """The newest sealed slot of these ranks (None: of all); of several ranks' the lowest rank's."""
    sealed = [slot for slot in slots if slot.sealed is not None and (ranks is None or slot.rank in ranks)]
    return max(sealed, key=lambda slot: (slot.sealed.step_id, -slot.rank) if slot.sealed else (), default=None)


@_readable()
def slot_nodes(target: Path) -> dict[str, int]:
    """PCI address of each device of a run -> NUMA node on which its newest slot lies, a wrong one if there are several.

    Raises:
        AgentError: no agent answers.
        ConfigError: another user's run.
    """
    client = AgentClient(arena_of(open_target(target)).root / SOCKET, ANSWER_S)
    return nodes_of(ask_status(client)["placement"])


def nodes_of(placement: list[dict[str, Any]]) -> dict[str, int]:
    """From the `placement` of an agent's status; devices whose pages were not looked at are left out."""
    return {
        placed["device"]: next((node for node in placed["lies_on"] if node != placed["node"]), placed["lies_on"][0])
        for placed in placement
        if placed["device"] is not None and placed["lies_on"]
    }


def _placement(arena: Arena) -> list[dict[str, Any]]:
    """What the arena's agent tells of it; nothing if none answers: the pages can be looked at all the same."""
    try:
        return list(ask_status(AgentClient(arena.root / SOCKET, PATIENCE_S))["placement"])
    except AgentError:
        return []


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
