"""The slots that this process may fill, mapped and touched before they are needed.

Promises:  a map is of the file that bears the slot's name now; a removed slot's pages are let go at the next look.
Relies on: the liaison's thread calling `prepare` when a lease is granted, so that the first copy into a slot meets no
           page fault and no `mmap` in the training thread.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from hinan.host.signals import suppress_ours
from hinan.tiers.arena import Arena
from hinan.tiers.mapping import map_file, populate
from hinan.trainer.evacuating.copying import SlotMap
from hinan.trainer.ports.device import DevicePort


class SlotMaps:
    """Maps by slot name. Used by the training thread and the liaison's."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._maps: dict[str, SlotMap] = {}
        self._ports: list[DevicePort] = []
        self._lock = threading.RLock()  # a signal's handler may close the run while its thread stands here

    def prepare(self, name: str) -> None:
        """Map a slot and touch its pages. A slot that cannot be mapped now is an error for `get`, not for this."""
        with suppress_ours(OSError):
            slot = self.get(name)
            populate(slot.view)
            self._pin(slot)

    def pin_with(self, ports: Sequence[DevicePort]) -> None:
        """Pin slots for these devices, each when it is prepared. Called after the restore, which needs no pinned memory."""
        with self._lock:
            self._ports = list(ports)

    def _pin(self, slot: SlotMap) -> None:
        for port in self._ports:
            port.pin(slot.address, len(slot.view))

    def get(self, name: str) -> SlotMap:
        """The map of a slot.

        Raises:
            OSError: the slot is gone.
        """
        with self._lock:
            known = self._maps.get(name)
            if known is not None and self._stands(known):
                return known
            self._drop([slot for slot in self._maps.values() if not self._stands(slot)])
            path = self._arena.path(name)
            inode = path.stat().st_ino
            self._maps[name] = SlotMap(name, map_file(path, writable=True), inode)
            return self._maps[name]

    def clear(self) -> None:
        """Let all maps go."""
        with self._lock:
            self._drop(list(self._maps.values()))

    def _drop(self, slots: Sequence[SlotMap]) -> None:
        for slot in slots:
            for port in self._ports:
                port.unpin(slot.address)  # before the map goes: the driver must not keep pages that are no longer ours
            del self._maps[slot.name]

    def _stands(self, slot: SlotMap) -> bool:
        """Whether the file that is mapped is still the one of that name (a removed slot's name is given out again), and
        whole: writing into one that was cut short would be a SIGBUS."""
        with suppress_ours(FileNotFoundError):
            stat = self._arena.path(slot.name).stat()
            return (stat.st_ino, stat.st_size) == (slot.inode, len(slot.view))
        return False
