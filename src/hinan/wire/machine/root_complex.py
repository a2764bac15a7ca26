"""What an address is when no window and no BAR on the bus holds it.

Owns:      what is RAM, and on which node it lies.
Promises:  an address that an IOMMU translates is nobody's before that. RAM is only what a known memory range holds:
           /proc/iomem, else the nodes' ranges (SRAT, memory blocks). Where neither is told, nobody can say, and the
           answer is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from hinan.wire.facts.iommu_mode import iommu_before
from hinan.wire.facts.model import IommuMode, Machine
from hinan.wire.facts.placement import node_for_gpu, only_node
from hinan.wire.readers.iomem import claimants

MEMORY, UNKNOWN, NOWHERE = "system memory", "unknown", "nowhere"

_INTERRUPTS = (0xFEE00000, 0xFEEFFFFF)
"""Writes to this range are interrupt messages on x86, which no IOMMU takes for a DMA address (Intel VT-d, 3.14)."""

_NEVER_RAM_ON_X86 = ((0xA0000, 0xFFFFF), (0xFEC00000, 0xFEEFFFFF))
"""The VGA and ROM hole, IOAPICs, and interrupt messages (Intel SDM vol. 3, APIC). Nodes' ranges may cover them."""


class Claimant(msgspec.Struct, frozen=True, kw_only=True):
    """MEMORY, UNKNOWN, or the name of a range; what the root complex does (memory, claim, walk, unknown), why, and
    the node.
    """

    destination: str
    action: str
    why: str
    node: int | None = None


def translated_at_root(machine: Machine, address: int, requester: str) -> Claimant | None:
    """What a number is where an IOMMU translates it: unknown, since only its page tables say; None where none is known to.

    It comes first: what they answer is what windows and ranges are compared with.
    """
    first, last = _INTERRUPTS
    is_interrupt = first <= address <= last and machine.cpu_arch in (None, "x86_64")
    if is_interrupt or iommu_before(machine, requester) is not IommuMode.TRANSLATED:
        return None
    why = "the IOMMU translates: its page tables decide which page it is and on which node, and no source has them"
    return Claimant(destination=UNKNOWN, action="walk", why=why)


def claimant_at_root(machine: Machine, address: int, requester: str | None = None) -> Claimant:
    """Who takes an address that no function on the bus claims."""
    ranges = [window for node in machine.nodes for window in node.ranges]
    if machine.iomem:
        claim = claimants(machine.iomem, address)
        if not claim:
            return _unknown("no range of /proc/iomem holds it")
        if not any(r.name.startswith("System RAM") for r in claim):
            return Claimant(destination=claim[-1].name, action="claim", why=f"/proc/iomem: {claim[-1].name}")
    elif not ranges:
        return _unknown("which ranges are RAM, no source tells: add /proc/iomem read by root, or dmesg | grep SRAT")
    elif _is_fixed_on_x86(machine, address) or not any(window.holds(address) for window in ranges):
        return _unknown("no memory range of a node holds it")
    node, told = node_of_address(machine, address, requester)
    unless = "" if requester is None or not _may_translate(machine, requester) else "; unless the IOMMU translates, unknown"
    why = f"no device window holds it: system memory; {told}{unless}"
    return Claimant(destination=MEMORY, action="memory", why=why, node=node)


def ranges_at_root(machine: Machine) -> Iterator[tuple[int, int]]:
    """First and last address of all ranges that these answers go by: between two such ends an answer is the same."""
    yield from (_INTERRUPTS, *_NEVER_RAM_ON_X86)
    yield from ((r.first, r.last) for r in machine.iomem)
    yield from ((window.first, window.last) for node in machine.nodes for window in node.ranges)


def _may_translate(machine: Machine, requester: str) -> bool:
    """Is an IOMMU on, in a mode that nobody tells?"""
    return machine.has_iommu_groups and iommu_before(machine, requester) is None


def _unknown(why: str) -> Claimant:
    return Claimant(destination=UNKNOWN, action="unknown", why=f"no window in the source holds it; {why}")


def _is_fixed_on_x86(machine: Machine, address: int) -> bool:
    fixed = any(first <= address <= last for first, last in _NEVER_RAM_ON_X86)
    return fixed and machine.cpu_arch in (None, "x86_64")


def node_of_address(machine: Machine, address: int, requester: str | None = None) -> tuple[int | None, str]:
    """The NUMA node of an address in RAM and how it is known: by range, or because there is one node."""
    for node in machine.nodes:
        if any(window.holds(address) for window in node.ranges):
            return node.index, f"node {node.index} by its address range"
    alone = only_node(machine)
    if alone is not None:
        return alone, "the machine has one node"
    gpu = next((g for g in machine.gpus if g.address == requester), None)
    hint = node_for_gpu(machine, gpu.index).node if gpu is not None else None
    return None, "which node, the SRAT tells, and it is not in the source" + (
        f" (the GPU is on node {hint})" if hint is not None else ""
    )


def interleave_node(nodes: tuple[int, ...], page_offset: int) -> int:
    """Node of a page under MPOL_INTERLEAVE: offset of the page in its mapping, modulo the nodes (numa_memory_policy).

    Example:
        >>> interleave_node((0, 2, 3), 7)
        2
    """
    return sorted(nodes)[page_offset % len(nodes)]
