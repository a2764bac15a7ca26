"""Who claims an address: bridge windows, BARs, and what is left for the root complex.

Owns:      the routing of a memory write from its requester, hop by hop, with the reason at each.
Promises:  exactly the rules of PCIe positive decode. An endpoint sends everything up; a port sends down what lies in a
           sibling's window, unless ACS redirects; the root complex takes what is no window as system memory.
Relies on: windows and BARs being in the source (lspci -vvv, sysfs). Where they are not, the step says so.
"""

from __future__ import annotations

import msgspec

from hinan.wire.address import short_address
from hinan.wire.model import Function, IomemRange, Machine, Port, Role, Window
from hinan.wire.path import path_up
from hinan.wire.placement import node_for_gpu
from hinan.wire.readers.iomem import claimants


class Step(msgspec.Struct, frozen=True):
    """What one hop did with the write: up, turn, down, redirect, claim, memory, lost."""

    at: str
    action: str
    why: str


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """All steps, and where the write ends: "BAR 2 of 19:00.0", "system memory" or "nowhere"."""

    steps: tuple[Step, ...]
    destination: str
    node: int | None = None


def route_write(machine: Machine, requester: str, address: int) -> Route:
    """The way of a memory write (untranslated, AT = 00) of `requester` to a bus address."""
    path = path_up(machine, requester)
    if not path.hops:
        return Route(steps=(), destination="nowhere")
    steps = [Step(requester, "up", "an endpoint has one way out")]
    redirected = False
    for order, hop in enumerate(path.hops[1:], start=1):
        below = path.hops[order - 1]
        if hop.port in (Port.DOWN, Port.ROOT) and hop.acs is not None and hop.acs.redirects:
            redirected = True
            steps.append(Step(hop.address, "redirect", "ACS redirect is on: peers are reached through the root only"))
            continue
        sibling = _sibling(machine, hop, below, address) if not redirected else None
        if sibling is not None:
            steps.append(Step(hop.address, "turn", f"in the window of {short_address(sibling.address)}: peer to peer"))
            return _down(machine, sibling, address, steps)
        steps.append(Step(hop.address, "up", _why_up(machine, hop, address)))
    return _at_root(machine, path.complete, address, steps, requester)


def _windows_of(function: Function) -> tuple[Window, ...]:
    return function.windows if function.role is Role.BRIDGE else function.bars


def _claims(function: Function, address: int) -> Window | None:
    return next((window for window in _windows_of(function) if window.holds(address)), None)


def _sibling(machine: Machine, hop: Function, below: Function, address: int) -> Function | None:
    """Another function under `hop` that claims the address; the one port by positive decode."""
    others = (child for child in machine.children(hop.address) if child.address != below.address)
    return next((child for child in others if _claims(child, address)), None)


def _why_up(machine: Machine, hop: Function, address: int) -> str:
    if not hop.windows:
        return "its windows are not told; taken as outside"
    if _claims(hop, address) is not None:
        return "inside its own windows, but no port below claims it"
    shown = ", ".join(f"{w.first:#x}-{w.last:#x}" for w in hop.windows)
    return f"outside its windows {shown}"


def _down(machine: Machine, function: Function, address: int, steps: list[Step]) -> Route:
    at = function
    while True:
        window = _claims(at, address)
        if window is None:
            steps.append(Step(at.address, "lost", "no window below claims it: unsupported request"))
            return Route(steps=tuple(steps), destination="nowhere")
        if at.role is not Role.BRIDGE:
            steps.append(Step(at.address, "claim", f"BAR {window.bar} {window.first:#x}-{window.last:#x}"))
            return Route(steps=tuple(steps), destination=f"BAR {window.bar} of {short_address(at.address)}")
        steps.append(Step(at.address, "down", f"window {window.first:#x}-{window.last:#x}"))
        child = next((c for c in machine.children(at.address) if _claims(c, address)), None)
        if child is None:
            steps.append(Step(at.address, "lost", "in the window, but nothing below claims it"))
            return Route(steps=tuple(steps), destination="nowhere")
        at = child


def _at_root(machine: Machine, complete: bool, address: int, steps: list[Step], requester: str) -> Route:
    if not complete:
        steps.append(Step(steps[-1].at, "up", "what is above is not told"))
    for root in (f for f in machine.functions.values() if f.at_root):
        if _claims(root, address) is not None:
            steps.append(Step("root complex", "down", f"in a window of {short_address(root.address)}: back down"))
            return _down(machine, root, address, steps)
    claim = claimants(machine.iomem, address)
    if claim and "RAM" not in claim[-1].name and _is_device(claim):
        steps.append(Step("root complex", "claim", f"/proc/iomem: {claim[-1].name}"))
        return Route(steps=tuple(steps), destination=claim[-1].name)
    node, told = node_of_address(machine, address, requester)
    steps.append(Step("root complex", "memory", f"no device window holds it: system memory; {told}"))
    return Route(steps=tuple(steps), destination="system memory", node=node)


def _is_device(claim: tuple[IomemRange, ...]) -> bool:
    return any(r.name.startswith("PCI Bus") for r in claim)


def node_of_address(machine: Machine, address: int, requester: str | None = None) -> tuple[int | None, str]:
    """The NUMA node of a physical address and how it is known: by range, or because there is one node."""
    for node in machine.nodes:
        if any(window.holds(address) for window in node.ranges):
            return node.index, f"node {node.index} by its address range"
    if len(machine.nodes) == 1:
        return machine.nodes[0].index, "the machine has one node"
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
