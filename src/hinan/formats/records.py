"""Facts: small JSON files that appear whole, once, under their final name (docs/formats/facts.md).

Every fact has the same envelope: what it is, the version of its format, a digest of its body, and the body. A fact that
does not parse or whose digest is wrong is treated as absent by whoever decides, and reported.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
import xxhash

from hinan.core.errors import FormatError, FormatFromFuture
from hinan.core.ids import StepId

VERSION = 1
"""Version written, and newest version read. A newer one is refused (FormatFromFuture); unknown fields are skipped."""


def now_text() -> str:
    """Wall time for people and records, in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True)
class RunRecord:
    """`run.json`: the identity of a training job over its whole life."""

    run_id: str
    created: str


@dataclass(frozen=True)
class ClaimRecord:
    """`attempts/<n>.claim`: attempt n has started; it fences every lower one. Launcher ids are recorded, never trusted."""

    attempt: int
    run_id: str
    node: str
    pid: int
    start_ticks: int
    world_size: int
    created: str
    launcher: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ResumeRecord:
    """`attempts/<n>.resume`: what attempt n goes on from. `parent_attempt` is None for a fresh start."""

    attempt: int
    parent_attempt: int | None
    parent_step: int
    created: str
    source: str = ""

    @property
    def parent(self) -> StepId | None:
        return None if self.parent_attempt is None else StepId(self.parent_attempt, self.parent_step)


@dataclass(frozen=True)
class ClosedRecord:
    """`attempts/<n>.closed`: the training loop of attempt n ended on purpose after `step` steps."""

    attempt: int
    step: int
    created: str


@dataclass(frozen=True)
class AgentRecord:
    """`agents/<node>.json` and `owner.json` in the arena: who keeps the RAM copies of a node.

    `target_device` is the number of the file system the target lay on (0: not known), so that a target that was deleted
    can be told from one whose file system is not mounted at the moment.
    """

    node: str
    run_id: str
    pid: int
    start_ticks: int
    target: str
    arena: str
    target_device: int = 0


@dataclass(frozen=True)
class OwnerRecord:
    """`<slot>.owner`: the one process that may ever write this image file."""

    pid: int
    start_ticks: int
    attempt: int
    rank: int


@dataclass(frozen=True)
class SealedRecord:
    """`<slot>.sealed`: the copy in this slot is whole; published by the trainer after its copy event.

    Attributes:
        header_sum: digest of the image's header, that is of its layout.
        small: typed JSON of everything that is no tensor (docs/formats/values.md).
        commit_at: newest step at or below `step` that the cadence wants committed.
        stall_s: training time it had cost when it was sealed; the wait at the gate may still have been to come.
        settled_stall_s: training time that this rank's evacuation before this one has cost in all, gate included; None if
            there was none in this attempt, or it was lost.
    """

    attempt: int
    step: int
    rank: int
    world_size: int
    node: str
    image_bytes: int
    header_sum: str
    small: msgspec.Raw
    commit_at: int
    held_at: str
    stall_s: float
    settled_stall_s: float | None = None

    @property
    def step_id(self) -> StepId:
        return StepId(self.attempt, self.step)


@dataclass(frozen=True)
class BoxRecord:
    """A tensor's place: in the image by name, in the global tensor by offset and shape; digests by chunk."""

    name: str
    global_shape: list[int]
    global_offset: list[int]
    digests: list[str]


@dataclass(frozen=True)
class ProvenRecord:
    """`<slot>.proven`: digests of the image, taken by the agent. `late`: not by the agent that saw it sealed."""

    attempt: int
    step: int
    rank: int
    header_sum: str
    chunk_bytes: int
    boxes: list[BoxRecord]
    late: bool


@dataclass(frozen=True)
class ManifestRecord:
    """`rank-<r>.json`: what a rank's image on the target contains. The seal and the proof, joined."""

    sealed: SealedRecord
    proven: ProvenRecord


@dataclass(frozen=True)
class CommitRecord:
    """`COMMIT`: names every image of a step by the digest of its manifest; equal whoever writes it."""

    attempt: int
    step: int
    world_size: int
    manifest_sums: list[str]


@dataclass(frozen=True)
class TombstoneRecord:
    """`TOMBSTONE`: this step is about to be deleted; readers turn away."""

    attempt: int
    step: int
    reason: str


@dataclass(frozen=True)
class ReaderRecord:
    """`readers/<id>.json`: somebody reads this step; a deleter waits for it, up to the grace for readers."""

    pid: int
    node: str
    created: str


@dataclass(frozen=True)
class FailureRecord:
    """`failures/<step>-<tier>-<attempt>.json`: a restart from this source failed; it is not tried again."""

    attempt: int
    step: int
    tier: str
    by_attempt: int
    reason: str


@dataclass(frozen=True)
class LostRecord:
    """`<step>.lost` in the arena: a rank could not hold this step, so no rank needs to."""

    attempt: int
    step: int
    rank: int
    reason: str

    @property
    def step_id(self) -> StepId:
        return StepId(self.attempt, self.step)


@dataclass(frozen=True)
class InputRecord:
    """A number that a decision rests on. `kind`: measured, default or guessed; `source` for people."""

    value: float
    kind: str
    source: str


@dataclass(frozen=True)
class CadenceRecord:
    """`cadence-<attempt>-<n>.json` in the arena: rank 0 proposes a cadence from a step on. Number 0 is that of the start.

    Attributes:
        every_why, commit_why: why evacuations and commits come so often, for people.
        step_s: what a step took when it was decided; None before it was measured.
        is_decided: whether measurements decided it ("auto"), rather than the request alone.
        inputs: name (with its unit) -> what the decision rests on.
        lost: cause -> share of time that is expected to be lost to it.
    """

    attempt: int
    number: int
    from_step: int
    every_steps: int
    commit_multiple: int
    every_why: str
    commit_why: str
    step_s: float | None = None
    is_decided: bool = False
    inputs: dict[str, InputRecord] = field(default_factory=dict)
    lost: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class AckRecord:
    """`cadence-<attempt>-<n>.ack-<rank>`: this rank will look at the verdict when it reaches `from_step`."""

    attempt: int
    number: int
    rank: int


@dataclass(frozen=True)
class VerdictRecord:
    """`cadence-<attempt>-<n>.verdict`: the first one published binds every rank."""

    attempt: int
    number: int
    accepted: bool


_KINDS: dict[type, str] = {
    RunRecord: "run",
    ClaimRecord: "claim",
    ResumeRecord: "resume",
    ClosedRecord: "closed",
    AgentRecord: "agent",
    OwnerRecord: "owner",
    SealedRecord: "sealed",
    ProvenRecord: "proven",
    ManifestRecord: "manifest",
    CommitRecord: "commit",
    TombstoneRecord: "tombstone",
    ReaderRecord: "reader",
    FailureRecord: "failure",
    LostRecord: "lost",
    CadenceRecord: "cadence",
    AckRecord: "ack",
    VerdictRecord: "verdict",
}


class _Envelope(msgspec.Struct):
    hinan: str
    version: int
    sum: str
    body: msgspec.Raw


R = TypeVar("R")


def fact_sum(data: bytes | memoryview) -> str:
    """Digest of a small file or body: xxh3-128, 32 hexadecimal digits."""
    return xxhash.xxh3_128_hexdigest(data)


def encode(record: Any) -> bytes:
    """A record's file: equal values give equal bytes."""
    body = msgspec.json.encode(record)
    envelope = _Envelope(_KINDS[type(record)], VERSION, fact_sum(body), msgspec.Raw(body))
    return msgspec.json.encode(envelope) + b"\n"


def decode(data: bytes, kind: type[R], name: str) -> R:
    """The record in a file's bytes.

    Args:
        name: of the file, for the message.
    Raises:
        FormatFromFuture: the version is newer than this hinan reads.
        FormatError: torn, changed, or another kind of record.
    """
    try:
        envelope = msgspec.json.decode(data, type=_Envelope)
    except (msgspec.DecodeError, RecursionError) as error:
        raise FormatError(f"{name} is not a whole hinan record ({error})", file=name) from None
    if envelope.version > VERSION:
        raise FormatFromFuture(
            f"{name} has format version {envelope.version}, this hinan reads up to {VERSION}: install a newer hinan",
            file=name,
            version=envelope.version,
            reads=VERSION,
        )
    if envelope.hinan != _KINDS[kind]:
        raise FormatError(f"{name} is a {envelope.hinan!r} record, not {_KINDS[kind]!r}", file=name)
    body = bytes(envelope.body)
    if fact_sum(body) != envelope.sum:
        raise FormatError(f"{name} has changed since it was written: its digest is wrong", file=name)
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise FormatError(f"{name} lacks what a {_KINDS[kind]} record has ({error})", file=name) from None
