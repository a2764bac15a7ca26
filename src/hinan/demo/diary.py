"""The diary: what a rank writes down while it trains, one JSON line each; the proof and the picture are made from it.

Owns:      one new file per process (`rank-<r>-<pid>-<start>.jsonl`), so that a killed writer never tears another's lines.
Promises:  a line is written in one piece, at the moment it tells of; `at` is the system's monotonic clock, which all
           processes of a host share.
Never:     is read by the training loop: what is compared was written before anybody knew what to compare it with.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from hinan.host.process import this_process

Line = dict[str, Any]


class Diary:
    """The writing end."""

    def __init__(self, out: Path, rank: int) -> None:
        me = this_process()
        self._file = (out / f"rank-{rank}-{me.pid}-{me.start_ticks}.jsonl").open("xb", buffering=0)
        self._rank = rank

    def write(self, event: str, **values: Any) -> None:
        """Append a line."""
        line = {"event": event, "rank": self._rank, "at": time.monotonic(), **values}
        self._file.write(json.dumps(line).encode() + b"\n")


class Tail:
    """The reading end of one growing file: whole lines only, each once. The file may be unlinked meanwhile."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._rest = b""

    def lines(self) -> list[bytes]:
        """Lines that were finished since the last call."""
        *whole, self._rest = (self._rest + self._file.read()).split(b"\n")
        return whole

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_diaries(out: Path) -> list[Line]:
    """All lines of all ranks and attempts, in the order in which they were written. A torn last line is no line."""
    found: list[Line] = []
    for path in out.glob("rank-*.jsonl"):
        tail = Tail(path)
        found += [json.loads(line) for line in tail.lines()]
        tail.close()
    return sorted(found, key=lambda line: float(line["at"]))


def spawned_at() -> float:
    """When this process was started, on the monotonic clock; exact to a tick of the system (10 ms)."""
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - this_process().start_ticks / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - age_s
