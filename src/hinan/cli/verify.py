"""`hinan verify`: are the bytes at rest what they were when they were evacuated?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hinan.cli.output import Json, emit, plain
from hinan.core.units import format_bytes
from hinan.tiers.verify import Report, verify

EPILOG = "Example:  hinan verify /shared/runs/gpt --step 1200"


def verify_verb(
    path: Annotated[
        Path, typer.Argument(metavar="TARGET|STEP|SLOT", help="A target, a step's directory, an image, or a slot (.img).")
    ],
    step: Annotated[int | None, typer.Option(help="With a target: only this step.")] = None,
    json: Json = False,
) -> None:
    """Read images and check every digest; name the file, the bytes and the tensors that differ.

    This is about bytes at rest; `hinan wire check` is about the path between GPU and RAM. Exit code 0 if everything is
    right, 1 if something is not.
    """
    report = verify(path.absolute(), step)
    emit(report_json(report), as_json=json, text=lambda: _lines(report))
    raise typer.Exit(0 if report.ok else 1)


def report_json(report: Report) -> dict[str, Any]:
    """The report as programs read it (docs/cli.md)."""
    return {
        "ok": report.ok,
        "checked_bytes": report.checked_bytes,
        "checked_files": report.checked_files,
        "bad": plain(report.bad),
    }


def _lines(report: Report) -> list[str]:
    lines = [
        f"checked {report.checked_files} images, {format_bytes(report.checked_bytes)}: {'good' if report.ok else 'BAD'}"
    ]
    for bad in report.bad:
        lines.append(f"  {bad.file}: {bad.reason}")
        lines += [f"    tensor {name}" for name in bad.tensors]
    return lines
