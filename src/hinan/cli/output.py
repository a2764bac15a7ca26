"""How verbs print: JSON for programs, or lines for people. Numbers in JSON are in the units their names say."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")]


def emit(value: object, *, as_json: bool, text: Callable[[], Iterable[str]]) -> None:
    """Print a value as JSON, or the lines that `text` makes."""
    if as_json:
        json.dump(plain(value), sys.stdout, indent=2, sort_keys=False)
        sys.stdout.write("\n")
    else:
        for line in text():
            typer.echo(line)


def plain(value: object) -> Any:
    """A value in JSON's own types."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return value


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterable[str]:
    """Columns aligned with spaces, so that they can be read and piped alike."""
    cells = [list(head), *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
