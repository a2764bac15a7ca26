"""Changes of the cadence in an arena: their names, and which one is in force (docs/design/cadence.md).

Owns:      the names of proposals, acknowledgements and verdicts.
Never:     decides or judges; `core.cadence` does, and the trainer publishes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from hinan.core.ids import StepId
from hinan.formats.records import CadenceRecord, VerdictRecord
from hinan.tiers.arena import Arena

PREFIX = "cadence-"
PROPOSAL, VERDICT = "json", "verdict"
_NAME = re.compile(re.escape(PREFIX) + r"(\d+)-(\d+)\.(.+)")


def attempt_prefix(attempt: int) -> str:
    """How the names of an attempt's changes begin."""
    return f"{PREFIX}{attempt:06d}-"


def cadence_name(attempt: int, number: int, suffix: str) -> str:
    """Name of a fact about a change."""
    return f"{attempt_prefix(attempt)}{number:04d}.{suffix}"


def parse_cadence_name(name: str) -> tuple[int, int, str] | None:
    """(attempt, number, suffix) of a fact about a change; None if it is none."""
    found = _NAME.fullmatch(name)
    return None if found is None else (int(found[1]), int(found[2]), found[3])


@dataclass(frozen=True)
class InForce:
    """The cadence in force, and the accepted one that follows it, if its step is still to come."""

    now: CadenceRecord
    following: CadenceRecord | None = None


def in_force(arena: Arena, held: Iterable[StepId]) -> InForce | None:
    """The cadence of the newest attempt, as the facts stand; None if none was ever agreed on here.

    Args:
        held: steps that are known to be finished.
    """
    names = [parsed for name in arena.names(PREFIX) if (parsed := parse_cadence_name(name)) is not None]
    attempt = max((parsed[0] for parsed in names), default=0)
    proposals = [
        record
        for _, number, suffix in sorted(n for n in names if n[0] == attempt)
        if suffix == PROPOSAL and _is_accepted(arena, attempt, number)
        if (record := arena.fact(cadence_name(attempt, number, PROPOSAL), CadenceRecord)) is not None
    ]
    arena.forget(PREFIX)
    step = max((step_id.step for step_id in held if step_id.attempt == attempt), default=0)
    begun = [record for record in proposals if record.from_step <= step] or proposals[:1]
    later = [record for record in proposals if record.number > begun[-1].number] if begun else []
    return InForce(begun[-1], later[0] if later else None) if begun else None


def _is_accepted(arena: Arena, attempt: int, number: int) -> bool:
    """The cadence at the start (number 0) was agreed on before it was written, and needs no verdict."""
    verdict = arena.fact(cadence_name(attempt, number, VERDICT), VerdictRecord)
    return number == 0 or (verdict is not None and verdict.accepted)
