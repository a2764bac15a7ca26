"""Digests of images: xxh3-128 by tensor, in chunks, so that a wrong byte names its tensor and its place.

They are evidence against accidents (a flipped bit, a torn file, swapped files), not against an adversary.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

import xxhash

from hinan.formats.image import Entry, Header
from hinan.formats.records import BoxRecord, ProvenRecord

CHUNK_BYTES = 8 << 20
WORTH_A_THREAD_BYTES = 32 << 20


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


def digest_all(image: memoryview, ranges: Sequence[Chunk], threads: int = 1) -> list[str]:
    """Digests of some ranges, in their order.

    Args:
        threads: each takes a run of neighbouring ranges, about equally many bytes. More than two gain little: memory is
            then as fast as it gets.
    """
    found = [""] * len(ranges)

    def take(start: int, stop: int) -> None:
        for i in range(start, stop):
            chunk = ranges[i]
            found[i] = digest(image[chunk.offset : chunk.offset + chunk.size_bytes])

    total_bytes = sum(c.size_bytes for c in ranges)
    if threads < 2 or total_bytes < WORTH_A_THREAD_BYTES:
        take(0, len(ranges))
        return found
    ends = [0, *_cuts([c.size_bytes for c in ranges], threads), len(ranges)]
    with ThreadPoolExecutor(threads - 1, "hinan-digest") as pool:
        others = [pool.submit(take, a, b) for a, b in pairwise(ends[1:])]
        take(ends[0], ends[1])
        for other in others:
            other.result()
    return found


def _cuts(sizes: Sequence[int], parts: int) -> list[int]:
    """Where to cut a list so that each part has about equally many bytes."""
    sums = list(accumulate(sizes))
    return [bisect_right(sums, sums[-1] * part // parts) for part in range(1, parts)]


def box_records(header: Header, image: memoryview, chunk_bytes: int = CHUNK_BYTES) -> list[BoxRecord]:
    """Digest every entry of an image. Each rank holds whole tensors, so the box is the tensor."""
    return [
        BoxRecord(
            name=entry.name,
            global_shape=list(entry.shape),
            global_offset=[0] * len(entry.shape),
            digests=digest_all(image, list(chunks(entry, chunk_bytes))),
        )
        for entry in header.entries
    ]


class Proof:
    """What an image's proof says of each chunk, in the order of the bytes. A tensor that one side lacks is damage."""

    def __init__(self, header: Header, proven: ProvenRecord) -> None:
        recorded = {box.name: box.digests for box in proven.boxes}
        self.chunks: list[Chunk] = []
        self._wanted: list[str] = []
        for entry in header.entries:
            expected = recorded.pop(entry.name, [])
            for chunk in chunks(entry, proven.chunk_bytes):
                self.chunks.append(chunk)
                self._wanted.append(expected[chunk.index] if chunk.index < len(expected) else "nothing")
        self.foreign = [
            Damage(Chunk(name, 0, 0, 0), expected[0] if expected else "nothing", "no such tensor")
            for name, expected in recorded.items()
        ]
        """Tensors that were proven and are not in the image."""

    def damages(self, image: memoryview, start: int = 0, stop: int | None = None, threads: int = 1) -> list[Damage]:
        """Compare the chunks `start` to `stop` (by number); what differs."""
        some = self.chunks[start:stop]
        found = zip(some, self._wanted[start:stop], digest_all(image, some, threads), strict=True)
        return [Damage(chunk, wanted, got) for chunk, wanted, got in found if wanted != got]

    def first_after(self, end_bytes: int) -> int:
        """Number of the first chunk that does not end by this byte of the file."""
        return bisect_right(self._ends, end_bytes)

    def first_from(self, offset: int) -> int:
        """Number of the first chunk that begins at this byte of the file or behind it."""
        return bisect_left(self._starts, offset)

    @cached_property
    def _starts(self) -> list[int]:
        return [c.offset for c in self.chunks]

    @cached_property
    def _ends(self) -> list[int]:
        return [c.offset + c.size_bytes for c in self.chunks]


def damages(header: Header, image: memoryview, proven: ProvenRecord, threads: int = 1) -> list[Damage]:
    """Compare an image in memory with its proof; what differs, in the order of the bytes."""
    proof = Proof(header, proven)
    return proof.damages(image, threads=threads) + proof.foreign
