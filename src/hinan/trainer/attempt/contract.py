"""The RAM budget is asked for before training: the sum over all local ranks against every limit of the node.

All ranks take part, and all come to the same answer: they exchange what each has measured, and decide on that alone. So
nobody starts to train while another rank was refused. The agent applies the same rule once more when it makes a slot.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from hinan.core.budget import SLOTS_A_RANK, Limit, Need, slots_that_fit
from hinan.core.errors import HinanError
from hinan.core.units import format_bytes
from hinan.formats.records import AgentRecord
from hinan.host.limits import room
from hinan.host.process import private_bytes
from hinan.host.signals import ours
from hinan.tiers.arena import AGENT, Arena
from hinan.trainer.attempt.forecast import OWN_BYTES, forecast
from hinan.trainer.attempt.identity import Identity
from hinan.trainer.attempt.ranks import Ranks

log = logging.getLogger("hinan")

AGENT_BYTES = 150 << 20
"""Most private memory of an agent: measured 27 MiB for 100 tensors and 75 MiB for 10,000 (docs/design/ram-budget.md)."""


def agree_on_budget(state: Mapping[str, Any], ranks: Ranks, arena: Arena, identity: Identity) -> None:
    """Make the sum. Collective.

    Raises:
        BudgetError: on every rank alike, when any node has no room for two slots a rank; it names node, ranks and limit.
        PeerError: another rank could not measure, or did not answer.
    """
    measured: dict[str, Any] = {}
    failure: Exception | None = None
    try:
        measured = _measured(state, arena, identity)
    except ours(HinanError, OSError) as error:
        failure = error
    ranks.agree(failure, "measuring memory")
    everybody = ranks.all(measured, "summing up memory")
    nodes: dict[str, dict[int, dict[str, Any]]] = {}
    for rank, item in enumerate(everybody):
        assert isinstance(item, dict)
        nodes.setdefault(item["node"], {})[rank] = item
    for node, members in nodes.items():
        slots = slots_that_fit(need_of(node, members), _tightest(members), members[min(members)]["held_bytes"])
        if identity.rank in members:
            log.info(
                "budget slots=%d image_bytes=%d of_which_to_come=%d ranks=%d",
                slots, measured["image_bytes"], measured["coming_bytes"], len(members),
            )  # fmt: skip


def _measured(state: Mapping[str, Any], arena: Arena, identity: Identity) -> dict[str, Any]:
    """What this rank knows of itself and of its node."""
    found = forecast(state)
    # Ordering: what older slots hold is read before the room. One that is given back in between counts twice, and the
    # agent looks again; the other way round a restart could be refused for its own leavings.
    held_bytes = arena.held_bytes()
    cap = identity.ram_bytes
    limits = room(arena.root, None if cap is None else cap - held_bytes)
    agent = arena.fact(AGENT, AgentRecord)
    return {
        "node": identity.place.node,
        "image_bytes": found.image_bytes,
        "coming_bytes": found.coming_bytes,
        "host_bytes": found.host_bytes,
        "own_bytes": OWN_BYTES + found.ring_bytes,
        "used_bytes": private_bytes(os.getpid()),
        "agent_bytes": max(0, AGENT_BYTES - (private_bytes(agent.pid) if agent is not None else 0)),
        "held_bytes": held_bytes,
        "limits": {name: asdict(limit) for name, limit in limits.items()},
        "unknown": found.unknown,
    }


def need_of(node: str, members: Mapping[int, Mapping[str, Any]]) -> Need:
    """What the ranks of a node need together."""
    largest = max(members, key=lambda rank: members[rank]["image_bytes"])
    image_bytes, coming_bytes = members[largest]["image_bytes"], members[largest]["coming_bytes"]
    notes = [f"the largest image is that of rank {largest}"] if len(members) > 1 else []
    if coming_bytes:
        notes.append(f"{format_bytes(coming_bytes)} of it are optimizer state that the first step makes")
    unknown = sorted({text for item in members.values() for text in item["unknown"]})
    notes += [f"at least, because it cannot be told yet: {'; '.join(unknown)}"] if unknown else []
    used_bytes = sum(item["used_bytes"] for item in members.values())
    several = f"ranks {min(members)} to {max(members)}" if len(members) > 1 else f"rank {largest}"
    return Need(
        ranks=len(members),
        slots=SLOTS_A_RANK,
        image_bytes=image_bytes,
        beside=(
            ("optimizer state and gradients that the first step makes", _sum(members, "host_bytes")),
            ("buckets and buffers for copies, at most", _sum(members, "own_bytes")),
            ("the agent, at most", members[min(members)]["agent_bytes"]),
        ),
        where=f" of {node} ({several})",
        notes=tuple(notes),
        memory_notes=(f"in use already, and so not in what is left: {format_bytes(used_bytes)} by the trainers",),
    )


def _sum(members: Mapping[int, Mapping[str, Any]], what: str) -> int:
    return sum(int(item[what]) for item in members.values())


def _tightest(members: Mapping[int, Mapping[str, Any]]) -> dict[str, Limit]:
    """Every limit of a node; ranks may lie in cgroups of their own."""
    limits: dict[str, Limit] = {}
    for item in members.values():
        for name, values in item["limits"].items():
            limit = Limit(**values)
            if name not in limits or limit.left_bytes < limits[name].left_bytes:
                limits[name] = limit
    return limits
