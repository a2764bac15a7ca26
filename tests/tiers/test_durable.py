"""An image survives on the target or leaves nothing, whatever the file system refuses and however full it is."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hinan.formats.image import ALIGNMENT_BYTES
from hinan.tiers import durable
from hinan.tiers.durable import ImageWriter
from hinan.tiers.mapping import map_file
from tests.harness.disks import Disks, fill, names


def source(tmp_path: Path, size_bytes: int) -> memoryview:
    """A mapped file of random bytes, as a slot is."""
    path = tmp_path / "slot"
    path.write_bytes(os.urandom(size_bytes))
    return map_file(path)


def write(directory: Path, image: memoryview) -> ImageWriter:
    writer = ImageWriter(directory, "image", len(image))
    try:
        writer.write_aside(image)
        writer.sync()
        writer.name()
        writer.sync_directory()
    finally:
        writer.discard()
    return writer


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "place").mkdir()
    return tmp_path / "place"


@pytest.mark.parametrize("size_bytes", [0, 1, 4095, 4096, 3 * 4096, 40960 + 7])
@pytest.mark.parametrize("most", [1, 511, 4096, 5000])
def test_short_writes_lose_nothing(
    size_bytes: int, most: int, tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that takes only some bytes at a time gets them all, direct or not; nothing else is left there."""
    image, pwrite = source(tmp_path, size_bytes), os.pwrite
    monkeypatch.setattr(durable, "PIECE_BYTES", 16384)
    if size_bytes < 10_000 or most > 1:
        monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, bytes(data[:most]), at))
    write(place, image)
    assert (place / "image").read_bytes() == bytes(image)
    assert names(place) == ["image"]


def refusing(number: int, only_direct: bool = True) -> Callable[..., int]:
    """An `os.open` that refuses O_DIRECT with this errno, after it made the file as some file systems do."""
    real = os.open

    def opened(path: Any, flags: int, *arguments: Any) -> int:
        if flags & os.O_DIRECT:
            os.close(real(path, flags & ~os.O_DIRECT, *arguments))
            raise OSError(number, "no direct writes here")
        return real(path, flags, *arguments)

    return opened


def test_a_file_system_without_direct_writes(tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """O_DIRECT is refused at open, with the file made or not: the image is written through the page cache."""
    image = source(tmp_path, 3 * ALIGNMENT_BYTES)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refusing(errno.EINVAL))
        writer = write(place, image)
    assert not writer.direct
    assert (place / "image").read_bytes() == bytes(image)
    assert names(place) == ["image"]


def test_a_file_system_that_refuses_direct_writes_late(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O_DIRECT is taken at open and refused at the first write (some FUSE): the rest goes through the page cache."""
    image, pwrite, refused = source(tmp_path, 3 * ALIGNMENT_BYTES), os.pwrite, [True]

    def once(fd: int, data: memoryview, at: int) -> int:
        if refused:
            refused.clear()
            raise OSError(errno.EINVAL, "planted")
        return pwrite(fd, data, at)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", once)
        assert not write(place, image).direct
    assert (place / "image").read_bytes() == bytes(image)


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL])
def test_a_file_system_that_cannot_reserve_room(
    number: int, tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """posix_fallocate is not supported (NFS 3, FUSE, and with O_DIRECT as EINVAL): the image is written all the same."""

    def unsupported(fd: int, offset: int, length: int) -> None:
        raise OSError(number, "planted")

    image = source(tmp_path, 3 * ALIGNMENT_BYTES)
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", unsupported)
        write(place, image)
    assert (place / "image").read_bytes() == bytes(image)


def test_a_commit_3_a_full_disk_leaves_nothing(tmp_path: Path, disks: Disks) -> None:
    """A-COMMIT-3: an image that does not fit is refused with ENOSPC before its first byte, leaves no file, and an image of
    the same name that stood there stands; with room again it is written."""
    disk = disks.tmpfs("disk", 2 << 20)
    old, big = source(tmp_path, 8192), source(tmp_path, 1 << 20)
    write(disk, old)
    filler = fill(disk, leave_bytes=256 << 10)
    began: list[int] = []
    writer = ImageWriter(disk, "image", len(big))
    with pytest.raises(OSError) as caught:
        writer.write_aside(big, lambda offset, piece: began.append(offset))
    writer.discard()
    assert caught.value.errno == errno.ENOSPC and began == []
    assert names(disk) == ["filler", "image"]
    assert (disk / "image").read_bytes() == bytes(old)
    filler.unlink()
    write(disk, big)
    assert (disk / "image").read_bytes() == bytes(big)


@pytest.mark.parametrize("call", ["pwrite", "fsync", "fdatasync", "rename"])
def test_a_write_that_fails_leaves_nothing(call: str, tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever call fails, nothing stands under the final name and nothing is left beside it."""

    def fail(*arguments: Any) -> None:
        raise OSError(errno.EIO, "planted")

    image = source(tmp_path, 5 * ALIGNMENT_BYTES + 1)
    monkeypatch.setattr(durable, "PIECE_BYTES", 4096)
    monkeypatch.setattr(durable, "DIRTY_BYTES", 8192)
    with monkeypatch.context() as patch:
        patch.setattr(Path if call == "rename" else os, call, fail)
        with pytest.raises(OSError, match="planted"):
            write(place, image)
    assert names(place) == []
