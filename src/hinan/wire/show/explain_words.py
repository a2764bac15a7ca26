"""What `hinan wire explain` prints: six parts, in at most 100 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from hinan.wire.facts.address import short_address
from hinan.wire.facts.iommu_mode import UNKNOWN_MODE
from hinan.wire.facts.model import IommuMode
from hinan.wire.machine.root_complex import MEMORY, NOWHERE, UNKNOWN
from hinan.wire.packets.ideas import table
from hinan.wire.packets.iommu import PAGE_SHIFT, translations_for
from hinan.wire.paths.parts import Part, merged
from hinan.wire.show.explain import Explanation
from hinan.wire.show.render import WIDTH, clip

SHOWN_PARTS = 8

_AS_IOVA = "as if this number were the DMA address; that of a physical one only the driver knows"
_WALK = "the walk if it translated this number (illustration)"
_UNTRANSLATED = (IommuMode.OFF.value, IommuMode.PASSTHROUGH.value)
_TRANSLATED = IommuMode.TRANSLATED.value


def lines(found: Explanation) -> list[str]:
    """The answer as text of at most 100 columns."""
    parts = [_addresses(found), _pages(found), _route(found), _iomem(found), _iommu(found), _packets(found)]
    text = [line for part in parts if part for line in [*part, ""]]
    return [*text, "6. The same ideas in IP", *(f"   {line}" for line in table(97))]


def _addresses(found: Explanation) -> list[str]:
    same = "the same number" if found.iommu in _UNTRANSLATED else (
        "another number: the IOMMU translates" if found.iommu == _TRANSLATED else "another number, if the IOMMU translates"
    )  # fmt: skip
    if found.guest:
        same = f"{same}; the host may translate again"
    return [
        f"1. Four addresses on the way of {found.sender}",
        *textwrap.wrap(
            f"{found.address_from} ({found.labels['address']})", WIDTH - 3, initial_indent="   ", subsequent_indent="   "
        ),
        *_after("   user buffer       CPU virtual      ", "CPU page tables; pinned pages do not move"),
        *_after("   page frame        physical         ", _frame(found)),
        *_after("   DMA address       bus or IOVA      ", same),
        *_after("   copy descriptor   GPU virtual      ", "the GPU's own page table says: system memory, DMA address"),
    ]


def _after(head: str, text: str) -> list[str]:
    """A text behind its head, further lines below its beginning."""
    return textwrap.wrap(text, WIDTH - 3, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False)


def _frame(found: Explanation) -> str:
    """The page frame, where the address is known to be in RAM."""
    if found.address is None:
        return "unknown: the kernel shows frames to root only"
    end = found.route.destination if found.route is not None else UNKNOWN
    in_ram = bool(found.pages) or end == MEMORY or any(r.name.startswith("System RAM") for r in found.iomem)
    if in_ram and (found.pages or found.iommu != _TRANSLATED):
        return f"{found.address:#x}"
    if found.iommu == _TRANSLATED:
        return f"{found.address:#x}, if this is the physical address; of an IOVA the IOMMU's page tables tell it"
    if end == UNKNOWN and found.iomem:
        return f"none: the address is no RAM but {found.iomem[-1].name}, see 3"
    return {
        UNKNOWN: f"{found.address:#x}, if it is RAM: no source tells",
        NOWHERE: "none: nobody claims the address, see 2",
    }.get(end, "none: the address is no RAM, see 2")


def _pages(found: Explanation) -> list[str]:
    if not found.pages:
        return []
    rows = [
        f"   {p.offset_bytes:>13}  {p.virtual:#018x}  "
        f"{f'{p.physical:#014x}' if p.physical is not None else 'unknown':<16}"
        f"{p.node if p.node is not None else 'unknown':<9}{p.label}"
        for p in found.pages
    ]
    guest = "this is a VM: these are guest-physical addresses" if found.guest_pages else "in a VM they would be the guest's"
    head = f"   {'offset':>13}  {'virtual':<20}{'physical':<16}{'node':<9}label"
    return ["   Some of its pages, in a mapping of this command", head, *rows, f"   Unpinned pages migrate; {guest}."]


def _route(found: Explanation) -> list[str]:
    if found.coherent_link is not None:
        return ["2. Who claims the address at each hop", *_after("   no PCIe port: ", _over_coherent(found.coherent_link))]
    if found.route is None:
        known = found.address is not None
        why = "no GPU with a known place on the bus" if known else "the physical address is not known"
        return ["2. Who claims the address at each hop", f"   unknown: {why}"]
    rows = [f"2. Who claims the address at each hop (windows and BARs: {found.labels['route']})"]
    if found.iommu == _TRANSLATED:
        rows += textwrap.wrap(_AS_IOVA, WIDTH, initial_indent="   ", subsequent_indent="   ")
    for step in found.route.steps:
        rows += _after(f"   {short_address(step.at):<14}{step.action:<9}", step.why)
    return [*rows, *_destinations(found)]


def _destinations(found: Explanation) -> list[str]:
    """Where the write ends; of several parts, where each does."""
    ends = merged(found.parts, by=("destination", "node", "decided"))
    if len(ends) == 1:
        return _after("   -> ", str(ends[0].destination))
    rows = _after("   -> ", f"{_range(ends[0])}  {ends[0].destination}: {ends[0].size_bytes} of {found.size_bytes} bytes")
    for part in ends[1:SHOWN_PARTS]:
        at = short_address(part.decided.at) if part.decided is not None else ""
        why = f"; {at}: {part.decided.why}" if part.decided is not None else ""
        rows += _after("   -> ", f"{_range(part)}  {part.destination}: {part.size_bytes} bytes{why}")
    return rows + _and_more(ends)


def _range(part: Part) -> str:
    return f"{part.first:#x}-{part.last:#x}" if part.first is not None else "what follows"


def _and_more(parts: Sequence[Part]) -> list[str]:
    return [f"   ... {len(parts) - SHOWN_PARTS} parts more, see --json"] if len(parts) > SHOWN_PARTS else []


def _over_coherent(evidence: str) -> str:
    return f"{evidence}; the GPU's copies reach RAM that way, and no bridge compares their address"


def _iomem(found: Explanation) -> list[str]:
    held = merged(found.parts, by=("iomem",))
    if not any(part.iomem for part in held):
        why = "not in the source, or no range holds the address" if found.address is not None else "root is needed"
        return ["3. /proc/iomem", f"   unknown: {why}"]
    unless = ", if this is the physical address" if found.is_physical is None else ""
    rows = [f"3. /proc/iomem: the deepest range is the claimant{unless} ({found.labels['iomem']})"]
    for part in held[:SHOWN_PARTS]:
        rows += _held(part, "   ") if part is held[0] else [f"   {_range(part)}:", *_held(part, "     ")]
    return rows + _and_more(held)


def _held(part: Part, indent: str) -> list[str]:
    """The ranges that hold it, each inside the one before."""
    if part.first is None and part.decided is not None:
        return _after(f"{indent}unknown: ", part.decided.why)
    if not part.iomem:
        return [f"{indent}unknown: no range holds it"]
    return [clip(f"{indent}{'  ' * depth}{r.first:#x}-{r.last:#x}  {r.name}") for depth, r in enumerate(part.iomem)]


def _iommu(found: Explanation) -> list[str]:
    mode = f"{found.iommu} ({found.labels['iommu']})" if found.iommu else UNKNOWN_MODE if found.iommu_groups else "unknown"
    where = "IOMMU in this guest" if found.guest else "IOMMU"
    walk_of_it = _WALK if found.no_walk is None else f"no walk: {found.no_walk}"
    rows = textwrap.wrap(f"4. {where}: {mode}; {walk_of_it}", WIDTH, subsequent_indent="   ")
    for walk in found.walks:
        size = {4 << 10: "4 KiB", 2 << 20: "2 MiB", 1 << 30: "1 GiB"}[walk.leaf_bytes]
        count = translations_for(80 << 30, walk.leaf_bytes)
        entries = (
            f"root[{walk.root_index:#04x}] context[{walk.context_index:#04x}]" if found.requester else "root[?] context[?]"
        )
        rows.append(
            f"   {size}: {entries} "
            f"{' '.join(map(str, walk.indices))} + {walk.offset:#x}   {walk.reads} reads; {count:,} pages in 80 GiB"
        )
    pages = _pages_of_iommu(found)
    if found.walks and pages > 1 and found.iommu not in _UNTRANSLATED:
        rows.append(f"   The walk is the first byte's; {pages} pages of 4 KiB are written to, each with its own entry.")
    if found.iommu in _UNTRANSLATED:
        whose = "the guest's physical address" if found.guest else "the physical address"
        rows.append(f"   Here there is no walk: the DMA address is {whose}.")
    if found.guest:
        rows.append("   The host's IOMMU is unknown: a guest cannot see it.")
    return rows


def _pages_of_iommu(found: Explanation) -> int:
    """How many of its smallest pages the bytes touch."""
    first = found.address or 0
    return ((first + found.size_bytes - 1) >> PAGE_SHIFT) - (first >> PAGE_SHIFT) + 1


def _packets(found: Explanation) -> list[str]:
    if found.coherent_link is not None:
        return ["5. TLPs", "   none: the GPU's copies are no PCIe writes, see 2"]
    if not found.packets:
        return ["5. TLPs", "   unknown: the physical address is not known"]
    size = "1 byte is" if found.size_bytes == 1 else f"{found.size_bytes} bytes are"
    packets = "1 memory write TLP" if found.packet_count == 1 else f"{found.packet_count} memory write TLPs"
    nobody = "" if found.requester else "; requester unknown, written as 0000"
    head = f"5. {size} {packets} of up to {found.mps_bytes} bytes (illustration; MPS {found.labels['mps']}{nobody})"
    if found.route is not None and len(merged(found.parts, by=("destination", "node"))) > 1:
        head += "; not all go to one place, see 2"
    rows = textwrap.wrap(head, WIDTH, subsequent_indent="   ")
    if found.iommu == _TRANSLATED:
        rows += textwrap.wrap(_AS_IOVA, WIDTH, initial_indent="   ", subsequent_indent="   ")
    for packet in found.packets:
        header = packet.header()
        first, last = packet.byte_enables
        rows.append(f"   {header.hex(' ')}")
        rows.append(
            f"     {'4' if len(header) == 16 else '3'} DW, length {packet.length_dw} DW, requester "
            f"{packet.requester:04x}, tag {packet.tag}, enables {last:04b}/{first:04b}, at {packet.address & ~3:#x}"
        )
    if found.packet_count > len(found.packets):
        rows.append(f"     ... {found.packet_count - len(found.packets)} more")
    return rows
