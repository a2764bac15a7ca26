"""Lines of JSON by which a training program tells its test how far it is. It may be killed in the middle of one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Lines:
    """Appends records to a file, one a line; a line that a killed program did not end stays a line of its own."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a")
        if self._file.tell():
            self._file.write("\n")

    def write(self, record: dict[str, Any]) -> None:
        """One record; whoever reads the file sees it when this returns."""
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The records that were written whole, in order; none where the file is not there yet."""
    try:
        lines = path.read_text().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return [record for line in lines if line.endswith("\n") and (record := _parsed(line)) is not None]


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        return dict(json.loads(line))
    except ValueError:
        return None  # blank, or cut off by a kill
