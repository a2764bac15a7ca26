"""Slots are reserved whole, in huge pages where the kernel has them, and appear only when they are."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
from pathlib import Path

import pytest

from hinan.formats import records as r
from hinan.tiers import reserve as module
from hinan.tiers.arena import Arena
from hinan.tiers.mapping import HUGE_BYTES, map_file, populate, populate_for_reading
from tests.harness.disks import Disks

PAGE = 4096
SIZE = 2 * HUGE_BYTES + 3 * PAGE
HAS_COLLAPSE = tuple(int(part) for part in platform.release().split(".")[:2]) >= (6, 1)
OWNER = r.OwnerRecord(2**22 + 1, 0, 1, 0)


@pytest.fixture
def arena(disks: Disks) -> Arena:
    """On a tmpfs as they are: `huge=` was not said, and so is never."""
    found = Arena(disks.tmpfs("ram", 64 << 20) / "hinan-0" / "run" / "node")
    found.create()
    return found


def mapped_huge_bytes(view: memoryview) -> int:
    """How much of a mapping of this process lies in huge pages that one entry maps each."""
    address, inside = ctypes.addressof(ctypes.c_char.from_buffer(view)), False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if not first.endswith(":"):
            inside = int(first.partition("-")[0], 16) == address
        elif inside and first == "ShmemPmdMapped:":
            return int(line.split()[1]) << 10
    raise AssertionError("no such mapping")


@pytest.mark.skipif(not HAS_COLLAPSE, reason="Linux before 6.1 makes no huge pages on a tmpfs mounted without huge=")
@pytest.mark.parametrize("writable", [True, False])
def test_a_slot_lies_in_huge_pages_and_is_mapped_by_them(writable: bool, arena: Arena) -> None:
    """Both kinds of maps, that of the trainer who fills it and that of a reader, have one entry for each huge page."""
    slot, huge_bytes = arena.new_slot(OWNER, SIZE)
    assert huge_bytes == 2 * HUGE_BYTES
    view = map_file(arena.path(slot), writable=writable)
    populate(view) if writable else populate_for_reading(view)
    assert mapped_huge_bytes(view) == huge_bytes


@pytest.mark.parametrize("huge", [True, False])
@pytest.mark.parametrize("size_bytes", [PAGE, HUGE_BYTES - PAGE, HUGE_BYTES, SIZE])
def test_every_byte_is_reserved_and_shared(
    size_bytes: int, huge: bool, arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With and without huge pages: all of it is allocated and zero, and what one map writes the other reads."""
    if not huge:
        monkeypatch.setattr(module, "collapse", lambda view: False)
    slot, huge_bytes = arena.new_slot(OWNER, size_bytes)
    assert huge or huge_bytes == 0
    path = arena.path(slot)
    stat = path.stat()
    assert (stat.st_size, stat.st_blocks * 512) == (size_bytes, size_bytes)
    writer, reader = map_file(path, writable=True), map_file(path)
    assert bytes(reader) == bytes(size_bytes)
    written = os.urandom(size_bytes)
    writer[:] = written
    assert bytes(map_file(path)) == written == path.read_bytes()


def test_a_reader_changes_nothing(arena: Arena) -> None:
    """A reader's map is private, and a file that is cut is not grown by it."""
    slot, _ = arena.new_slot(OWNER, SIZE)
    map_file(arena.path(slot))[0] = 1
    assert arena.path(slot).read_bytes() == bytes(SIZE)


def test_a_slot_that_was_not_finished_never_appears(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent is killed while it reserves: there is no image of that name, and the next agent's sweep leaves nothing."""
    monkeypatch.setattr(module, "PIECE_BYTES", HUGE_BYTES)
    child = os.fork()
    if child == 0:
        arena.new_slot(OWNER, SIZE, lambda: os.kill(os.getpid(), signal.SIGKILL) or False)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert list(arena.root.iterdir()) != []
    assert arena.scan() == []
    arena.sweep()
    assert list(arena.root.iterdir()) == []


def test_an_agent_that_ends_does_not_look_for_huge_pages(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked to stop, it takes small pages for the rest, and the slot is whole."""
    monkeypatch.setattr(module, "PIECE_BYTES", HUGE_BYTES)
    answers = iter([False, True])
    slot, huge_bytes = arena.new_slot(OWNER, SIZE, lambda: next(answers))
    assert huge_bytes == (HUGE_BYTES if HAS_COLLAPSE else 0)
    assert arena.path(slot).stat().st_blocks * 512 == SIZE
