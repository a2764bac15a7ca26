"""Threads as the system counts them: those that were started by C have no object in `threading`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def names_of_threads(prefix: str) -> list[str]:
    """Names of this process's threads that begin so."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            found.append((task / "comm").read_text().strip())
    return [name for name in found if name.startswith(prefix)]
