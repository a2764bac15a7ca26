"""`hinan ls`: which steps of a run stand where."""

from __future__ import annotations

from typing import Any

from hinan.cli.output import Json, emit, table
from hinan.cli.places import TargetPath, open_target, problems_of, standing, unreadable, views_of
from hinan.core.ids import StepId
from hinan.core.lineage import lineage
from hinan.core.units import format_bytes

EPILOG = "Example:  hinan ls /shared/runs/gpt"

_COMMITTED = {True: "yes", False: "no", None: "unknown"}


def ls_verb(target: TargetPath, json: Json = False) -> None:
    """List the steps of a run: on which tier, how many images, committed or not, on the lineage or an orphan."""
    place = open_target(target)
    line, stored = lineage(place.history()), place.stored()
    views = views_of(place, verify=False)
    found: dict[StepId, dict[str, Any]] = {}
    for step_id in {*stored, *(i.step_id for v in views for i in v.images)}:
        images = {v.tier: [i for i in v.images if i.step_id == step_id] for v in views}
        on_target = stored.get(step_id)
        found[step_id] = {
            "step": step_id.step,
            "attempt": step_id.attempt,
            "ram_images": len(images.get("ram", [])),
            "target_images": len(on_target.ranks) if on_target else 0,
            "world_size": max([on_target.world_size if on_target else 0, *(i.world_size for i in images.get("ram", []))])
            or None,
            **standing(place, step_id, on_target, line),
            "image_bytes": max([i.image_bytes for of_tier in images.values() for i in of_tier], default=0) or None,
        }
    steps = [found[step_id] for step_id in sorted(found)]
    problems = problems_of(place)
    emit(
        {"run_id": place.run().run_id, "steps": steps, "problems": problems},
        as_json=json,
        text=lambda: _lines(steps, problems),
    )


def _lines(steps: list[dict[str, Any]], problems: dict[str, str]) -> list[str]:
    rows = [
        (
            s["step"],
            s["attempt"],
            f"{s['ram_images']}/{s['world_size'] or '?'}",
            f"{s['target_images']}/{s['world_size'] or '?'}",
            "being deleted" if s["being_deleted"] else _COMMITTED[s["committed"]],
            "unknown" if s["image_bytes"] is None else format_bytes(s["image_bytes"]),
            s["orphan"] or "",
        )
        for s in steps
    ]
    lines = (
        list(table(("step", "attempt", "ram", "target", "committed", "image", ""), rows))
        if rows
        else ["nothing was saved yet"]
    )
    return lines + unreadable(problems)
