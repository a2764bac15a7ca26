"""`hinan wire --paths`: the hot path of training beside the evacuation, and the third leg that leaves the host.

Owns:      five rows for three ways, and which hops they share.
Promises:  "possible", "unproven" and "no" are told apart, with the reason; a driver's word is not proof. A GPU that reaches
           RAM otherwise shares no PCIe port with its evacuation, and which drive and NIC are meant, `legs` says.
"""

from __future__ import annotations

import textwrap

import msgspec

from hinan.wire.facts.address import short_address
from hinan.wire.facts.model import Function, Gpu, Machine
from hinan.wire.facts.nics import has_rdma
from hinan.wire.machine.sriov import is_called_virtual
from hinan.wire.paths.legs import Devices, devices_of, from_ram
from hinan.wire.paths.path import Path, path_up
from hinan.wire.paths.peer import Crossing, Meeting, crossing, nearness, redirecting_ports
from hinan.wire.paths.transport import coherent_link_of, shared_memory_of

ROWS = ("what is carried", "route", "CPU", "NIC or DPU", "aim of speed")


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """One column: its five cells and the hops it crosses (addresses)."""

    name: str
    cells: tuple[str, str, str, str, str]
    hops: tuple[str, ...]


class Paths(msgspec.Struct, frozen=True, kw_only=True):
    """The three ways, GPUDirect RDMA's verdict, hops that the hot path and the evacuation share, and SR-IOV lines.

    shared_unknown: why nobody can say which hops these are; None: `shared` is all that is known to be.
    """

    ways: tuple[Way, ...]
    rdma: str
    shared: tuple[str, ...]
    shared_unknown: str | None
    virtual_functions: tuple[str, ...]


def paths_of(machine: Machine, gpu: Gpu) -> Paths:
    """The comparison for one GPU."""
    devices = devices_of(machine, gpu)
    to_nic = _hot_way(machine, gpu, devices.nic)
    coherent = coherent_link_of(machine, gpu)
    up = path_up(machine, gpu.address) if gpu.address and coherent is None else Path((), False)
    to_ram = tuple(hop.address for hop in up.hops)
    shared = tuple(hop for hop in to_ram if hop in _hops(to_nic))
    ways = (
        _hot(machine, gpu, to_nic, devices, frozenset(shared)),
        _evacuation(machine, gpu, up, frozenset(shared)),
        _third(machine, devices),
    )
    return Paths(
        ways=ways,
        rdma=_rdma(machine, gpu, devices),
        shared=shared,
        shared_unknown=_shared_unknown(devices, to_nic, up, coherent),
        virtual_functions=_sriov(machine),
    )


def _shared_unknown(devices: Devices, to_nic: Crossing, up: Path, coherent: str | None) -> str | None:
    if coherent is not None:
        return None
    if devices.unknown is not None:
        return devices.unknown
    return None if _hops(to_nic) and up.hops else "one of the two ways is not known"


def _names(hops: tuple[str, ...], shared: frozenset[str] = frozenset()) -> str:
    """Hops in a row; those that the hot path and the evacuation share carry a star."""
    return " > ".join(short_address(hop) + "*" * (hop in shared) for hop in hops) or "unknown"


def _hot_way(machine: Machine, gpu: Gpu, nic: Function | None) -> Crossing:
    """GPU to NIC: round in the common bridge, or over the root complex."""
    if nic is None or gpu.address is None or gpu.address not in machine.functions:
        return Crossing()
    return crossing(machine, gpu.address, nic.address)


def _hops(way: Crossing) -> tuple[str, ...]:
    return tuple(hop.address for hop in (*way.up, *way.down))


def _hot(machine: Machine, gpu: Gpu, way: Crossing, devices: Devices, shared: frozenset[str]) -> Way:
    function = machine.functions.get(gpu.address or "")
    links = function.nvlinks if function else None
    told = {label for other, label in gpu.relations.items() if other.startswith("GPU")}
    nvlink = links is not None or any(label.startswith("NV") for label in told)
    inside = f"NVLink ({links} links)" if links else "NVLink" if nvlink else "PCIe peer to peer, or unknown"
    hops = _hops(way)
    parts = [tuple(hop.address for hop in side) for side in (way.up, way.down)] if way.at_root else [hops]
    outside = " > root complex > ".join(_names(part, shared) for part in parts) if hops else "GPU to NIC unknown"
    missing = f"unknown: {devices.unknown}" if devices.unknown else "no NIC is known"
    return Way(
        name="hot path (training)",
        cells=(
            "gradients, activations, parameters, every step",
            f"GPU to GPU: {inside}. Other hosts: {outside}",
            "bypassed with GPUDirect RDMA; else crossed through a bounce buffer",
            "crossed towards other hosts" if hops else missing,
            "every microsecond counts: the step waits for it",
        ),
        hops=hops,
    )


def _evacuation(machine: Machine, gpu: Gpu, path: Path, shared: frozenset[str]) -> Way:
    hops = tuple(hop.address for hop in path.hops)
    gap = "" if path.complete or not hops else " > ?"
    coherent, shared_ = coherent_link_of(machine, gpu), shared_memory_of(machine, gpu)
    return Way(
        name="evacuation (HBM to RAM)",
        cells=(
            "the state: parameters, optimizer, a few times per hour",
            "none: the GPU's memory is RAM"
            if shared_ and coherent == shared_
            else f"{coherent} to RAM"
            if coherent
            else f"{_names(hops, shared)}{gap} > root complex > RAM",
            "its memory controller is crossed, its cores are not: the copy engine writes",
            "not crossed",
            "short against the gap between optimizer steps; never in the way of the hot path",
        ),
        hops=hops,
    )


def _third(machine: Machine, devices: Devices) -> Way:
    routes = []
    missing = f"unknown: {devices.unknown}" if devices.unknown else "no drive and no NIC are known"
    for device, word in ((devices.drive, "RAM to NVMe"), (devices.nic, "RAM to NIC or DPU to target")):
        if device is not None:
            leg = from_ram(machine, device.address)
            gap = "? > " if leg.at_root is None else ""
            routes.append(f"{word}: root complex > {gap}{_names(leg.crossed)}")
    return Way(
        name="third leg (RAM to safety)",
        cells=(
            "the same image, in the background",
            "; ".join(routes) or missing,
            "cores read, digest and send; DRAM is read again",
            "crossed on the way to the target; not for a local drive",
            "done before the next image needs the slot; paced, lowest priority",
        ),
        hops=tuple(from_ram(machine, devices.nic.address).crossed) if devices.nic is not None else (),
    )


def _rdma(machine: Machine, gpu: Gpu, devices: Devices) -> str:
    """Is GPUDirect RDMA between the GPU and its nearest NIC possible?"""
    if gpu.off_bus is not None:
        return "no: the GPU does not answer on the bus"
    nic, function = devices.nic, machine.functions.get(gpu.address or "")
    near = {label for other, label in gpu.relations.items() if not other.startswith("GPU")}
    if function is not None and function.gpudirect is False:
        return "no: the driver does not offer it (gdr=0)"
    if devices.unknown is not None or (nic is None and not near):
        return f"unknown: {devices.unknown or 'no NIC is known'}"
    if nic is None or gpu.address is None:
        return f"possible, unproven: topo -m says {', '.join(sorted(near))}; the label is no bandwidth"
    able = has_rdma(nic)
    if able is False:
        return f"no: {short_address(nic.address)} is a NIC without RDMA, and no other is known"
    ports = redirecting_ports(machine, gpu.address, nic.address)
    if ports:
        names = " ".join(map(short_address, ports))
        return f"possible, unproven, and slow: ACS redirect at {names} sends it through the root complex"
    driver = "the driver offers it" if function is not None and function.gpudirect else "the driver was not asked"
    if able is None:
        driver += f"; whether {short_address(nic.address)} has RDMA is unknown"
    where = nearness(machine, gpu.address, nic.address).where
    if where is Meeting.UNKNOWN:
        return f"possible, unproven: no source tells where GPU and {short_address(nic.address)} meet; {driver}"
    if where is Meeting.AT_ROOT:
        return f"possible, unproven: GPU and NIC meet only at the root complex; {driver}"
    return f"possible, unproven: same switch as {short_address(nic.address)}; {driver}. Proof is a measured transfer"


def _sriov(machine: Machine) -> tuple[str, ...]:
    """VF to PF to IOMMU group, and what the group isolates."""
    rows = []
    groups: dict[int, list[str]] = {}
    for function in machine.functions.values():
        if function.iommu_group is not None:
            groups.setdefault(function.iommu_group, []).append(function.address)
    for address, function in sorted(machine.functions.items()):
        virtual = function.physical_function is not None or is_called_virtual(function)
        if not virtual:
            continue
        unknown = "unknown (inside a VM)" if machine.virtual else "unknown"
        owner = short_address(function.physical_function) if function.physical_function else unknown
        group = function.iommu_group
        alone = (
            "unknown"
            if group is None
            else "this VF alone"
            if len(groups[group]) == 1
            else f"{len(groups[group])} functions together"
        )
        number = "unknown" if group is None else str(group)
        rows.append(f"VF {short_address(address)} -> PF {owner} -> IOMMU group {number}: isolates {alone}")
    return tuple(rows)


def lines(found: Paths, width: int = 100) -> list[str]:
    """The table as text."""
    first = 17
    each = (width - first) // len(found.ways) - 2
    head = "".join(f"{way.name:<{each + 2}}" for way in found.ways)
    out = [f"{'':<{first}}{head}".rstrip(), "-" * width]
    for row, name in enumerate(ROWS):
        cells = [textwrap.wrap(way.cells[row], each, break_long_words=True) for way in found.ways]
        for order in range(max(map(len, cells))):
            text = "".join(f"{cell[order] if order < len(cell) else '':<{each + 2}}" for cell in cells)
            out.append(f"{name if order == 0 else '':<{first}}{text}".rstrip())
    shared = f"unknown: {found.shared_unknown}" if found.shared_unknown else (
        ", ".join(map(short_address, found.shared)) or "none"
    )  # fmt: skip
    out += ["", *textwrap.wrap(f"* shared by hot path and evacuation: {shared}", width)]
    out += textwrap.wrap(f"GPUDirect RDMA: {found.rdma}", width)
    return out + [f"SR-IOV: {row}"[:width] for row in found.virtual_functions or ("no virtual function is known",)]
