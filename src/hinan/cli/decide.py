"""`hinan decide`: which step a restart would take, from where, and why not the others. Restarts nothing."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hinan.cli.output import Json, emit, table
from hinan.cli.places import TargetPath, open_target, problems_of, unreadable, views_of
from hinan.core.decide import Decision, decide

EPILOG = "Example:  hinan decide /shared/runs/gpt --verify"


def decide_verb(
    target: TargetPath,
    verify: Annotated[bool, typer.Option("--verify", help="Read every image and check its digests.")] = False,
    ranks: Annotated[int | None, typer.Option(min=1, help="Number of ranks that would resume.")] = None,
    json: Json = False,
) -> None:
    """Show which step a restart would resume from, and the reason for every candidate refused.

    Nothing is restarted and nothing is changed. Exit code 0 if there is a step to resume from, 1 if there is none.
    """
    place = open_target(target)
    decision = decide(views_of(place, verify=verify), place.history(), failures=place.failures(), world_size=ranks)
    problems = problems_of(place)
    answer = decision_json(decision) | {"problems": problems}
    emit(answer, as_json=json, text=lambda: [*_lines(decision), *([""] if problems else []), *unreadable(problems)])
    raise typer.Exit(0 if decision.chosen else 1)


def decision_json(decision: Decision) -> dict[str, Any]:
    """The decision as programs read it (docs/cli.md)."""
    chosen = decision.chosen
    return {
        "step": chosen.step_id.step if chosen else None,
        "attempt": chosen.step_id.attempt if chosen else None,
        "sources": [
            {"rank": rank, "tier": "target" if "/" in image.place else "ram", "place": image.place}
            for rank, image in (chosen.sources.items() if chosen else ())
        ],
        "candidates": [
            {"tier": c.tier, "step": c.step_id.step, "attempt": c.step_id.attempt, "ok": c.ok, "reason": c.reason}
            for c in decision.candidates
        ],
        "views": [
            {"tier": v.tier, "node": v.node, "status": v.status, "images": len(v.images), "detail": v.detail}
            for v in decision.views
        ],
    }


def _lines(decision: Decision) -> list[str]:
    chosen = decision.chosen
    first = f"resume from {chosen.step_id} in {chosen.tier}" if chosen else "there is no step to resume from"
    rows = [
        ("->" if c is chosen else "ok" if c.ok else "no", c.step_id.step, c.step_id.attempt, c.tier, c.reason)
        for c in decision.candidates
    ]
    views = [(v.tier, v.node, v.status, len(v.images), v.detail) for v in decision.views]
    return [
        first,
        "",
        *table(("", "step", "attempt", "tier", "reason"), rows),
        "",
        *table(("view", "node", "status", "images", "where"), views),
    ]
