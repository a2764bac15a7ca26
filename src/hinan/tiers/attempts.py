"""The records of a run's attempts on the target, and how any record below it is read (docs/formats/facts.md).

Owns:      attempts/<n>.claim, .resume and .closed: their names and what they mean.
Promises:  a record that stands and cannot be read counts as absent, and `problems` says why. The one exception is
           `core.lineage.certain`: a damaged record that could have said one thing only.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from hinan.core.errors import FormatError, FormatFromFuture, TargetError
from hinan.core.lineage import History, Resume, certain
from hinan.formats import records
from hinan.host.signals import ours
from hinan.tiers.publish import publish, read_fact

R = TypeVar("R")


class Attempts:
    """The attempts of one run. Cheap to make; holds no descriptor."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.problems: dict[str, str] = {}
        """Files that stand but do not parse, each with the reason; treated as absent."""
        self._from_future: set[str] = set()
        """Those of them that a newer hinan has written."""

    def claims(self) -> dict[int, records.ClaimRecord | None]:
        """All claims by attempt. A claim that does not parse is None: it still fences."""
        return {n: self.fact(path, records.ClaimRecord) for n, path in self._attempts("claim")}

    def history(self) -> History:
        """Claims and resumes, as the lineage needs them."""
        paths = dict(self._attempts("resume"))
        found = {n: self.fact(path, records.ResumeRecord) for n, path in paths.items()}
        damaged = {n: name for n, path in paths.items() if (name := self._name(path)) in self.problems}
        # A newer hinan's record is whole, and may say what this one does not know: nothing is guessed in its place.
        known = certain(n for n, name in damaged.items() if name not in self._from_future)
        ways_out = {
            n: f"read {name} with a newer hinan" if name in self._from_future else f"put {name} back from a copy"
            for n, name in damaged.items()
        }
        return History(
            claims=frozenset(n for n, _ in self._attempts("claim")),
            resumes=known | {n: Resume(n, record.parent) for n, record in found.items() if record is not None},
            unreadable={n: way_out for n, way_out in ways_out.items() if n not in known},
        )

    def resumes(self) -> dict[int, records.ResumeRecord | None]:
        """All resumes by attempt; None for one that does not parse."""
        return {n: self.fact(path, records.ResumeRecord) for n, path in self._attempts("resume")}

    def closed(self) -> dict[int, records.ClosedRecord | None]:
        """All attempts that ended on purpose; None where the record does not parse."""
        return {n: self.fact(path, records.ClosedRecord) for n, path in self._attempts("closed")}

    def publish_attempt(self, record: records.ClaimRecord | records.ResumeRecord | records.ClosedRecord) -> None:
        """Publish a claim, resume or closed record under its attempt's number.

        Raises:
            AlreadyPublished: another process has this attempt number.
            TargetError: it cannot be written there.
        """
        suffix = {records.ClaimRecord: "claim", records.ResumeRecord: "resume", records.ClosedRecord: "closed"}[
            type(record)
        ]
        path = self.root / "attempts" / f"{record.attempt:06d}.{suffix}"
        try:
            publish(path, records.encode(record), power_safe=True)
        except ours(OSError) as error:
            raise TargetError(
                f"the target cannot take {path}: {error.strerror or error}. Make room or give write permission, and start "
                "again; what is committed there stands.",
                target=str(self.root),
                errno=error.errno,
            ) from error

    def unreadable_attempts(self) -> dict[str, str]:
        """Records of attempts that stand and do not parse, each with the reason. The lineage cannot be trusted then."""
        kinds = {"claim": records.ClaimRecord, "resume": records.ResumeRecord, "closed": records.ClosedRecord}
        found = [(path, self.fact(path, kind)) for suffix, kind in kinds.items() for _, path in self._attempts(suffix)]
        names = [str(path.relative_to(self.root)) for path, record in found if record is None]
        return {name: self.problems.get(name, "it vanished") for name in names}

    def _attempts(self, suffix: str) -> Iterator[tuple[int, Path]]:
        for path in sorted((self.root / "attempts").glob(f"*.{suffix}")):
            if path.stem.isascii() and path.stem.isdigit():
                yield int(path.stem), path

    def fact(self, path: Path, kind: type[R]) -> R | None:
        """A record by its path; None if it is absent or does not parse (then `problems` says why)."""
        name = self._name(path)
        data = read_fact(path)
        self._from_future.discard(name)
        if data is None:
            self.problems.pop(name, None)
            return None
        try:
            record = records.decode(data, kind, str(self.root / name))
        except FormatError as error:
            self.problems[name] = str(error)
            if isinstance(error, FormatFromFuture):
                self._from_future.add(name)
            return None
        self.problems.pop(name, None)
        return record

    def _name(self, path: Path) -> str:
        """A record's path below the target."""
        return str(path.relative_to(self.root))
