"""Host memory for copies is exactly what was asked for: slots of our own are registered, nobody rounds them up."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

from hinan.core.budget import MARGIN_BYTES, Limit, Need, slots_that_fit
from hinan.core.errors import BudgetError
from hinan.formats.records import OwnerRecord
from hinan.tiers.arena import Arena
from hinan.trainer.ports.device import PIN_CHUNK_BYTES, AcceleratorPort
from tests.harness.disks import Disks

GIB = 1 << 30
PAGE = 4096


def pages(gib: float) -> int:
    """Whole pages nearest to a size."""
    return round(gib * GIB / PAGE) * PAGE


class Cudart:
    """The two calls that pinning may make; any other (an allocation that rounds up) is an AttributeError."""

    def __init__(self, room_bytes: int) -> None:
        self.registered: dict[int, int] = {}
        self.room_bytes = room_bytes

    def cudaHostRegister(self, address: int, size_bytes: int, flags: int) -> int:
        if sum(self.registered.values()) + size_bytes > self.room_bytes:
            return 2  # cudaErrorMemoryAllocation
        self.registered[address] = size_bytes
        return 0

    def cudaHostUnregister(self, address: int) -> int:
        del self.registered[address]
        return 0


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a port of a GPU that is not there, on a runtime that can pin so many bytes."""

    def make(room_bytes: int) -> tuple[AcceleratorPort, Cudart]:
        cudart = Cudart(room_bytes)
        monkeypatch.setattr(torch, "Stream", lambda *arguments: None)
        monkeypatch.setattr(torch.accelerator, "set_device_index", lambda index: None)
        return AcceleratorPort(torch.device("cuda", 0), cudart), cudart

    return make


@pytest.mark.parametrize("gib", [1.1, 20.4])
def test_a_mem_6_a_slot_is_pinned_as_it_is(gib: float, port: Any) -> None:
    """A-MEM-6: with exactly as much memory to pin as the slot has, the whole slot is registered, piece by piece without a
    hole; one page less, and nothing is, and copies bounce."""
    size_bytes, address = pages(gib), 1 << 40
    fits, cudart = port(size_bytes)
    fits.pin(address, size_bytes)
    assert fits.mode == "register"
    at = address
    for start, length in sorted(cudart.registered.items()):
        assert start == at and length <= PIN_CHUNK_BYTES
        at += length
    assert at == address + size_bytes
    fits.unpin(address)
    assert cudart.registered == {}
    too_small, cudart = port(size_bytes - PAGE)
    too_small.pin(address, size_bytes)
    assert (too_small.mode, cudart.registered) == ("bounce", {})


@pytest.mark.parametrize("gib", [1.1, 20.4])
def test_a_mem_6_the_sum_states_real_bytes(gib: float) -> None:
    """A-MEM-6: two slots need twice the image and no more; a page less is refused with those bytes."""
    need = Need(1, 2, pages(gib))
    assert slots_that_fit(need, {"cgroup /job": Limit(2 * pages(gib) + MARGIN_BYTES)}) == 2
    with pytest.raises(BudgetError) as caught:
        slots_that_fit(need, {"cgroup /job": Limit(2 * pages(gib) + MARGIN_BYTES - PAGE)})
    assert caught.value.evidence["need_bytes"] == 2 * pages(gib)


def test_a_mem_6_a_slot_takes_the_pages_of_its_image(disks: Disks) -> None:
    """A-MEM-6: a slot just above a power of two takes no page more than its image."""
    arena = Arena(disks.tmpfs("ram", 4 << 20))
    slot, _ = arena.new_slot(OwnerRecord(os.getpid(), 0, 1, 0), (1 << 20) + PAGE)
    stat = arena.path(slot).stat()
    assert (stat.st_size, stat.st_blocks * 512) == ((1 << 20) + PAGE, (1 << 20) + PAGE)
    assert arena.held_bytes() == (1 << 20) + PAGE
