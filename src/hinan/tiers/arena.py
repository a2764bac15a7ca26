"""The arena: all slots of one node of one run, as files on a tmpfs (docs/formats/arena.md).

    <tmpfs>/hinan-<uid>/<run>/<node>/
        00000-000001.img      the image of rank 0; created by the agent for one trainer process, exactly its length
        00000-000001.owner    that process; published before the image exists
        00000-000001.sealed   published by the trainer after its copy is whole
        00000-000001.proven   published by the agent: digests
        0000000120-000003.lost   a rank could not hold this step, or has gone past it
        agent.lock agent.sock agent.log agent.log.1 owner.json cadence-*

Owns:      names and the order of creating and removing them. Not the bytes: the lease holder's, then everybody's to read.
Promises:  an image always has an owner fact; a fact always describes the bytes beside it.
Never:     truncates or grows an image, or writes into one.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from hinan.core.errors import FormatError
from hinan.core.ids import StepId, parse_slot_name, parse_step_directory, slot_name, step_directory
from hinan.core.slot import Effect
from hinan.formats import records
from hinan.host.signals import ours, suppress_ours
from hinan.tiers.publish import PART_SUFFIX, part_name, publish, read_fact
from hinan.tiers.reserve import reserve

IMAGE, OWNER, SEALED, PROVEN, LOST = ".img", ".owner", ".sealed", ".proven", ".lost"
LOCK, SOCKET, LOG, OLD_LOG, AGENT = "agent.lock", "agent.sock", "agent.log", "agent.log.1", "owner.json"
_EFFECT_SUFFIX = {Effect.WITHDRAW_PROVEN: PROVEN, Effect.WITHDRAW_SEALED: SEALED, Effect.UNLINK_IMAGE: IMAGE}

R = TypeVar("R")
Around = Callable[[int, int], contextlib.AbstractContextManager[None]]
"""Of an empty file's descriptor, and the length [bytes] that it will have."""


def _nothing_around(fd: int, size_bytes: int) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def _is_being_written(part: str) -> bool:
    """Whether the process that an unfinished file is named after may still finish it: a trainer publishing its seal."""
    found = re.search(r"\.(\d+)-[0-9a-f]+" + re.escape(PART_SUFFIX) + "$", part)
    # Images are reserved by the agent alone, and whoever sweeps is the agent: one of a dead agent may bear our own number.
    return found is not None and f"{IMAGE}." not in part and Path(f"/proc/{found[1]}").exists()


def arena_path(tmpfs: Path, run_id: str, node: str) -> Path:
    """Where the arena of a run on a node lies."""
    return tmpfs / f"hinan-{os.getuid()}" / run_id / node


@dataclass(frozen=True)
class SlotFiles:
    """What stands in the arena for one slot."""

    name: str
    rank: int
    owner: records.OwnerRecord
    sealed: records.SealedRecord | None
    proven: records.ProvenRecord | None
    image_bytes: int


class Arena:
    """The files of one arena. Cheap to make; reading facts is cached by inode and time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.problems: dict[str, str] = {}
        """Facts that stand but do not parse, each with the reason; treated as absent."""
        self._cache: dict[tuple[str, int, int], object] = {}

    def create(self) -> None:
        """Make the directories, for the calling user only."""
        for last in (False, False, True):
            try:
                self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            except ours(FileNotFoundError):  # another run that ended has just removed an empty directory above
                if last:
                    raise
            else:
                return

    @property
    def exists(self) -> bool:
        return self.root.is_dir()

    def path(self, slot: str, suffix: str = IMAGE) -> Path:
        return self.root / (slot + suffix)

    def scan(self) -> list[SlotFiles]:
        """All slots, in order of their names."""
        self.problems.clear()
        return [files for name in self._names(IMAGE) if (files := self._slot(name)) is not None]

    def held_bytes(self) -> int:
        """What the images take."""
        found = 0
        for name in self._names(IMAGE):
            with suppress_ours(FileNotFoundError):
                found += self.path(name).stat().st_size
        return found

    def lost(self) -> frozenset[StepId]:
        """Steps that some rank gave up."""
        parsed = (parse_step_directory(name) for name in self._names(LOST))
        return frozenset(s for s in parsed if s is not None)

    def why_lost(self, step_id: StepId) -> str:
        """Why a step was given up, and by which rank it was or because of which."""
        fact = self.fact(step_directory(step_id) + LOST, records.LostRecord)
        return "a rank could not hold it" if fact is None else f"{fact.reason} (rank {fact.rank})"

    def forget_lost(self, step_id: StepId) -> None:
        """Remove the fact that a step is lost, when none of its images is left."""
        self.root.joinpath(step_directory(step_id) + LOST).unlink(missing_ok=True)

    def fact(self, name: str, kind: type[R]) -> R | None:
        """A fact by its file name; None if it is absent or does not parse (then `problems` says why)."""
        path = self.root / name
        with suppress_ours(FileNotFoundError):
            stat = path.stat()
            key = (name, stat.st_ino, stat.st_mtime_ns)
            if key not in self._cache:
                data = read_fact(path)
                if data is None:
                    return None
                try:
                    self._cache[key] = records.decode(data, kind, str(path))
                except FormatError as error:
                    self.problems[name] = str(error)
                    return None
            found = self._cache[key]
            return found if isinstance(found, kind) else None
        return None

    def publish(self, name: str, record: object) -> None:
        """Publish a fact in RAM (see `tiers.publish`)."""
        publish(self.root / name, records.encode(record), power_safe=False)

    def names(self, prefix: str) -> list[str]:
        """Names that begin so, in order; unfinished files are not among them."""
        try:
            return sorted(entry.name for entry in os.scandir(self.root) if entry.name.startswith(prefix))
        except ours(FileNotFoundError):
            return []

    def forget(self, prefix: str) -> None:
        """Let go of what was read of facts whose names begin so; what stands is read again."""
        self._cache = {key: fact for key, fact in self._cache.items() if not key[0].startswith(prefix)}

    def new_slot(
        self,
        owner: records.OwnerRecord,
        image_bytes: int,
        stop: Callable[[], bool] = lambda: False,
        around: Around = _nothing_around,
    ) -> tuple[str, int]:
        """Create and reserve an image file for one trainer process; its name, and how many of its bytes lie in huge pages.

        Takes as long as zeroing so much memory. The image appears under its name when all of its pages are there.

        Args:
            stop: see `tiers.reserve`.
            around: wraps the moment in which the file gets its pages; it may say where they come from.
        Raises:
            OSError: ENOSPC when the tmpfs or a memory limit has no room; nothing is left behind.
        """
        taken = [parsed[1] for name in self._names(OWNER) if (parsed := parse_slot_name(name)) and parsed[0] == owner.rank]
        name = slot_name(owner.rank, max(taken, default=0) + 1)
        aside = self.root / part_name(name + IMAGE)
        try:
            self.publish(name + OWNER, owner)
            fd = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with around(fd, image_bytes):
                    huge_bytes = reserve(fd, image_bytes, stop)
            finally:
                os.close(fd)
            os.link(aside, self.path(name))
        except OSError:
            self.remove(name)
            raise
        finally:
            aside.unlink(missing_ok=True)
        return name, huge_bytes

    def do(self, slot: str, effects: tuple[Effect, ...]) -> None:
        """Carry out the effects of a slot transition, in their order."""
        for effect in effects:
            self.path(slot, _EFFECT_SUFFIX[effect]).unlink(missing_ok=True)
        if Effect.UNLINK_IMAGE in effects:
            self.path(slot, OWNER).unlink(missing_ok=True)
        self.forget(slot + ".")

    def remove(self, slot: str) -> None:
        """Remove a slot, facts before bytes."""
        self.do(slot, (Effect.WITHDRAW_SEALED, Effect.WITHDRAW_PROVEN, Effect.UNLINK_IMAGE))

    def sweep(self) -> None:
        """Remove what a killed process left unfinished. Only the agent calls this, at its start."""
        for path in self.root.glob(f".*{PART_SUFFIX}"):
            if not _is_being_written(path.name):
                path.unlink(missing_ok=True)
        whole = set(self._names(IMAGE))
        for suffix in (OWNER, SEALED, PROVEN):
            for name in self._names(suffix):
                if name not in whole:
                    self.path(name, suffix).unlink(missing_ok=True)

    def wipe(self) -> None:
        """Remove the whole arena and the directories above it that are then empty."""
        for path in list(self.root.glob("*")) + list(self.root.glob(f".*{PART_SUFFIX}")):
            if path.name != LOCK:
                path.unlink(missing_ok=True)
        # Ordering: the lock goes last. Once it is gone another agent may begin here, and must find nothing half removed.
        (self.root / LOCK).unlink(missing_ok=True)
        for directory in (self.root, self.root.parent, self.root.parent.parent):
            with suppress_ours(OSError):
                directory.rmdir()

    def _names(self, suffix: str) -> Iterator[str]:
        try:
            found = sorted(entry.name for entry in os.scandir(self.root) if entry.name.endswith(suffix))
        except ours(FileNotFoundError):
            return
        for name in found:
            yield name.removesuffix(suffix)

    def _slot(self, name: str) -> SlotFiles | None:
        parsed = parse_slot_name(name)
        if parsed is None:
            return None
        owner = self.fact(name + OWNER, records.OwnerRecord)
        if owner is None:
            self.problems.setdefault(name + IMAGE, f"{self.path(name)} has no readable owner fact")
            return None
        with suppress_ours(FileNotFoundError):
            return SlotFiles(
                name=name,
                rank=parsed[0],
                owner=owner,
                sealed=self.fact(name + SEALED, records.SealedRecord),
                proven=self.fact(name + PROVEN, records.ProvenRecord),
                image_bytes=self.path(name).stat().st_size,
            )
        return None
