"""The target: the shared place of a run, on a POSIX file system (docs/formats/target.md).

    run.json                              identity of the run
    attempts/<n>.claim  .resume  .closed  what each attempt was
    agents/<node>.json                    who keeps RAM copies where
    failures/<step>-<attempt>-<tier>.json restarts that failed
    steps/<step>-<attempt>/               rank-<r>.safetensors, rank-<r>.json, COMMIT; TOMBSTONE, readers/ while deleting

Owns:      the names below the target and what they mean. Foreign names are never touched.
Promises:  what it calls committed was complete and synced when the record was published.
Relies on: link and rename being atomic, which `new_run` tries out.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from hinan.core.agenda import Stored
from hinan.core.errors import FormatError, TargetError
from hinan.core.ids import StepId, image_file, manifest_file, parse_rank_file, parse_step_directory, step_directory
from hinan.formats import records
from hinan.host.signals import ours, suppress_ours
from hinan.tiers.attempts import Attempts
from hinan.tiers.new_run import RUN, make_run
from hinan.tiers.publish import PART_SUFFIX, AlreadyPublished, publish, read_fact, sync_directory

COMMIT, TOMBSTONE, READERS = "COMMIT", "TOMBSTONE", "readers"
READER_GRACE_S = 600.0
"""A reader that has said nothing for this long does not hold back a deletion any more."""


class Target(Attempts):
    """The files of one run's target directory. Cheap to make; holds no descriptor."""

    def __init__(self, root: Path, steps: Path | None = None) -> None:
        """
        Args:
            steps: the directory that holds the steps, if it is held open (`held`); else it is looked up by its name.
        """
        super().__init__(root)
        self._steps = steps or root / "steps"
        self._manifests: dict[tuple[str, int, int], records.ManifestRecord] = {}

    # -- the run -------------------------------------------------------------------------------------------------

    def open_or_create(self) -> records.RunRecord:
        """Make the directory if only it is missing, prove that it can be written, and return the run's identity.

        Raises:
            TargetError: parent missing, not a directory, not writable, no atomic link, or a foreign directory.
        """
        make_run(self.root)
        return self.run()

    def run(self) -> records.RunRecord:
        """The run's identity.

        Raises:
            TargetError: there is no run here.
        """
        data = read_fact(self.root / RUN)
        if data is None:
            raise TargetError(f"{self.root} is not the target of a run: it has no {RUN}", target=str(self.root))
        return records.decode(data, records.RunRecord, str(self.root / RUN))

    # -- restarts and agents ---------------------------------------------------------------------------------------

    def failures(self) -> set[tuple[StepId, str]]:
        """(step, tier) pairs from which a restart has failed."""
        found = (self.fact(path, records.FailureRecord) for path in (self.root / "failures").glob("*.json"))
        return {(StepId(r.attempt, r.step), r.tier) for r in found if r is not None}

    def publish_failure(self, record: records.FailureRecord) -> None:
        """Remember that a restart from a source failed; a second report of the same is the same fact."""
        name = f"{step_directory(StepId(record.attempt, record.step))}-{record.tier}.json"
        with contextlib.suppress(AlreadyPublished):
            publish(self.root / "failures" / name, records.encode(record), power_safe=True)

    def publish_agent(self, record: records.AgentRecord) -> None:
        """Say who keeps this node's RAM copies now. The one file that is replaced, not published: it only helps to find."""
        path = self.root / "agents" / f"{record.node}.json"
        aside = path.with_name(f".{path.name}.{os.getpid()}{PART_SUFFIX}")
        aside.write_bytes(records.encode(record))
        aside.replace(path)

    def agents(self) -> list[records.AgentRecord]:
        """The agents that have kept RAM copies for this run."""
        found = (self.fact(path, records.AgentRecord) for path in sorted((self.root / "agents").glob("*.json")))
        return [r for r in found if r is not None]

    @contextlib.contextmanager
    def held(self, run_id: str) -> Iterator[Target]:
        """This run's target, to write to: its steps stay those of this run, whatever becomes of the path meanwhile.

        A target may be deleted or renamed while something is on its way to it, and another run begin under its name.

        Raises:
            TargetError: it is another run's already.
            OSError: it is not there.
        """
        fd = os.open(self._steps, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # Ordering: opened first. Whoever begins a run here after this look makes directories of his own.
            if self.run().run_id != run_id:
                raise TargetError(
                    f"{self.root} is the target of another run now; nothing is written to it", target=str(self.root)
                )
            yield Target(self.root, Path(f"/proc/self/fd/{fd}"))
        finally:
            os.close(fd)

    # -- steps ---------------------------------------------------------------------------------------------------

    def directory(self, step_id: StepId) -> Path:
        return self._steps / step_directory(step_id)

    def step_ids(self) -> list[StepId]:
        """Steps that have a directory, in order."""
        try:
            names = os.listdir(self._steps)  # noqa: PTH208
        except ours(FileNotFoundError):
            return []
        return sorted(s for name in names if (s := parse_step_directory(name)) is not None)

    def stored(self) -> dict[StepId, Stored]:
        """What stands on the target of each step."""
        found = ((step_id, self._stored(step_id)) for step_id in self.step_ids())
        stored = {step_id: what for step_id, what in found if what is not None}
        kept = {str(self.directory(step_id)) for step_id in stored}
        self._manifests = {key: m for key, m in self._manifests.items() if str(Path(key[0]).parent) in kept}
        self.problems = {name: why for name, why in self.problems.items() if (self.root / name).exists()}
        return stored

    def _stored(self, step_id: StepId) -> Stored | None:
        """None for a directory in which only foreign files are left: its step was removed, and nobody need do it again."""
        directory = self.directory(step_id)
        with suppress_ours(FileNotFoundError, NotADirectoryError):
            names = {entry.name for entry in os.scandir(directory)}
            if names and not any(map(_is_ours, names)):
                return None
            parsed = [parse_rank_file(name) for name in names]
            images = {p[0] for p in parsed if p and p[1] == "safetensors"}
            manifests = {p[0] for p in parsed if p and p[1] == "json"}
            commit = self.commit_record(step_id)
            ranks = {rank for rank in images & manifests if commit or self.manifest(step_id, rank)}
            any_manifest = self.manifest(step_id, min(ranks)) if ranks and not commit else None
            unreadable = any(self.problem(step_id, name) for name in (COMMIT, *map(manifest_file, manifests)))
            world_size = commit.world_size if commit else any_manifest.sealed.world_size if any_manifest else 0
            return Stored(
                ranks=frozenset(ranks),
                world_size=world_size,
                committed=commit is not None,
                buried=(directory / TOMBSTONE).exists(),
                readers=self._has_readers(directory),
                unreadable=unreadable,
            )
        return None

    def problems_of(self, step_id: StepId) -> list[str]:
        """Why records of a step do not parse."""
        inside = f"steps/{step_directory(step_id)}/"
        return [why for name, why in sorted(self.problems.items()) if name.startswith(inside)]

    def problem(self, step_id: StepId, name: str) -> str | None:
        """Why a record of a step does not parse; None if it does, or is absent."""
        return self.problems.get(f"steps/{step_directory(step_id)}/{name}")

    def commit_record(self, step_id: StepId) -> records.CommitRecord | None:
        """The commit record of a step; None if it is absent, torn or foreign."""
        return self.fact(self.directory(step_id) / COMMIT, records.CommitRecord)

    def manifest(self, step_id: StepId, rank: int) -> records.ManifestRecord | None:
        """A rank's manifest; None if it is absent, torn or foreign."""
        path = self.directory(step_id) / manifest_file(rank)
        try:
            stat = path.stat()
        except ours(FileNotFoundError):
            return None
        key = (str(path), stat.st_ino, stat.st_mtime_ns)
        if key not in self._manifests:
            record = self.fact(path, records.ManifestRecord)
            if record is None:
                return None
            self._manifests[key] = record
        return self._manifests[key]

    def manifest_bytes(self, step_id: StepId, rank: int) -> bytes:
        """The raw bytes of a rank's manifest; empty if it is absent."""
        return read_fact(self.directory(step_id) / manifest_file(rank)) or b""

    def image_path(self, step_id: StepId, rank: int) -> Path:
        return self.directory(step_id) / image_file(rank)

    def publish_commit(self, step_id: StepId, world_size: int) -> None:
        """Publish the commit record: a function of the manifests alone, so that racing writers write equal bytes.

        Raises:
            FormatError: a manifest is missing.
        """
        sums = []
        for rank in range(world_size):
            data = read_fact(self.directory(step_id) / manifest_file(rank))
            if data is None:
                raise FormatError(f"{step_id} has no manifest of rank {rank}", step=step_id.step, rank=rank)
            sums.append(records.fact_sum(data))
        record = records.CommitRecord(step_id.attempt, step_id.step, world_size, sums)
        publish(self.directory(step_id) / COMMIT, records.encode(record), power_safe=True)

    def make_directory(self, step_id: StepId) -> Path:
        """Create a step's directory so that its name survives power loss; sweep an earlier try's unfinished files."""
        directory = self.directory(step_id)
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)
        for path in directory.glob(f".*{PART_SUFFIX}"):
            path.unlink(missing_ok=True)
        return directory

    # -- deleting ------------------------------------------------------------------------------------------------

    def bury(self, step_id: StepId, reason: str) -> None:
        """Publish the tombstone; from now on readers turn away. A step that somebody else removed is no error."""
        record = records.TombstoneRecord(step_id.attempt, step_id.step, reason)
        with suppress_ours(FileNotFoundError, AlreadyPublished):
            publish(self.directory(step_id) / TOMBSTONE, records.encode(record), power_safe=True)

    def remove(self, step_id: StepId) -> None:
        """Delete a buried step: the commit record first, the tombstone last; foreign files keep the directory."""
        directory = self.directory(step_id)
        # Ordering: a removal that is interrupted must never leave a commit record beside missing images.
        (directory / COMMIT).unlink(missing_ok=True)
        with suppress_ours(FileNotFoundError):
            for entry in list(os.scandir(directory)):
                if _is_ours(entry.name) and entry.name not in (TOMBSTONE, READERS):
                    (directory / entry.name).unlink(missing_ok=True)
            shutil.rmtree(directory / READERS, ignore_errors=True)
            (directory / TOMBSTONE).unlink(missing_ok=True)
            with suppress_ours(OSError):
                directory.rmdir()
        self._manifests = {key: m for key, m in list(self._manifests.items()) if Path(key[0]).parent != directory}

    @contextlib.contextmanager
    def reading(self, step_id: StepId, node: str) -> Iterator[None]:
        """Hold back the deletion of a step while its files are read.

        Raises:
            FormatError: the step is being deleted.
        """
        directory = self.directory(step_id) / READERS
        fact = directory / f"{node}-{os.getpid()}-{secrets.token_hex(4)}.json"
        with suppress_ours(OSError):  # a read-only target has no deleter either
            directory.mkdir(exist_ok=True)
            publish(fact, records.encode(records.ReaderRecord(os.getpid(), node, records.now_text())), power_safe=False)
        try:
            # Ordering: first the fact, then the look. The deleter does it the other way round, so one sees the other.
            if (self.directory(step_id) / TOMBSTONE).exists():
                raise FormatError(f"{step_id} is being deleted", step=step_id.step)
            yield
        finally:
            with suppress_ours(OSError):
                fact.unlink(missing_ok=True)
                directory.rmdir()

    def _has_readers(self, directory: Path) -> bool:
        try:
            return any(time.time() - entry.stat().st_mtime < READER_GRACE_S for entry in os.scandir(directory / READERS))
        except ours(OSError) as error:
            return error.errno not in (errno.ENOENT, errno.ENOTDIR)

    def _name(self, path: Path) -> str:
        below = path.relative_to(self._steps) if path.is_relative_to(self._steps) else None
        return super()._name(path) if below is None else str(Path("steps") / below)


def _is_ours(name: str) -> bool:
    """Whether a name inside a step's directory is one that hinan gives."""
    return parse_rank_file(name) is not None or name in (COMMIT, TOMBSTONE, READERS) or name.endswith(PART_SUFFIX)
