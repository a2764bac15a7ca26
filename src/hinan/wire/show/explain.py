"""`hinan wire explain`: why this physical address is the destination of a checkpoint, and what carries it there.

Owns:      putting decode, IOMMU walk, TLPs and the table of ideas into one answer, each figure with its label: *read*
           (from this machine), *reported* (by the source), *illustration* (arithmetic on the address given).
Never:     presents arithmetic as a reading: live IOMMU tables are rarely readable, so a walk is always an illustration.
"""

from __future__ import annotations

import msgspec

from hinan.wire.facts.address import requester_id, short_address
from hinan.wire.facts.iommu_mode import iommu_before
from hinan.wire.facts.link import ASSUMED_MPS_BYTES
from hinan.wire.facts.model import Gpu, IomemRange, IommuMode, Machine
from hinan.wire.packets.iommu import LEAF_LEVELS, Walk, walk_of
from hinan.wire.packets.tlp import Request, writes
from hinan.wire.paths.decode import Route, route_write, windows_told
from hinan.wire.paths.parts import Part, elsewhere, parts_of
from hinan.wire.paths.path import mps_of, path_ceiling, path_up
from hinan.wire.paths.transport import coherent_link_of, has_other_tables
from hinan.wire.readers.pages import Page

SHOWN_PACKETS = 3


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the address that is asked about.

    words: where it comes from. label: read, illustration or unknown.
    machine: what the explained machine's windows and modes are: read, reported, or illustration where the pages are of
    this machine and the windows of another. iomem: the ranges of the machine that has the pages; None: the explained one.
    contiguous_bytes: so many from the address on follow one another there too; None: all.
    """

    words: str
    label: str
    machine: str = "reported"
    pages: tuple[Page, ...] = ()
    iomem: tuple[IomemRange, ...] | None = None
    contiguous_bytes: int | None = None
    virtual: bool = False  # the machine that has the pages is a virtual one


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """All parts of the answer. `packets`: the first TLPs of `size_bytes` written to `address`.

    route, iomem, walks: of the first byte. parts: which of the bytes go where, the first byte's among them; their
    destinations have the label of `route`, their ranges that of `iomem`.
    address: None where the physical address cannot be read; then there is no route, no walk and no packet. is_physical: is
    it surely a physical one? None: an IOMMU translates, and it may be an IOVA. sender: what the requester is called.
    no_walk: why there is none. iommu: the mode in front of the requester; where it translates, the address given is not the
    one on the bus, unless it is an IOVA, so that the route is an illustration and ends at the page tables. coherent_link:
    why the requester's copies cross no PCIe port; then there is no route and no packet either. guest: the explained
    machine is a virtual one, so its IOMMU is not the last. guest_pages: the machine that has the pages is.
    labels: of address, route, iomem, iommu, walks, mps and packets: read (from this machine), reported (by the source),
    assumed, unknown, or illustration (arithmetic, or another machine's windows). Each page has its own.
    """

    address: int | None
    address_from: str
    is_physical: bool | None
    size_bytes: int
    requester: str | None
    sender: str
    iommu: str | None
    iommu_groups: bool  # groups exist: an IOMMU is on, in a mode that may be unknown
    route: Route | None
    iomem: tuple[IomemRange, ...]
    walks: tuple[Walk, ...]
    no_walk: str | None
    mps_bytes: int
    labels: dict[str, str]
    packets: tuple[Request, ...]
    packet_count: int
    parts: tuple[Part, ...] = ()
    pages: tuple[Page, ...] = ()
    guest: bool = False
    guest_pages: bool = False
    coherent_link: str | None = None
    ceiling_bytes_per_s: float | None = None


def explain(
    machine: Machine,
    gpu: Gpu | None,
    address: int | None,
    *,
    size_bytes: int,
    told: Told,
    device: str | None = None,
) -> Explanation:
    """The explanation of a write of `size_bytes` to a bus address by the GPU, or by another `device` (a drive, a NIC).

    address None: it is of a page whose frame cannot be read. A device that is itself a GPU counts as that GPU, whose copies
    may cross no port.

    Raises:
        ConfigError: the range leaves 64 bits.
    """
    requester = device or (gpu.address if gpu is not None else None)
    of_gpu = gpu if device is None else next((each for each in machine.gpus if each.address == device), None)
    path = path_up(machine, requester) if requester else None
    mps = mps_of(path.hops) if path else None
    sender = requester or "0000:00:00.0"
    coherent = coherent_link_of(machine, of_gpu) if of_gpu is not None else None
    mode = iommu_before(machine, requester)
    on_bus = address if coherent is None else None
    routed = requester if on_bus is not None and requester in machine.functions else None
    route = route_write(machine, routed, on_bus) if on_bus is not None and routed is not None else None
    no_walk = _no_walk(machine, address)
    walks = _walks(sender, address) if address is not None and no_walk is None else ()
    translated = mode is IommuMode.TRANSLATED and not told.pages
    packets = _written(sender, on_bus, size_bytes, mps or ASSUMED_MPS_BYTES)
    parts = _parts(machine, routed, address, size_bytes, told)
    return Explanation(
        address=address,
        address_from=told.words,
        is_physical=None if translated else address is not None,
        size_bytes=size_bytes,
        requester=requester,
        sender=short_address(requester) if requester else f"GPU {gpu.index}, whose address is not known" if gpu is not None
        else "a GPU (none is known here)",
        iommu=mode.value if mode else None,
        iommu_groups=machine.has_iommu_groups,
        route=route,
        iomem=parts[0].iomem if parts else (),
        walks=walks,
        no_walk=no_walk,
        mps_bytes=mps or ASSUMED_MPS_BYTES,
        labels={
            "address": told.label,
            "route": "illustration" if route and mode is IommuMode.TRANSLATED else (
                told.machine if route and requester and windows_told(machine, requester) else "unknown"
            ),
            "iomem": "unknown" if not any(part.iomem for part in parts) else "illustration" if translated else (
                "read" if told.iomem is not None else told.machine
            ),
            "iommu": told.machine if mode else "unknown",
            "walks": "illustration" if walks else "unknown",
            "mps": told.machine if mps else "assumed",
            "packets": "illustration" if packets else "unknown",
        },
        packets=tuple(packet for packet in packets[:SHOWN_PACKETS] if _is_known(packet, address, told)),
        packet_count=len(packets),
        parts=parts,
        pages=told.pages,
        guest=bool(machine.virtual),
        guest_pages=told.virtual,
        coherent_link=coherent,
        ceiling_bytes_per_s=path_ceiling(path)[0] if path and coherent is None else None,
    )  # fmt: skip


def _parts(machine: Machine, requester: str | None, address: int | None, size_bytes: int, told: Told) -> tuple[Part, ...]:
    """Which bytes go where; none where the address of the first is not known."""
    if address is None:
        return ()
    known = size_bytes if told.contiguous_bytes is None else min(size_bytes, told.contiguous_bytes)
    found = parts_of(machine, requester, address, known, machine.iomem if told.iomem is None else told.iomem)
    if known == size_bytes:
        return found
    why = "on other pages, which need not follow the first in physical memory"
    return (*found, elsewhere(known, size_bytes - known, why, routed=requester is not None))


def _is_known(packet: Request, address: int | None, told: Told) -> bool:
    """Is it surely written to where its header says? What follows in a mapping may lie anywhere."""
    return address is None or told.contiguous_bytes is None or packet.address < address + told.contiguous_bytes


def _no_walk(machine: Machine, address: int | None) -> str | None:
    """Why no walk of VT-d's can be shown for this address."""
    if address is None:
        return "the physical address is not known"
    if has_other_tables(machine):
        return "the CPU's tables are not those of x86"
    return "the address is above 48 bits, which four levels do not hold" if address >> 48 else None


def _walks(sender: str, address: int) -> tuple[Walk, ...]:
    """One per leaf size."""
    return tuple(walk_of(sender, address, leaf_bytes=leaf) for leaf in LEAF_LEVELS)


def _written(sender: str, address: int | None, size_bytes: int, mps_bytes: int) -> list[Request]:
    if address is None:
        return []
    return list(writes(address, bytes(size_bytes), requester=requester_id(sender), mps_bytes=mps_bytes))
