"""The agent's state for people and programs (`hinan agent status --json`)."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hinan.core.agenda import leftovers, stays
from hinan.core.survival import survival
from hinan.host.survival import host_facts

if TYPE_CHECKING:
    from hinan.agent.loop import Node


def status(node: Node) -> dict[str, Any]:
    """A flat picture: identity, watermark, slots with the reason they stay, drain, failures, what the RAM copy survives."""
    state = node.state()
    reasons = stays(state)
    w = state.w
    trainer = next((t.process.pid for t in node.trainers.alive), None)
    level, killers = survival(host_facts(node.arena.root, trainer))
    return {
        "pid": os.getpid(),
        "run_id": node.run_id,
        "node": node.node,
        "target": str(node.target.root),
        "arena": str(node.arena.root),
        "attempt": node.snapshot.served,
        "watermark": None if w is None else {"step": w.step, "attempt": w.attempt},
        "committed": node.snapshot.committed,
        "target_reachable": state.reachable,
        "trainers": [{"rank": t.rank, "attempt": t.attempt, "pid": t.process.pid} for t in node.trainers.alive],
        "slots": [
            {
                "slot": s.name,
                "rank": s.rank,
                "phase": s.phase.value,
                "step": s.holds.step if s.holds else None,
                "attempt": s.holds.attempt if s.holds else None,
                "image_bytes": s.image_bytes,
                "stays": reasons.get(s.name),
            }
            for s in node.slots
        ],
        "placement": [{"rank": rank} | asdict(placed) for rank, placed in sorted(node.tasks.placer.placed.items())],
        "draining": node.round.step_id.step if node.round else None,
        "drain_s": node.drain_s,
        "direct_io": node.tasks.drainer.direct,
        "failures": list(node.news)[-20:],
        "failed_in_a_row": node.failed_in_a_row,
        "unreadable_facts": {**node.arena.problems, **node.target.problems},
        "leftovers": [str(s) for s in leftovers(state)],
        "survives": str(level),
        "killers": list(killers),
    }
