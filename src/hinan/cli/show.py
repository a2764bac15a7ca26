"""`hinan show`: what one evacuated step contains, what was left out, and how much of the device memory it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from hinan.cli.output import Json, emit, table
from hinan.cli.places import TargetPath, arena_of, open_target, problems_of, standing, unreadable
from hinan.core.agenda import Stored
from hinan.core.errors import ConfigError
from hinan.core.ids import StepId
from hinan.core.lineage import lineage
from hinan.core.units import format_bytes
from hinan.formats.gating import REPORTED_BYTES, REPORTED_SHARE, gating, is_reported
from hinan.formats.image import Entry, Header
from hinan.formats.records import SealedRecord
from hinan.tiers.mapping import map_file, read_header
from hinan.tiers.target import COMMIT, Target
from hinan.tiers.views import target_images

EPILOG = "Example:  hinan show /shared/runs/gpt --step 1200 --rank 0"


def show_verb(
    target: TargetPath,
    step: Annotated[int | None, typer.Option(help="The step; the newest one if not given.")] = None,
    rank: Annotated[int, typer.Option(min=0, help="Whose image.")] = 0,
    json: Json = False,
) -> None:
    """Show what a rank's image holds: tensors kept (gated or not), what was left out, bytes, ratio to the device memory."""
    answer = contents(open_target(target), step, rank)
    emit(answer, as_json=json, text=lambda: _lines(answer))


def contents(target: Target, step: int | None, rank: int) -> dict[str, Any]:
    """Contents of one image, from RAM if it is there, else from the target.

    Raises:
        ConfigError: no such step or rank.
    """
    arena = arena_of(target)
    found: list[tuple[SealedRecord, Path, str]] = [
        (files.sealed, arena.path(files.name), "ram")
        for files in (arena.scan() if arena.exists else [])
        if files.sealed is not None and files.rank == rank
    ]
    for step_id in target.step_ids():
        manifest = target.manifest(step_id, rank)
        if manifest is not None and target.image_path(step_id, rank).exists():
            found.append((manifest.sealed, target.image_path(step_id, rank), "target"))
    stored = target.stored()
    problems = problems_of(target)
    wanted = [item for item in found if step is None or item[0].step == step]
    if not wanted:
        known = sorted({item[0].step for item in found})
        raise ConfigError(
            "\n".join(
                [
                    f"there is no image of rank {rank}{'' if step is None else f' at step {step}'}; known steps: {known}",
                    *unreadable(problems),
                ]
            )
        )
    sealed, path, tier = max(wanted, key=lambda item: (item[0].step_id, item[2] == "ram"))
    _, header = read_header(map_file(path), str(path))
    small = msgspec.json.decode(sealed.small)
    found_gating = gating(small["state"], header)
    ungated = sorted((e for e in header.entries if e.name not in found_gating.gated), key=lambda e: -e.size_bytes)
    gated = [e for e in header.entries if e.name in found_gating.gated]
    kept = [_kept(header, e, "ungated") for e in ungated] + [_kept(header, e, "gated") for e in gated]
    views = [{"name": n, "of": v.entry, "dtype": v.dtype, "shape": list(v.shape)} for n, v in header.views.items()]
    left = [{"name": name, "bytes": size} for name, size in small.get("left", [])]
    in_use = small.get("device_memory_bytes") or 0
    kept_bytes = sum(e.size_bytes for e in header.entries)
    return {
        "step": sealed.step,
        "attempt": sealed.attempt,
        "rank": rank,
        "tier": tier,
        "file": str(path),
        **standing(target, sealed.step_id, stored.get(sealed.step_id), lineage(target.history())),
        "flaw": _flaw(target, sealed.step_id, rank, stored) if tier == "target" else None,
        "problems": problems,
        "kept": kept,
        "views": [v for v in views if v["name"] != v["of"]],
        "kept_bytes": kept_bytes,
        "classes": {
            name: {"tensors": len(entries), "bytes": sum(e.size_bytes for e in entries)}
            for name, entries in (("gated", gated), ("ungated", ungated))
        },
        "ungated_is_reported": is_reported(sum(e.size_bytes for e in ungated), sealed.image_bytes),
        "parameters_by_place": list(found_gating.by_place),
        "small_values_bytes": len(bytes(sealed.small)),
        "left": left,
        "left_bytes": sum(item["bytes"] for item in left),
        "device_memory_bytes": in_use or None,
        "ratio_to_device_memory": kept_bytes / in_use if in_use else None,
    }


def _flaw(target: Target, step_id: StepId, rank: int, stored: dict[StepId, Stored]) -> str | None:
    """Why a restart would refuse this image on the target, as far as records and length tell; None if it would not."""
    images = target_images(target, step_id, stored[step_id], verify=False) if step_id in stored else []
    return next((i.flaw for i in images if i.flaw is not None and (i.rank == rank or i.place == COMMIT)), None)


def _standing_lines(answer: dict[str, Any]) -> list[str]:
    """What may keep a restart from taking this image; and the unreadable records, which may hide a newer one."""
    committed = {True: [], False: ["not committed on the target"], None: ["whether it is committed is unknown"]}
    facts = [
        *committed[answer["committed"]],
        *(["it is being deleted"] if answer["being_deleted"] else []),
        *([answer["orphan"]] if answer["orphan"] else []),
        *([f"a restart would refuse it: {answer['flaw']}"] if answer["flaw"] else []),
    ]
    return [*facts, *unreadable(answer["problems"])]


def _kept(header: Header, entry: Entry, word: str) -> dict[str, Any]:
    # What safetensors cannot say is in the file as bytes, and its view tells what the tensor of that name is.
    shown = header.views.get(entry.name, entry)
    return {
        "name": entry.name,
        "class": word,
        "dtype": shown.dtype,
        "shape": list(shown.shape),
        "bytes": entry.size_bytes,
    }


def _class_lines(answer: dict[str, Any]) -> list[str]:
    """Totals by class, and what the ungated ones cost."""
    gated, ungated = answer["classes"]["gated"], answer["classes"]["ungated"]
    small = format_bytes(answer["small_values_bytes"])
    here = " (so it is here)" if answer["ungated_is_reported"] else ""
    bound = f"{format_bytes(REPORTED_BYTES)} or {REPORTED_SHARE:.0%} of the image"
    lines = [
        f"gated    {format_bytes(gated['bytes'])} in {gated['tensors']} tensors: parameters of captured optimizers and "
        "their state; copied until the next optimizer step",
        f"ungated  {format_bytes(ungated['bytes'])} in {ungated['tensors']} tensors, and {small} of small values: "
        f"copied before training goes on; reported above {bound}{here}",
    ]
    if by_place := answer["parameters_by_place"]:
        lines.append(
            f"{len(by_place)} parameters of optimizers belong to no module at the top of the state; where they are kept "
            "under another name, they count as ungated"
        )
    return lines


def _lines(answer: dict[str, Any]) -> list[str]:
    ratio = answer["ratio_to_device_memory"]
    head = (
        f"step {answer['step']} (attempt {answer['attempt']}), rank {answer['rank']}, from {answer['tier']}: "
        f"{format_bytes(answer['kept_bytes'])} in {len(answer['kept'])} tensors"
        + ("" if ratio is None else f", {ratio:.0%} of the memory in use")
    )
    kept = [
        (t["name"], t["class"], t["dtype"], "x".join(map(str, t["shape"])) or "scalar", format_bytes(t["bytes"]))
        for t in answer["kept"]
    ]
    views = [(v["name"], "", "view of", v["of"], "") for v in answer["views"]]
    left = [(item["name"], "", "", format_bytes(item["bytes"])) for item in answer["left"]]
    columns = ("kept", "class", "dtype", "shape", "bytes")
    lines = [head, *_standing_lines(answer), *_class_lines(answer), "", *table(columns, [*kept, *views])]
    return [*lines, "", *table(("left out", "", "", "bytes"), left)] if left else lines
