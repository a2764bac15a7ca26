"""Digests of images: xxh3-128 by tensor, in chunks, so that a wrong byte names its tensor and its place.

They are evidence against accidents (a flipped bit, a torn file, swapped files), not against an adversary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import xxhash

from hinan.formats.image import Entry, Header
from hinan.formats.records import BoxRecord, ProvenRecord

CHUNK_BYTES = 8 << 20


@dataclass(frozen=True)
class Chunk:
    """One digested range of an image file: bytes `offset` to `offset + size_bytes`."""

    box: str
    index: int
    offset: int
    size_bytes: int


@dataclass(frozen=True)
class Damage:
    """A chunk whose digest is not the recorded one."""

    chunk: Chunk
    expected: str
    found: str

    def __str__(self) -> str:
        return f"tensor {self.chunk.box!r}, bytes {self.chunk.offset} to {self.chunk.offset + self.chunk.size_bytes}"


def chunks(entry: Entry, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Chunk]:
    """The chunks of an entry, in order; an empty tensor has one empty chunk."""
    for index, start in enumerate(range(0, entry.size_bytes or 1, chunk_bytes)):
        size_bytes = min(chunk_bytes, entry.size_bytes - start)
        yield Chunk(entry.name, index, entry.offset + start, size_bytes)


def digest(data: bytes | memoryview) -> str:
    """xxh3-128 of some bytes, 32 hexadecimal digits. Releases the GIL for large ones."""
    return xxhash.xxh3_128_hexdigest(data)


def box_records(header: Header, image: memoryview, chunk_bytes: int = CHUNK_BYTES) -> list[BoxRecord]:
    """Digest every entry of an image. Each rank holds whole tensors, so the box is the tensor."""
    return [
        BoxRecord(
            name=entry.name,
            global_shape=list(entry.shape),
            global_offset=[0] * len(entry.shape),
            digests=[digest(image[c.offset : c.offset + c.size_bytes]) for c in chunks(entry, chunk_bytes)],
        )
        for entry in header.entries
    ]


def damages(header: Header, image: memoryview, proven: ProvenRecord) -> Iterator[Damage]:
    """Compare an image in memory with its proof; yields what differs.

    A tensor that one side lacks counts as damage of its first chunk.
    """
    recorded = {box.name: box.digests for box in proven.boxes}
    for entry in header.entries:
        expected = recorded.pop(entry.name, [])
        for chunk in chunks(entry, proven.chunk_bytes):
            wanted = expected[chunk.index] if chunk.index < len(expected) else "nothing"
            found = digest(image[chunk.offset : chunk.offset + chunk.size_bytes])
            if wanted != found:
                yield Damage(chunk, wanted, found)
    for name, expected in recorded.items():
        yield Damage(Chunk(name, 0, 0, 0), expected[0] if expected else "nothing", "no such tensor")
