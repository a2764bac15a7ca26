"""`publish`: a fact appears whole, once, under its final name, or not at all (rule M1).

Written aside, synced where power matters, linked if absent, read back. Equal bytes under the name mean that the fact
stands, whatever an error said in between; other bytes mean that somebody else was first.
"""

from __future__ import annotations

import io
import os
import secrets
from pathlib import Path

from hinan.core.errors import HinanError
from hinan.host.signals import ours, suppress_ours

PART_SUFFIX = ".part"
"""Names that end so are unfinished; readers never see them, and whoever owns the directory may sweep them."""


class AlreadyPublished(HinanError):
    """Another fact stands under this name; `standing` are its bytes."""

    def __init__(self, path: Path, standing: bytes) -> None:
        super().__init__(f"{path} already stands and says something else", file=str(path))
        self.standing = standing


def part_name(name: str) -> str:
    """A temporary name beside `name` that no other process uses."""
    return f".{name}.{os.getpid()}-{secrets.token_hex(4)}{PART_SUFFIX}"


def publish(path: Path, data: bytes, *, power_safe: bool) -> None:
    """Make a fact stand under `path`.

    Args:
        power_safe: whether it must survive power loss when this returns (no need in RAM).
    Raises:
        AlreadyPublished: other bytes stand there.
        OSError: it could not be written, and nothing stands there.
    """
    aside = path.with_name(part_name(path.name))
    try:
        _write(aside, data, power_safe=power_safe)
        os.link(aside, path)
    except ours(OSError):
        # No name for the error beyond this clause: a frame that keeps what it has raised lives, with all frames above it
        # and what those hold of the loop's, until Python collects garbage.
        standing = read_fact(path)
        if standing is None:
            raise
    else:
        standing = read_fact(path)
        if standing is None:
            raise FileNotFoundError(f"{path} was published and has vanished")
    finally:
        with suppress_ours(OSError):
            aside.unlink(missing_ok=True)
    if standing != data:
        raise AlreadyPublished(path, standing)
    if power_safe:
        # Ordering: the name must survive before anyone builds on the fact, also when an earlier, interrupted call of
        # somebody else put it there.
        sync_directory(path.parent)


def _write(aside: Path, data: bytes, *, power_safe: bool) -> None:
    # A file object, no bare descriptor: a signal's handler that raises before the next line would leave that open for ever.
    with io.FileIO(aside, "xb") as file:
        os.fchmod(file.fileno(), 0o600)
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]
        if power_safe:
            os.fsync(file.fileno())


def read_fact(path: Path) -> bytes | None:
    """The bytes of a fact; None if it does not stand. A stale handle (a file replaced under a reader) is opened again."""
    for last in (False, False, True):
        try:
            return path.read_bytes()
        except ours(FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None  # a directory under the name is somebody else's; it says nothing
        except ours(OSError) as error:
            if last or error.errno != _ESTALE:
                raise
    return None


_ESTALE = 116


def sync_directory(directory: Path) -> None:
    """Make the names in a directory survive power loss."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
