"""Brings every rank back to one proven step: decide, verify, vote, install (rules G1 to G3).

Promises:  live state is touched only after every rank has verified its bytes and matched them with its live state; a
           source that fails is remembered on the target, and all ranks try the next candidate together.
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable, MutableMapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hinan.core.decide import Candidate, Decision, Image
from hinan.core.errors import AgentError, ConfigError, DamageError, Fenced, FormatError, HinanError, NothingToResume
from hinan.core.ids import StepId
from hinan.formats import messages as m
from hinan.formats.records import FailureRecord, ManifestRecord, ResumeRecord, decode, now_text
from hinan.host.mounts import wait_until_seen
from hinan.host.rpc import AgentClient
from hinan.host.signals import ours
from hinan.tiers.arena import Arena
from hinan.tiers.mapping import let_go, map_file, populate_for_reading, read_header
from hinan.tiers.publish import AlreadyPublished
from hinan.tiers.target import Target
from hinan.tiers.views import flaw_of, read_checked
from hinan.trainer.attempt.deciding import decided
from hinan.trainer.attempt.liaison import Place
from hinan.trainer.attempt.ranks import Ranks
from hinan.trainer.restoring.differences import refuse_lazy
from hinan.trainer.restoring.install import Matcher, Write
from hinan.trainer.restoring.parsing import Small, parse_small
from hinan.trainer.restoring.saved import SavedTensors
from hinan.trainer.state.rng import set_rng_state

log = logging.getLogger("hinan")

VIEWS_TIMEOUT_S = 30.0
_OF_THE_BYTES = (errno.EIO, errno.EBADMSG, errno.EUCLEAN, errno.ENODATA, errno.ENOENT)
"""What a file system says of bytes that it cannot give. Everything else (no permission, no descriptors, a server that does
not answer) is mended, and then they are read."""
THREADS = 2
"""Map, digest and unmap a RAM copy: with more, memory is the limit, and the other ranks of the node restore too."""


@dataclass(frozen=True)
class Resumed:
    """What a restore did.

    Attributes:
        step: finished steps; 0 for a fresh start.
        attempt: incarnation whose step it is; None for a fresh start.
        source: "ram", "target" or "mixed"; "" for a fresh start.
        reason: in a sentence.
        bytes_from: bytes this rank read, by tier.
        seconds: time spent, by phase: decide, read, install.
    """

    step: int
    attempt: int | None
    source: str
    reason: str
    bytes_from: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def parent(self) -> StepId | None:
        """The step it went on from; None for a fresh start."""
        return None if self.attempt is None else StepId(self.attempt, self.step)


class Restore:
    """One restore on one rank. All ranks call `run` together."""

    def __init__(self, place: Place, target: Target, ranks: Ranks, attempt: int) -> None:
        self._place, self._target, self._ranks, self._attempt = place, target, ranks, attempt
        self._arena = Arena(place.arena)
        self._seconds: dict[str, float] = {}

    def run(self, state: MutableMapping[str, Any], *, fresh: bool) -> Resumed:
        """Decide, verify, vote, install.

        Raises:
            NothingToResume: there are steps, and none can be used.
            StructureError: the live state does not fit the saved one.
            PeerError: another rank failed; it is named.
        """
        candidates = self._decided(fresh)
        for sources, step_id, tier, reason in candidates:
            with ExitStack() as held:
                began = time.monotonic()
                writes, flaw, failure = self._prepared(sources, step_id, state, held)
                self._seconds["read"] = time.monotonic() - began
                if not self._all_ok(flaw, failure, step_id, tier):
                    continue
                self._publish_resume(step_id, tier)
                began = time.monotonic()
                self._install(writes)
                self._seconds["install"] = time.monotonic() - began
                image = sources[self._ranks.rank]
                read = {("target" if "/" in image.place else "ram"): image.image_bytes}
                return Resumed(step_id.step, step_id.attempt, tier, reason, read, self._seconds)
        if candidates:
            raise NothingToResume("every candidate failed when it was read; `hinan decide` lists the reasons")
        _, failure = self._try(lambda: refuse_lazy(state))
        self._ranks.agree(failure, "looking at the live state")
        self._publish_resume(None, "")
        return Resumed(0, None, "", "fresh start, as asked" if fresh else "nothing was saved yet", {}, self._seconds)

    def _install(self, writes: list[Write]) -> None:
        try:
            for write in writes:
                write()
        except BaseException as error:
            log.error(
                "restore.interrupted by %s: the live state is written in part. Do not use it before restore() has been "
                "called again, which writes all of it, and has returned", type(error).__name__,
            )  # fmt: skip
            raise

    # -- deciding ------------------------------------------------------------------------------------------------

    def _decided(self, fresh: bool) -> list[tuple[dict[int, Image], StepId, str, str]]:
        """Rank 0 looks at all tiers and decides; every rank gets the same list."""
        began = time.monotonic()
        answer: object = None
        failure: Exception | None = None
        if self._ranks.rank == 0 and not fresh:
            ranked, failure = self._try(self._look)
            answer = [_plain(c) for c in ranked] if failure is None else None
        self._ranks.agree(failure, "deciding what to resume from")
        told = self._ranks.from_first(answer or [], "telling the decision")
        self._seconds["decide"] = time.monotonic() - began
        assert isinstance(told, list)
        return [_candidate(item) for item in told]

    def _look(self) -> tuple[Candidate, ...]:
        self._settle()
        decision = decided(self._target, self._arena, self._place, self._ranks.world_size)
        for candidate in decision.candidates:
            log.info("decide %s from %s: %s", candidate.step_id, candidate.tier, candidate.reason)
        for name, why in {**self._arena.problems, **self._target.problems}.items():
            log.warning("unreadable fact=%s why=%s", name, why)
        if not decision.ranked:
            self._refuse_if_trained(decision, {**self._arena.problems, **self._target.unreadable_attempts()})
        return decision.ranked

    def _settle(self) -> None:
        """Let the agent take the digests that are still missing; without an agent the proven images must do."""
        try:
            self._ask(m.Settle(), time.monotonic() + VIEWS_TIMEOUT_S).close()
        except HinanError as error:
            log.warning("restore.unsettled %s", error)

    def _ask(self, request: m.Request, deadline: float) -> AgentClient:
        """Ask the agent, and again the one that is started in its place if it dies; the open connection.

        Raises:
            AgentError: no answer by the deadline.
            FormatError: the agent refused.
        """
        while True:
            left = max(0.1, deadline - time.monotonic())
            try:
                client = self._place.connect(left)
                answer = client.ask(request, left)
            except AgentError:
                if time.monotonic() >= deadline:
                    raise
                continue
            if isinstance(answer, m.Refused):
                client.close()
                raise FormatError(answer.reason)
            return client

    def _refuse_if_trained(self, decision: Decision, unreadable: dict[str, str]) -> None:
        """Raise if there is something to lose. Attempts that never held or committed a whole step leave nothing.

        Args:
            unreadable: records without which slots or the lineage cannot be told; they may hide a step.
        """
        if not unreadable and not any(c.was_whole for c in decision.candidates):
            return
        lines = [f"  {c.step_id} from {c.tier}: {c.reason}" for c in decision.candidates]
        lines += [f"  unreadable: {reason}" for reason in unreadable.values()]
        raise NothingToResume(
            f"{self._target.root} holds {len(lines)} candidate{'s' * (len(lines) > 1)} and none can be used:\n"
            + "\n".join(lines)
            + "\nMend what is named, or start over on purpose with fresh=True or an empty target.",
            candidates=len(lines),
        )

    # -- verifying -----------------------------------------------------------------------------------------------

    def _try(self, work: Callable[[], Any]) -> tuple[Any, Exception | None]:
        """Whatever fails here, also code of the user's that is asked for its state: the others wait for this vote."""
        try:
            return work(), None
        except ours(Exception) as error:
            return None, error

    def _all_ok(self, flaw: Exception | None, failure: Exception | None, step_id: StepId, tier: str) -> bool:
        """Vote. Bytes that failed on any rank rule the candidate out on all; anything else ends the restore."""
        self._ranks.agree(failure, f"reading {step_id} from {tier}")
        texts = self._ranks.all(str(flaw) if flaw is not None else None, "voting")
        failed = [f"rank {rank}: {text}" for rank, text in enumerate(texts) if text is not None]
        for text in failed:
            log.error("restore.refused %s from %s: %s", step_id, tier, text)
        if failed and self._ranks.rank == 0:
            record = FailureRecord(step_id.attempt, step_id.step, tier, self._attempt, "; ".join(failed))
            self._target.publish_failure(record)
        return not failed

    def _prepared(
        self, sources: dict[int, Image], step_id: StepId, state: MutableMapping[str, Any], held: ExitStack
    ) -> tuple[list[Write], Exception | None, Exception | None]:
        """Get this rank's bytes, check them, compare them with the live state; (writes, flaw of the bytes, other failure).

        Only until the bytes are read can they be what is wrong. Whatever fails as they are compared comes from the program,
        and what is remembered of it on the target would outlive its mending. Writes nothing.
        """
        read: tuple[SavedTensors, Small]
        read, failure = self._try(lambda: self._read(sources, step_id, held))
        if failure is not None:
            return ([], failure, None) if _is_of_the_bytes(failure) else ([], None, failure)
        writes, failure = self._try(lambda: self._matched(*read, state))
        return writes or [], None, failure

    def _read(self, sources: dict[int, Image], step_id: StepId, held: ExitStack) -> tuple[SavedTensors, Small]:
        """This rank's tensors and small values, every digest checked. Nothing of the user's is asked."""
        source = sources[self._ranks.rank]
        from_ram = "/" not in source.place
        record, name = self._ram_record(source, held) if from_ram else self._target_record(source, step_id, held)
        if record.sealed.step_id != step_id:
            raise DamageError(f"{name} holds {record.sealed.step_id} now, not {step_id}", file=name)
        image, flaw = self._from_ram(source, record, held) if from_ram else self._from_target(source, record)
        if flaw is not None:
            raise DamageError(flaw, file=name)
        _, header = read_header(image, name)
        return SavedTensors(image, header, is_ours=not from_ram), parse_small(record)

    def _matched(self, saved: SavedTensors, small: Small, state: MutableMapping[str, Any]) -> list[Write]:
        writes = Matcher(saved, state).match(small.state, state)
        # Ordering: the generators come last; loading anything after them may draw from them (rule D5).
        return [*writes, lambda: set_rng_state(small.rng)]

    def _ram_record(self, source: Image, held: ExitStack) -> tuple[ManifestRecord, str]:
        """What a slot's facts say, under a read lease; and the image's name for messages."""
        held.callback(self._ask(m.Read([source.place]), time.monotonic() + VIEWS_TIMEOUT_S).close)
        name = str(self._arena.path(source.place))
        files = next((f for f in self._arena.scan() if f.name == source.place), None)
        if files is None or files.sealed is None or files.proven is None:
            raise FormatError(f"{name} is no longer proven", file=name)
        return ManifestRecord(files.sealed, files.proven), name

    def _from_ram(self, source: Image, record: ManifestRecord, held: ExitStack) -> tuple[memoryview, str | None]:
        """The bytes where they lie, and what is wrong with them."""
        path = self._arena.path(source.place)
        image = map_file(path)
        held.callback(let_go, image, THREADS)
        populate_for_reading(image, THREADS)
        return image, flaw_of(image, record.sealed, record.proven, str(path), THREADS)

    def _target_record(self, source: Image, step_id: StepId, held: ExitStack) -> tuple[ManifestRecord, str]:
        """A rank's manifest, with this process among the step's readers; and the image's name for messages."""
        held.enter_context(self._target.reading(step_id, self._place.node))
        # Another rank saw the whole step; this one's host may see it later.
        path = self._target.image_path(step_id, source.rank)
        wait_until_seen(lambda: self._stands(step_id, source.rank, path), path.parent)
        manifest = self._target.manifest(step_id, source.rank)
        if manifest is None:
            raise FormatError(f"{step_id} has no readable manifest of rank {source.rank}")
        return manifest, source.place

    def _stands(self, step_id: StepId, rank: int, path: Path) -> bool:
        """Whether an image is seen in its full length, with its manifest."""
        manifest = self._target.manifest(step_id, rank)
        return manifest is not None and path.exists() and path.stat().st_size == manifest.sealed.image_bytes

    def _from_target(self, source: Image, record: ManifestRecord) -> tuple[memoryview, str | None]:
        """The bytes, read into memory of our own, and what is wrong with them."""
        return read_checked(self._target.root / source.place, record.sealed, record.proven, source.place)

    def _publish_resume(self, parent: StepId | None, source: str) -> None:
        """Ordering: the lineage is written after the vote and before any live tensor changes (rule A3)."""
        failure: Exception | None = None
        newest = self._target.history().newest_claim if self._ranks.rank == 0 else self._attempt
        if newest > self._attempt:
            # An overtaken attempt must not turn the lineage once more: the newer one is deciding by the old one.
            failure = Fenced(f"attempt {newest} of this run has started; attempt {self._attempt} must end")
        elif self._ranks.rank == 0:
            record = ResumeRecord(
                attempt=self._attempt,
                parent_attempt=None if parent is None else parent.attempt,
                parent_step=0 if parent is None else parent.step,
                created=now_text(),
                source=source,
            )
            _, failure = self._try(lambda: self._say_resumed(record))
        self._ranks.agree(failure, "writing down what is resumed from")

    def _say_resumed(self, record: ResumeRecord) -> None:
        """Write the record, or find the one of this attempt's own restore that was interrupted behind it.

        The attempt turns the lineage once: the step must be the same, whatever tier it is read from now.
        """
        try:
            self._target.publish_attempt(record)
        except AlreadyPublished as error:
            standing = decode(error.standing, ResumeRecord, str(error.evidence["file"]))
            if standing.parent != record.parent:
                raise ConfigError(
                    f"this attempt's restore() was interrupted when it had chosen {standing.parent or 'a fresh start'}, "
                    f"and would go on from {record.parent or 'a fresh start'} now. Make a new Evacuator, and restore there"
                ) from None
            # Once more, with equal bytes: an interrupted publication may not have survived power loss yet.
            self._target.publish_attempt(replace(record, created=standing.created, source=standing.source))


def _is_of_the_bytes(failure: Exception) -> bool:
    return isinstance(failure, FormatError) or (isinstance(failure, OSError) and failure.errno in _OF_THE_BYTES)


def _plain(candidate: Candidate) -> dict[str, Any]:
    images = [[rank, i.place, i.image_bytes, i.world_size] for rank, i in candidate.sources.items()]
    return {"tier": candidate.tier, "step": list(candidate.step_id), "reason": candidate.reason, "images": images}


def _candidate(item: dict[str, Any]) -> tuple[dict[int, Image], StepId, str, str]:
    step_id = StepId(*item["step"])
    images = {rank: Image(step_id, rank, world, place, size) for rank, place, size, world in item["images"]}
    return images, step_id, item["tier"], item["reason"]
