"""The path of a checkpoint: which functions it crosses, who shares them, how fast each can be.

Owns:      walking up the tree, sharers, the ceiling of a path and its narrow hop. What several paths leave one another,
           `shares` says.
Promises:  a ceiling uses capabilities (an idle link's state is not one) and what of them is lost, as `ends` joins them; a
           suspect or unknown link bounds nothing. Without the GPU's own link there is no ceiling.
Never:     bounds by DRAM, sockets or copy engines: nobody publishes them; they are measured.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from hinan.wire.facts.address import short_address, split_address
from hinan.wire.facts.identity import virtual_vendor
from hinan.wire.facts.link import ASSUMED_MPS_BYTES
from hinan.wire.facts.memo import remembered
from hinan.wire.facts.model import Function, Machine, Role
from hinan.wire.machine.sriov import is_virtual
from hinan.wire.paths.ends import links_of
from hinan.wire.paths.transport import over_pcie

TRAFFIC = (Role.GPU, Role.NVME, Role.NIC)


class Path(msgspec.Struct, frozen=True):
    """Functions from the device up to the root complex. `complete`: the last one is known to stand at the root."""

    hops: tuple[Function, ...]
    complete: bool
    why: str = ""


def path_up(machine: Machine, address: str) -> Path:
    """The way from a function to the root complex."""
    return remembered(machine, f"path_up {address}", lambda: _path_up(machine, address))


def _path_up(machine: Machine, address: str) -> Path:
    hops: list[Function] = []
    at = machine.functions.get(address)
    while at is not None:
        hops.append(at)
        if at.gap_above:
            return Path(
                tuple(hops),
                False,
                f"functions below {short_address(at.parent or '')} are missing in the source: {short_address(at.address)}",
            )
        above = machine.functions.get(at.parent or "")
        if above is None:
            break
        at = above
    if not hops:
        return Path((), False, f"no source tells the bus around: {short_address(address)}")
    top = hops[-1]
    emulated = top.role is Role.BRIDGE and virtual_vendor(top.vendor_id) is not None
    if emulated:
        return Path(tuple(hops), False, f"a hypervisor's own port hides what is above: {short_address(top.address)}")
    if top.at_root:
        return Path(tuple(hops), True)
    if "parent" in top.disputed:
        return Path(tuple(hops), False, f"sources contradict each other on what is above: {short_address(top.address)}")
    return Path(tuple(hops), False, f"the source does not tell what is above: {short_address(top.address)}")


def below(machine: Machine, address: str) -> tuple[Function, ...]:
    """Every function below `address`, itself included."""
    found: list[Function] = []
    children: dict[str, list[Function]] = {}
    for function in machine.functions.values():
        if function.parent is not None:
            children.setdefault(function.parent, []).append(function)
    stack = [machine.functions[address]] if address in machine.functions else []
    while stack:
        at = stack.pop()
        found.append(at)
        stack.extend(children.get(at.address, ()))
    return tuple(sorted(found, key=lambda f: f.address))


def sharers(machine: Machine, hop: str, *devices: str) -> tuple[Function, ...]:
    """GPUs, NVMe drives and NICs, other than `devices`, whose traffic to RAM crosses `hop`. One per physical device.

    A virtual function shares the link of its physical one and is not told beside it.
    """
    seen: set[tuple[int, int, int]] = {split_address(device)[:3] for device in devices}
    found = []
    for function in remembered(machine, "traffic", lambda: _traffic(machine)).get(hop, ()):
        slot = split_address(function.address)[:3]
        if slot not in seen:
            seen.add(slot)
            found.append(function)
    return tuple(found)


def mps_of(hops: Iterable[Function]) -> int | None:
    """The payload size in use: the smallest MaxPayload (DevCtl) that any hop tells [bytes].

    None when none does, and where sources contradict each other on one of them.
    """
    told = list(hops)
    if any("mps_bytes" in hop.disputed for hop in told):
        return None
    return min((hop.mps_bytes for hop in told if hop.mps_bytes), default=None)


def path_ceiling(path: Path, mps_bytes: int | None = None, *, as_built: bool = False) -> tuple[float | None, str | None]:
    """Ceiling of the path [bytes/s] and the address of its narrowest hop, nearest the device; None if unknown.

    Unknown also where sources contradict each other on a link of the path, or a tunnel is on it: it may be the narrow one.

    Args:
        as_built: by capability alone, whatever is lost (see `ends`).
    """
    mps = mps_bytes or mps_of(path.hops) or ASSUMED_MPS_BYTES
    links = links_of(path.hops)
    rates = [link.ceiling_bytes_per_s(mps, as_built=as_built) for link in links]
    if not links or rates[0] is None or any(link.hides_its_rate for link in links):
        return None, None
    value, order = min((rate, order) for order, rate in enumerate(rates) if rate is not None)
    return value, links[order].narrow_end(mps).address


def _traffic(machine: Machine) -> dict[str, list[Function]]:
    """Each function -> devices at or below it that send to RAM, in address order; virtual functions are not told.

    Nor is a GPU whose copies go over another link.
    """
    elsewhere = {gpu.address for gpu in machine.gpus} - set(over_pcie(machine))
    found: dict[str, list[Function]] = {}
    for _, function in sorted(machine.functions.items()):
        sends = function.role in TRAFFIC and function.off_bus is None and function.address not in elsewhere
        if sends and not is_virtual(function, machine.functions):
            for address in crossed(machine, function.address):
                found.setdefault(address, []).append(function)
    return found


def crossed(machine: Machine, device: str) -> tuple[str, ...]:
    """Every function that traffic of a device to RAM is known to cross, itself first; also above a gap in its path."""
    found: dict[str, None] = {}
    at = machine.functions.get(device)
    while at is not None and at.address not in found:
        found[at.address] = None
        at = machine.functions.get(at.parent or "")
    return tuple(found)
