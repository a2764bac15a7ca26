"""What stands in for bytes and records in the explorer's world.

A tensor state is three words: the past it came from, the finished steps, the rank. Two states that differ in any of them
would differ in real bytes too, so a mixture, a wrong past or a torn copy is seen by comparing values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from hinan.core.ids import StepId
from hinan.core.slot import Slot

CHUNKS = 2
"""An image is written in this many separate events, so that a kill or another writer can come between."""


class Content(NamedTuple):
    """The state of one rank: `past` names every attempt of its chain and where each went on, e.g. `1:0>2:30`."""

    past: str
    step: int
    rank: int


Chunks = tuple[Content | None, ...]
EMPTY: Chunks = (None,) * CHUNKS


def whole_image(content: Content) -> Chunks:
    """The chunks of an image that holds exactly this state."""
    return (content,) * CHUNKS


def flipped(chunks: Chunks) -> Chunks:
    """The same bytes with one bit turned: nobody's state."""
    first = chunks[0]
    return (first._replace(past=first.past + "~") if first else Content("~", 0, 0), *chunks[1:])


class Violation(AssertionError):
    """An invariant does not hold; the message says which and how."""


@dataclass
class Inode:
    """The bytes of an image file. Ownership: process `writer`, for life. `damaged` is known to the checks alone."""

    writer: int
    chunks: Chunks = EMPTY
    damaged: bool = False


@dataclass(frozen=True)
class Sealed:
    """The fact `.sealed`: a trainer says that a copy has ended, and what it is."""

    step_id: StepId
    rank: int
    world_size: int
    commit_at: int
    torn: bool = False


@dataclass(frozen=True)
class Proven:
    """The fact `.proven`: digests of the image (here the chunks themselves). `late`: not by the agent that saw the seal."""

    digest: Chunks
    late: bool = False


@dataclass(frozen=True)
class Manifest:
    """The record beside an image on the target."""

    step_id: StepId
    rank: int
    world_size: int
    digest: Chunks
    torn: bool = False


@dataclass
class SlotFiles:
    """One slot as it lies in an arena: the image, the facts beside it, and who may write it.

    Attributes:
        told: what the trainer reported by message; nothing may depend on it (rule B1).
        readers: pids with a read lease.
        shown: the slot as the core saw it last, with what it was made from.
    """

    name: str
    rank: int
    attempt: int
    inode: Inode
    sealed: Sealed | None = None
    proven: Proven | None = None
    told: Sealed | None = None
    filling: bool = False
    readers: set[int] = field(default_factory=set)
    shown: tuple[object, Slot] | None = None
