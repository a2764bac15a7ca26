"""The target in the explorer's world: images with a page cache, records that appear whole, names that show late.

Owns:      what is under the final names, what is under temporary names, and which of it would survive a power loss.
Promises:  `power_loss` drops exactly what was not made to survive: bytes without SYNC, names without SYNC_DIRECTORY.
Relies on: records (claims, resumes, manifests, commits, tombstones) being published by the one verb of rule M1, which
           is synced by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from hinan.core.ids import StepId
from hinan.core.lineage import History, Resume
from hinan.sim.values import EMPTY, Chunks, Manifest

VISIBLE_AFTER = 20
"""On a slow store another process may miss a name for up to this many events (the visibility time of rule F1)."""

ImageKey = tuple[StepId, int]


class WriteError(OSError):
    """The store refused a write for now."""


@dataclass
class Stamp:
    """Who published a name and from which event on everybody sees it."""

    by: int
    visible_at: int


@dataclass
class Stored:
    """One image file. `host` is the host whose page cache holds what is not synced yet."""

    chunks: Chunks
    host: int
    synced: bool = False
    name_synced: bool = False
    damaged: bool = False
    before: Stored | None = None

    @property
    def survives(self) -> bool:
        """Whether whole bytes stand under this name after a power loss: these, or those that it was renamed over."""
        return self.synced and (self.name_synced or (self.before is not None and self.before.survives))


@dataclass
class Target:
    """The shared place of the run. `slow`: names show late; `failing_until`: writes fail before that event."""

    slow: bool = False
    failing_until: int = 0
    asides: dict[tuple[ImageKey, int], Stored] = field(default_factory=dict)
    images: dict[ImageKey, Stored] = field(default_factory=dict)
    manifests: dict[ImageKey, tuple[Manifest, Stamp]] = field(default_factory=dict)
    commits: dict[StepId, Stamp] = field(default_factory=dict)
    tombs: dict[StepId, Stamp] = field(default_factory=dict)
    claims: dict[int, Stamp] = field(default_factory=dict)
    resumes: dict[int, tuple[Resume, Stamp]] = field(default_factory=dict)
    failures: set[tuple[StepId, str]] = field(default_factory=set)
    readers: dict[StepId, set[int]] = field(default_factory=dict)

    def stamp(self, now: int, by: int, rng: Random) -> Stamp:
        """The stamp of a name published now. Raises WriteError while the store refuses writes."""
        if now < self.failing_until:
            raise WriteError("the store refuses writes")
        return Stamp(by, now + rng.randrange(VISIBLE_AFTER) if self.slow else now)

    def history(self, now: int, reader: int) -> History:
        """Claims and resumes as `reader` sees them."""
        claims = frozenset(n for n, stamp in self.claims.items() if _seen(stamp, now, reader))
        resumes = {n: resume for n, (resume, stamp) in self.resumes.items() if _seen(stamp, now, reader)}
        return History(claims, resumes)

    def seen_manifests(self, now: int, reader: int) -> dict[ImageKey, Manifest]:
        return {key: m for key, (m, stamp) in self.manifests.items() if _seen(stamp, now, reader)}

    def seen(self, names: dict[StepId, Stamp], now: int, reader: int) -> set[StepId]:
        return {step_id for step_id, stamp in names.items() if _seen(stamp, now, reader)}

    def write_aside(self, key: ImageKey, chunks: Chunks, *, host: int, by: int, now: int) -> None:
        """Bytes under a temporary name that is the writer's own."""
        if now < self.failing_until:
            raise WriteError("the store refuses writes")
        self.asides[key, by] = Stored(chunks, host)

    def sync(self, key: ImageKey, by: int) -> None:
        file = self.asides.get((key, by)) or self.images.get(key)
        if file is not None:
            file.synced = True

    def name(self, key: ImageKey, by: int) -> None:
        file = self.asides.pop((key, by), None)
        if file is None:
            raise WriteError("the temporary file is gone")
        file.before = self.images.get(key)
        self.images[key] = file

    def sync_directory(self, step_id: StepId) -> None:
        for (of_step, _), file in self.images.items():
            if of_step == step_id:
                file.name_synced, file.before = True, None

    def remove(self, step_id: StepId) -> None:
        """Delete everything of a step, its tombstone last (one event: a kill in between leaves what the next one finds)."""
        self.asides = {k: f for k, f in self.asides.items() if k[0][0] != step_id}
        for key in [k for k in (*self.images, *self.manifests) if k[0] == step_id]:
            self.images.pop(key, None)
            self.manifests.pop(key, None)
        self.commits.pop(step_id, None)
        self.tombs.pop(step_id, None)

    def power_loss(self, host: int, rng: Random) -> None:
        """Drop what the page cache of `host` held; whether an unsynced name is gone is chance, as on a real disk."""
        self.asides = {k: f for k, f in self.asides.items() if f.host != host}
        for key, file in list(self.images.items()):
            if file.host != host:
                continue
            if not file.synced:
                file.chunks = EMPTY
            if not file.name_synced and rng.random() < 0.7:
                if file.before is None:
                    del self.images[key]
                else:
                    self.images[key] = file.before


def _seen(stamp: Stamp, now: int, reader: int) -> bool:
    return stamp.by == reader or now >= stamp.visible_at
