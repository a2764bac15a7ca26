"""Drains one step: RAM to target, in the order of `core.commit.drain_effects`, with retries; commits it.

Promises:  the trainer's slots are only read; a failed try leaves nothing under a final name that a reader would believe.
Relies on: the agent pinning the step's slots for the whole round.
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

from hinan.core.commit import Do, DrainEffect, drain_effects, why_not_commit
from hinan.core.errors import DamageError, HinanError
from hinan.core.ids import StepId, image_file, manifest_file
from hinan.formats.digest import Damage, Proof
from hinan.formats.records import ManifestRecord, encode, fact_sum
from hinan.host.priority import yield_to_training
from hinan.tiers.arena import Arena, SlotFiles
from hinan.tiers.durable import ImageWriter
from hinan.tiers.mapping import map_file, read_header
from hinan.tiers.publish import publish
from hinan.tiers.target import Target

log = logging.getLogger("hinan.agent")

Observe = Callable[[DrainEffect, float], None]
Wait = Callable[[float], bool]

TRIES = 6
FIRST_WAIT_S = 0.1
AHEAD_BYTES = 16 << 20
HOPELESS = (errno.EROFS, errno.EACCES, errno.EPERM)
"""Errors that waiting does not mend; the round fails at once."""


class Abandoned(HinanError):
    """A round was given up; the reason is the message. Training and earlier commits are untouched."""


@dataclass(frozen=True)
class Round:
    """What is drained: the slots of every rank of one step."""

    step_id: StepId
    slots: Mapping[int, SlotFiles]

    @property
    def image_bytes(self) -> int:
        return sum(files.image_bytes for files in self.slots.values())


class Checks:
    """Compares an image with its proof while it is written: a thread digests the next bytes while others are on their way.

    Promises: when `pass_up_to` returns, every chunk that begins before this byte was right.
    """

    def __init__(self, proof: Proof, image: memoryview, name: str) -> None:
        self._proof, self._image, self._name = proof, image, name
        self._thread = ThreadPoolExecutor(1, "hinan-check", initializer=yield_to_training)
        self._ahead: list[tuple[int, Future[list[Damage]]]] = []
        self._sent = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    def pass_up_to(self, end_bytes: int) -> None:
        """Wait until all bytes up to here are checked; the next stretch is begun.

        Raises:
            DamageError: they are not what was proven; tensor and place are named.
        """
        last = end_bytes >= len(self._image)
        self._send(end_bytes)
        self._send(end_bytes + AHEAD_BYTES)
        while self._ahead and self._ahead[0][0] < end_bytes:
            _, checked = self._ahead.pop(0)
            self._refuse(checked.result())
        if last:
            self._refuse(self._proof.foreign)

    def _send(self, end_bytes: int) -> None:
        stop = self._proof.first_from(end_bytes)
        if stop > self._sent:
            first = self._proof.chunks[self._sent].offset
            self._ahead.append((first, self._thread.submit(self._proof.damages, self._image, self._sent, stop)))
            self._sent = stop

    def _refuse(self, found: list[Damage]) -> None:
        for damage in found:
            raise DamageError(
                f"{self._name} has changed since it was proven: {damage}", file=self._name, tensor=damage.chunk.box
            )


class Drainer:
    """Carries out rounds, one at a time, in one thread."""

    def __init__(self, arena: Arena, target: Target, run_id: str, served: Callable[[], int], wait: Wait) -> None:
        """
        Args:
            served: newest attempt this agent works for, asked again before each commit.
            wait: sleeps for some seconds; True means "stop now" (the agent is ending).
        """
        self._arena, self._target, self._run_id = arena, target, run_id
        self._served, self._wait = served, wait
        self.observe: Observe = lambda effect, share: None
        """Called before each effect (share 0) and while bytes are written (share in 0..1)."""
        self._at = ""
        """The effect under way, for messages."""
        self.direct: bool | None = None
        """Whether the last image bypassed the page cache."""

    def drain(self, what: Round) -> float:
        """Persist and commit a step; seconds it took.

        Raises:
            Abandoned: with the reason; nothing was committed.
        """
        yield_to_training()
        began = time.monotonic()
        pause_s = FIRST_WAIT_S
        for left in reversed(range(TRIES)):
            try:
                with self._target.held(self._run_id) as target:
                    self._walk(what, target)
                return time.monotonic() - began
            except OSError as error:
                reason = f"{what.step_id} could not be written to {self._target.root}: {error.strerror or error}"
                if left == 0 or error.errno in HOPELESS:
                    raise Abandoned(reason, errno=error.errno) from error
                log.warning("drain.retry step=%d wait_s=%.1f error=%r", what.step_id.step, pause_s, str(error))
            except HinanError as error:
                raise Abandoned(str(error)) from error
            except Exception as error:
                # Whoever waits for the step must hear of a bug, too, and the same round must not begin again and again.
                log.exception("bug in a drain")
                raise Abandoned(f"{what.step_id} was not committed: a bug in the agent at {self._at}: {error!r}") from error
            if self._wait(pause_s):
                raise Abandoned(f"{what.step_id}: the agent is ending")
            pause_s *= 2
        raise AssertionError("unreachable: the last try returns or raises")

    def _walk(self, what: Round, target: Target) -> None:
        directory = target.make_directory(what.step_id)
        ranks = sorted(what.slots)
        writers = {r: ImageWriter(directory, image_file(r), what.slots[r].image_bytes) for r in ranks}
        try:
            for effect in drain_effects(ranks):
                self._at = effect.do.name if effect.rank is None else f"{effect.do.name} of rank {effect.rank}"
                self.observe(effect, 0.0)
                self._carry_out(effect, what, writers, target)
        finally:
            for writer in writers.values():
                writer.discard()

    def _carry_out(self, effect: DrainEffect, what: Round, writers: Mapping[int, ImageWriter], target: Target) -> None:
        if effect.rank is None:
            self._commit(what, target)
            return
        files, writer = what.slots[effect.rank], writers[effect.rank]
        match effect.do:
            case Do.WRITE_ASIDE:
                self._write(effect, files, writer)
            case Do.SYNC:
                writer.sync()
            case Do.NAME:
                writer.name()
            case Do.SYNC_DIRECTORY:
                writer.sync_directory()
            case Do.PUBLISH_MANIFEST:
                assert files.sealed is not None and files.proven is not None
                manifest = encode(ManifestRecord(files.sealed, files.proven))
                path = target.directory(what.step_id) / manifest_file(effect.rank)
                publish(path, manifest, power_safe=True)

    def _write(self, effect: DrainEffect, files: SlotFiles, writer: ImageWriter) -> None:
        path = self._arena.path(files.name)
        image = map_file(path)
        raw, header = read_header(image, str(path))
        assert files.sealed is not None and files.proven is not None
        if fact_sum(raw) != files.sealed.header_sum:
            raise DamageError(f"{path}: its header has changed since it was sealed", file=str(path))
        with Checks(Proof(header, files.proven), image, str(path)) as checks:

            def before(offset: int, piece: memoryview) -> None:
                # Checked at this hop: what leaves RAM is what was proven, so a flipped bit is not carried to the target.
                checks.pass_up_to(offset + len(piece))
                self.observe(effect, offset / len(image))

            writer.write_aside(image, before)
            checks.pass_up_to(len(image))
        self.direct = writer.direct

    def _commit(self, what: Round, target: Target) -> None:
        # Ordering: claims are read again immediately before; a newer attempt may have appeared (rule A5).
        manifests = [r for r in what.slots if target.manifest(what.step_id, r) is not None]
        history = target.history()
        # Then who is served: an attempt that starts on this node in between is ours, and does not fence us.
        reason = why_not_commit(
            what.step_id,
            world_size=len(what.slots),
            manifests=manifests,
            history=history,
            served=self._served(),
        )
        if reason is not None:
            raise Abandoned(f"{what.step_id} was not committed: {reason}")
        target.publish_commit(what.step_id, len(what.slots))
