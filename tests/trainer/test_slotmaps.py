"""When slots are pinned: after the restore, each when it is prepared, and never longer than it is mapped."""

from __future__ import annotations

import os
from pathlib import Path

from hinan.tiers.arena import Arena
from hinan.trainer.evacuating.slotmaps import SlotMaps
from tests.trainer.fakedevice import FakeDriver, FakePort


def test_slots_are_pinned_when_prepared_and_unpinned_when_let_go(tmp_path: Path) -> None:
    arena = Arena(tmp_path)
    for name in ("00000-000001", "00000-000002"):
        arena.path(name).write_bytes(bytes(8192))
    driver = FakeDriver()
    maps = SlotMaps(arena)
    maps.prepare("00000-000001")
    assert not driver.registered  # a restore needs no pinned memory, and comes first
    maps.pin_with([FakePort(driver)])
    maps.prepare("00000-000001")
    maps.prepare("00000-000002")
    assert sorted(driver.registered.values()) == [8192, 8192]
    arena.path("00000-000001").unlink()
    maps.prepare("00000-000002")
    arena.path("00000-000003").write_bytes(bytes(4096))
    maps.prepare("00000-000003")
    assert sorted(driver.registered.values()) == [4096, 8192]
    maps.clear()
    assert not driver.registered


def test_a_slot_that_was_cut_short_is_mapped_anew(tmp_path: Path) -> None:
    """Its old map would be a SIGBUS; what is there now is too short, which the copy finds before it writes."""
    arena = Arena(tmp_path)
    arena.path("00000-000001").write_bytes(bytes(8192))
    maps = SlotMaps(arena)
    assert len(maps.get("00000-000001").view) == 8192
    os.truncate(arena.path("00000-000001"), 4096)
    assert len(maps.get("00000-000001").view) == 4096
