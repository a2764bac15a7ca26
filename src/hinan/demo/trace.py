"""What happened when: diaries of the ranks, log of the agent and files on the target, turned into one list of moments.

Promises:  each moment carries the time at which it happened, not at which it was seen: the diaries' own clock, the log's
           time, the modification time of the manifest or commit record.
Never:     asks the run anything: it reads files that stand there for other reasons.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path

from hinan.core.ids import StepId, parse_step_directory
from hinan.demo.diary import Line, Tail
from hinan.tiers.arena import LOG
from hinan.tiers.target import COMMIT


class Kind(Enum):
    """Kinds of moments; the words are those of the product."""

    LAUNCHED = "launched"
    RESUMED = "resumed"
    STEP = "step"
    HELD = "held"
    DRAINING = "draining"
    PERSISTED = "persisted"
    COMMITTED = "committed"
    KILLED = "killed"
    CLOSED = "closed"


@dataclass(frozen=True)
class Moment:
    """Something that happened. `at` is on the monotonic clock; `span_s` is how long it had taken by then, `stall_s` for how
    long of that training was held up."""

    kind: Kind
    at: float
    step: int = 0
    attempt: int = 0
    rank: int | None = None
    span_s: float = 0.0
    size_bytes: int = 0
    text: str = ""
    stall_s: float = 0.0


_OF_EVENT = {"held": Kind.HELD, "step": Kind.STEP, "resumed": Kind.RESUMED, "closed": Kind.CLOSED}
_OPENED = re.compile(r"^(\S+ \S+) drain\.opened step=(\d+) attempt=(\d+) bytes=(\d+)")


class Trace:
    """The moments of one run, growing with each `look`."""

    def __init__(self, out: Path, target: Path, ranks: int) -> None:
        self._out, self._target, self._ranks = out, target, ranks
        self.began = time.monotonic()
        self.moments: list[Moment] = []
        self.diary: list[Line] = []
        """All lines of the diaries so far."""
        self._diaries: dict[Path, Tail] = {}
        self._logs: dict[int, Tail] = {}
        self._stored: set[tuple[StepId, Kind]] = set()
        self._boundary: dict[int, float] = {}

    def add(self, kind: Kind, text: str = "", at: float | None = None) -> Moment:
        """Something that the orchestrator did itself."""
        moment = Moment(kind, time.monotonic() if at is None else at, text=text)
        self.moments.append(moment)
        return moment

    def look(self, arena: Path | None) -> list[Moment]:
        """The moments that are new since the last look."""
        fresh = [*self._from_diaries(), *self._from_log(arena), *self._from_target()]
        self.moments += fresh
        return fresh

    def close(self) -> None:
        """Close the files."""
        for tail in (*self._diaries.values(), *self._logs.values()):
            tail.close()

    def _from_diaries(self) -> Iterator[Moment]:
        for path in sorted(self._out.glob("rank-*.jsonl")):
            if path not in self._diaries:
                self._diaries[path] = Tail(path)
        lines: list[Line] = [json.loads(text) for tail in self._diaries.values() for text in tail.lines()]
        for line in sorted(lines, key=lambda line: float(line["at"])):
            self.diary.append(line)
            if line["event"] in _OF_EVENT:
                yield self._moment(line)

    def _moment(self, line: Line) -> Moment:
        kind, rank = _OF_EVENT[line["event"]], int(line["rank"])
        at, span_s = float(line.get("held_at") or line["at"]), float(line.get("copy_s", 0.0))
        if kind is Kind.STEP:
            span_s = at - self._boundary.get(rank, at)
        if kind in (Kind.STEP, Kind.RESUMED):
            self._boundary[rank] = at
        return Moment(
            kind, at, int(line.get("step", 0)), int(line.get("attempt", 0)), rank, span_s,
            int(line.get("bytes", 0)), str(line.get("source", "")), float(line.get("stall_s", 0.0)),
        )  # fmt: skip

    def _from_log(self, arena: Path | None) -> Iterator[Moment]:
        """Drains that were opened. A log that is unlinked with its arena stays readable: it is open here."""
        with suppress(FileNotFoundError):
            if arena is not None and (inode := (arena / LOG).stat().st_ino) not in self._logs:
                self._logs[inode] = Tail(arena / LOG)
        for text in [text for tail in self._logs.values() for text in tail.lines()]:
            if match := _OPENED.match(text.decode(errors="replace")):
                written = datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S,%f").timestamp()  # local time, as logs are
                yield Moment(Kind.DRAINING, _monotonic(written), int(match[2]), int(match[3]), size_bytes=int(match[4]))

    def _from_target(self) -> Iterator[Moment]:
        """Steps of which every rank's manifest stands (it is published after the image is safe), and commit records."""
        with suppress(FileNotFoundError):
            for directory in sorted((self._target / "steps").iterdir()):
                step_id = parse_step_directory(directory.name)
                if step_id is not None:
                    yield from self._from_step(directory, step_id)

    def _from_step(self, directory: Path, step_id: StepId) -> Iterator[Moment]:
        with suppress(FileNotFoundError):
            manifests = list(directory.glob("rank-*.json"))
            if (step_id, Kind.PERSISTED) not in self._stored and len(manifests) == self._ranks:
                at = max(path.stat().st_mtime for path in manifests)
                size_bytes = sum(path.stat().st_size for path in directory.glob("rank-*.safetensors"))
                self._stored.add((step_id, Kind.PERSISTED))
                yield Moment(Kind.PERSISTED, _monotonic(at), step_id.step, step_id.attempt, size_bytes=size_bytes)
            if (step_id, Kind.COMMITTED) not in self._stored:
                at = (directory / COMMIT).stat().st_mtime
                self._stored.add((step_id, Kind.COMMITTED))
                yield Moment(Kind.COMMITTED, _monotonic(at), step_id.step, step_id.attempt)


def _monotonic(wall: float) -> float:
    """A wall time of this run, on the monotonic clock."""
    return wall - time.time() + time.monotonic()
