"""Images are checked while they are read and while they are written; what is wrong never passes."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from hinan.agent import drainer
from hinan.agent.drainer import Checks
from hinan.core.errors import DamageError, FormatError
from hinan.formats import digest
from hinan.formats.digest import Proof, box_records, damages
from hinan.formats.image import Entry, lay_out
from hinan.formats.records import BoxRecord, ProvenRecord, SealedRecord, fact_sum
from hinan.tiers import reading
from hinan.tiers.mapping import let_go, map_file, populate_for_reading, read_header
from hinan.tiers.reading import read_file
from hinan.tiers.views import flaw_of, read_checked

CHUNK_BYTES = 4096
SHAPES = {"a": 3 * CHUNK_BYTES, "b": 0, "c": CHUNK_BYTES // 2, "d": 5 * CHUNK_BYTES + 7, "e": 1}


class Made:
    """An image file of several tensors, with its facts."""

    def __init__(self, path: Path) -> None:
        raw, header = lay_out([Entry(name, "U8", (size,)) for name, size in SHAPES.items()], {})
        data = bytearray(raw + os.urandom(header.image_bytes - len(raw)))
        path.write_bytes(data)
        self.path, self.header, self.bytes = path, header, data
        boxes = box_records(header, memoryview(data), CHUNK_BYTES)
        self.proven = ProvenRecord(1, 2, 0, fact_sum(raw), CHUNK_BYTES, boxes, late=False)
        self.sealed = SealedRecord(1, 2, 0, 1, "node", len(data), fact_sum(raw), {}, 0, "now", 0.0)  # type: ignore[arg-type]

    def flip(self, tensor: str, byte: int) -> None:
        """Change one bit of a tensor on the disk."""
        self.bytes[self.header.by_name[tensor].offset + byte] ^= 1
        self.path.write_bytes(self.bytes)

    def check(self) -> str | None:
        image, flaw = read_checked(self.path, self.sealed, self.proven, "the file")
        if flaw is None:
            assert bytes(image) == bytes(self.bytes)
        return flaw


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setattr(reading, "READ_BYTES", CHUNK_BYTES)
    return Made(tmp_path / "image")


PLACES = [("a", 0), ("a", CHUNK_BYTES), ("c", 5), ("d", 5 * CHUNK_BYTES + 6), ("e", 0)]


def test_a_good_image_is_read_whole(made: Made) -> None:
    """Every byte arrives, checked, whatever the number of pieces."""
    assert made.check() is None
    assert bytes(read_file(made.path)) == bytes(made.bytes)


@pytest.mark.parametrize(("tensor", "byte"), PLACES)
def test_one_wrong_bit_is_found_while_reading(tensor: str, byte: int, made: Made) -> None:
    """In the first, a middle and the last chunk, and in a tensor of one byte: file and tensor are named."""
    made.flip(tensor, byte)
    flaw = made.check()
    assert flaw is not None
    assert flaw.startswith(f"the file: tensor {tensor!r}")


def test_what_is_not_the_proven_image_is_a_flaw(made: Made) -> None:
    """A changed header, another length, a tensor without proof and a proof without tensor."""
    good = bytes(made.bytes)
    made.bytes[20] ^= 1
    made.path.write_bytes(made.bytes)
    assert made.check() is not None
    made.path.write_bytes(good + bytes(4096))
    assert "bytes" in str(made.check())
    made.path.write_bytes(b"")
    assert made.check() is not None
    made.path.write_bytes(good)
    boxes, whole = made.proven.boxes, made.proven
    made.proven = ProvenRecord(1, 2, 0, whole.header_sum, CHUNK_BYTES, boxes[1:], late=False)
    assert "'a'" in str(made.check())
    ghost = BoxRecord("ghost", [1], [0], ["0" * 32])
    made.proven = ProvenRecord(1, 2, 0, whole.header_sum, CHUNK_BYTES, [*boxes, ghost], late=False)
    assert "'ghost'" in str(made.check())


@pytest.mark.parametrize("most", [1000, 4096, 5000])
def test_short_reads_lose_nothing(most: int, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that gives only some bytes at a time, also at odd places past the page cache."""
    preadv = os.preadv
    monkeypatch.setattr(reading, "READ_BYTES", 4 * CHUNK_BYTES)
    monkeypatch.setattr(os, "preadv", lambda fd, views, at: preadv(fd, [views[0][:most]], at))
    assert made.check() is None


def test_a_reader_beside_one_that_leaves_direct_reads(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of that another one reads at an odd place: it is refused as well, and not for good."""
    set_direct, nested = reading._set_direct, list[int]()
    with reading.Reading(made.path) as whole:
        whole.wait_for(whole.size_bytes)
        if not whole._direct:  # a file system without direct reads
            return

        def beside(fd: int, *, wanted: bool) -> bool:
            if not nested:
                nested.append(fd)
                whole._read(1, 100)
            return set_direct(fd, wanted=wanted)

        monkeypatch.setattr(reading, "_set_direct", beside)
        whole._read(3, 200)
    assert nested


def test_a_file_system_that_refuses_direct_reads_late(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """O_DIRECT can be set and the reads are refused, by several threads at once: the page cache serves them."""
    preadv, direct_reads = os.preadv, []

    def refusing(fd: int, views: Any, at: int) -> int:
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT:
            direct_reads.append(at)
            raise OSError(errno.EINVAL, "planted")
        return preadv(fd, views, at)

    monkeypatch.setattr(os, "preadv", refusing)
    assert made.check() is None
    assert direct_reads


@pytest.mark.parametrize("failure", [OSError(errno.EIO, "planted"), OSError(errno.EINVAL, "planted"), RuntimeError("bug")])
def test_a_read_that_fails_is_raised_where_the_bytes_are_needed(
    failure: Exception, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error in a reading thread is not lost, nobody waits for ever, and no thread stays."""

    def fail(fd: int, views: Any, at: int) -> int:
        if at >= 2 * CHUNK_BYTES:
            raise failure
        return int(preadv(fd, views, at))

    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(type(failure), match=str(failure.args[-1])):
        read_checked(made.path, made.sealed, made.proven, "the file")
    assert not [t for t in threading.enumerate() if t.name == "hinan-read"]


def test_a_file_that_ends_early_is_refused(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """It became shorter while it was read: an error, not zeros."""
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, views, at: 0 if at >= 4 * CHUNK_BYTES else preadv(fd, views, at))
    with pytest.raises(FormatError, match="ended at byte"):
        read_checked(made.path, made.sealed, made.proven, "the file")


def test_a_file_that_became_shorter_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image that loses bytes while it is read is an error with the place, not a short buffer."""
    path = tmp_path / "image"
    path.write_bytes(b"x" * 100)
    preadv = os.preadv

    def shorter(fd: int, buffers: Any, at: int) -> int:
        os.truncate(path, 40)
        return preadv(fd, buffers, at)

    monkeypatch.setattr(os, "preadv", shorter)
    with pytest.raises(FormatError, match="ended at byte 40 of 100"):
        read_file(path)


# -- in threads ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize(("tensor", "byte"), PLACES)
def test_threads_find_what_one_finds(
    threads: int, tensor: str, byte: int, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chunks are cut among threads without a gap: a wrong bit anywhere is found, and a good image is good."""
    monkeypatch.setattr(digest, "WORTH_A_THREAD_BYTES", 0)
    image = map_file(made.path)
    populate_for_reading(image, threads)
    assert flaw_of(image, made.sealed, made.proven, "slot", threads) is None
    let_go(image, threads)
    assert bytes(image) == bytes(made.bytes)  # what is looked at again comes back
    made.flip(tensor, byte)
    found = damages(made.header, memoryview(made.bytes), made.proven, threads)
    assert [d.chunk.box for d in found] == [tensor]
    assert found[0].chunk.index == byte // CHUNK_BYTES


# -- while writing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("piece_bytes", [CHUNK_BYTES, 3 * CHUNK_BYTES, 1 << 20])
def test_no_byte_is_passed_before_it_was_checked(piece_bytes: int, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """A drain asks piece by piece; wherever the wrong bit lies, the piece that holds it is refused, or an earlier one."""
    monkeypatch.setattr(drainer, "AHEAD_BYTES", CHUNK_BYTES)
    for tensor, byte in PLACES:
        made.flip(tensor, byte)
        wrong = made.header.by_name[tensor].offset + byte
        image = memoryview(made.bytes)
        passed = 0
        refused = pytest.raises(DamageError, match=f"changed since it was proven: tensor {tensor!r}")
        with refused, Checks(Proof(made.header, made.proven), image, "slot") as checks:
            for offset in range(0, len(image), piece_bytes):
                checks.pass_up_to(min(offset + piece_bytes, len(image)))
                passed = offset + piece_bytes
        assert passed <= wrong
        made.flip(tensor, byte)
    with Checks(Proof(made.header, made.proven), memoryview(made.bytes), "slot") as checks:
        checks.pass_up_to(len(made.bytes))
    assert read_header(memoryview(made.bytes), "slot")[1] == made.header


def test_a_proof_of_something_else_does_not_pass(made: Made) -> None:
    """A tensor that was proven and is not in the image is found at the last piece, however good all bytes are."""
    made.proven.boxes.append(BoxRecord("ghost", [1], [0], ["0" * 32]))
    with Checks(Proof(made.header, made.proven), memoryview(made.bytes), "slot") as checks:
        checks.pass_up_to(4096)
        with pytest.raises(DamageError, match="ghost"):
            checks.pass_up_to(len(made.bytes))
