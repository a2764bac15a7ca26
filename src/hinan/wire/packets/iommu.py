"""The IOMMU walk (VT-d, second level): requester and IOVA in, table indices and physical address out.

Owns:      index arithmetic, the walk over tables that are given, and what a walk costs.
Promises:  a missing entry is a fault that names the level, as the kernel's DMAR line does; pass-through walks nothing.
Relies on: Linux intel/iommu: 9 bits per level, levels = agaw + 2, width = 30 + 9 x agaw; leaves at level 1 (4 KiB), 2
           (2 MiB) and 3 (1 GiB). Root entry by bus, context entry by device and function (Intel data sheets).
Never:     reads live tables: they are rarely readable, so what is shown is arithmetic on an address.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from hinan.core.errors import ConfigError, HinanError
from hinan.wire.facts.address import split_address

STRIDE_BITS, PAGE_SHIFT = 9, 12
LEAF_LEVELS = {4 << 10: 1, 2 << 20: 2, 1 << 30: 3}


class IommuFault(HinanError):
    """An entry of the walk is missing: the kernel logs a DMAR fault, the write is lost. `evidence` names the level."""


class Walk(msgspec.Struct, frozen=True, kw_only=True):
    """One translation, step by step. `indices` from the top level down; `reads`: table reads on a full miss."""

    root_index: int
    context_index: int
    indices: tuple[int, ...]
    offset: int
    leaf_bytes: int

    @property
    def reads(self) -> int:
        """Second-level table reads when nothing is cached."""
        return len(self.indices)


def walk_of(requester: str, iova: int, *, leaf_bytes: int = 4 << 10, levels: int = 4) -> Walk:
    """Which entries a translation reads.

    Args:
        requester: PCI address of the device.
        leaf_bytes: 4 KiB, 2 MiB or 1 GiB pages.
        levels: 3, 4 or 5 (39, 48 or 57 address bits).
    Raises:
        ConfigError: the address is wider than the tables, or no such page size.
    Example:
        >>> walk_of("0000:9b:00.0", 0x7f5b8c9de123).indices
        (254, 366, 100, 478)
    """
    if leaf_bytes not in LEAF_LEVELS:
        raise ConfigError(f"no page of {leaf_bytes} bytes; VT-d has 4 KiB, 2 MiB and 1 GiB")
    width = PAGE_SHIFT + STRIDE_BITS * levels
    if not 3 <= levels <= 5 or not 0 <= iova < 1 << width:
        raise ConfigError(f"{iova:#x} does not fit in {width} bits ({levels} levels)")
    _, bus, device, function = split_address(requester)
    leaf = LEAF_LEVELS[leaf_bytes]
    shifts = [PAGE_SHIFT + STRIDE_BITS * (level - 1) for level in range(levels, leaf - 1, -1)]
    return Walk(
        root_index=bus,
        context_index=device << 3 | function,
        indices=tuple(iova >> shift & 0x1FF for shift in shifts),
        offset=iova & leaf_bytes - 1,
        leaf_bytes=leaf_bytes,
    )


class Domain(msgspec.Struct, frozen=True, kw_only=True):
    """A second-level address space as a table of leaves: (level, IOVA of the page) -> physical page.

    passthrough: the context entry says so; IOVA is the physical address.
    """

    levels: int = 4
    passthrough: bool = False
    leaves: Mapping[tuple[int, int], int] = {}


def translate(contexts: Mapping[int, Mapping[int, Domain]], requester: str, iova: int) -> tuple[int, Walk | None]:
    """Physical address, and the walk that led to it (None in pass-through).

    Args:
        contexts: bus -> (device and function) -> domain, as the root and context tables are.
    Raises:
        IommuFault: no root, context or leaf entry for this address.
    """
    _, bus, device, function = split_address(requester)
    root = contexts.get(bus)
    if root is None:
        raise IommuFault(
            f"DMAR: root entry of bus {bus:02x} is not present; the write of {requester} is lost", level="root"
        )
    domain = root.get(device << 3 | function)
    if domain is None:
        raise IommuFault(f"DMAR: context entry of {requester} is not present; its write is lost", level="context")
    if domain.passthrough:
        return iova, None
    for leaf_bytes, level in LEAF_LEVELS.items():
        page = domain.leaves.get((level, iova & ~(leaf_bytes - 1)))
        if page is not None:
            walk = walk_of(requester, iova, leaf_bytes=leaf_bytes, levels=domain.levels)
            return page | walk.offset, walk
    raise IommuFault(
        f"DMAR: [DMA Write] {requester} fault addr {iova:#x}: PTE Write access is not set; the copy is lost",
        level="leaf",
    )


def translations_for(size_bytes: int, leaf_bytes: int) -> int:
    """Pages that hold `size_bytes` when they start at a page boundary."""
    return -(-size_bytes // leaf_bytes)


def translations_per_s(bytes_per_s: float, leaf_bytes: int) -> float:
    """How many new pages a stream enters per second."""
    return bytes_per_s / leaf_bytes
