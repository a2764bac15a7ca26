"""The agent's state for people and programs (`hinan agent status --json`)."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hinan.core.agenda import leftovers, stays
from hinan.core.survival import survival
from hinan.formats.records import CadenceRecord
from hinan.host.survival import host_facts
from hinan.tiers.cadences import in_force

if TYPE_CHECKING:
    from hinan.agent.loop import Node


def status(node: Node) -> dict[str, Any]:
    """Identity, watermark, slots with the reason they stay, drain, cadence, failures, and what the RAM copy survives."""
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
        "reserving": node.keeper.reserving,
        "placement": [{"rank": rank} | asdict(placed) for rank, placed in sorted(node.tasks.placer.placed.items())],
        "draining": node.round.step_id.step if node.round else None,
        "drain_s": node.drain_s,
        "cadence": _cadence(node),
        "direct_io": node.tasks.drainer.direct,
        "failures": list(node.news)[-20:],
        "failed_in_a_row": node.failed_in_a_row,
        "unreadable_facts": {**node.arena.problems, **node.target.problems},
        "leftovers": [str(s) for s in leftovers(state)],
        "survives": str(level),
        "killers": list(killers),
    }


def _cadence(node: Node) -> dict[str, Any] | None:
    """How often is evacuated and committed, and why, from the facts in the arena; None if none stands."""
    standing = in_force(node.arena, [slot.holds for slot in node.slots if slot.holds])
    if standing is None:
        return None
    following = standing.following
    return {**_plain(standing.now), "next": None if following is None else _plain(following)}


def _plain(record: CadenceRecord) -> dict[str, Any]:
    commit_steps, step_s = record.every_steps * record.commit_multiple, record.step_s
    return {
        "attempt": record.attempt,
        "from_step": record.from_step,
        "is_decided": record.is_decided,
        "step_s": step_s,
        "evacuate": _interval(record.every_steps, step_s, record.every_why),
        "commit": _interval(commit_steps, step_s, record.commit_why),
        "inputs": {name: asdict(each) for name, each in record.inputs.items()},
        "lost": record.lost,
    }


def _interval(steps: int, step_s: float | None, why: str) -> dict[str, Any]:
    return {"interval_steps": steps, "interval_s": None if step_s is None else steps * step_s, "why": why}
