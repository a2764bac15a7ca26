"""The legs beside GPU to RAM: GPU to NVMe with and without RAM, RAM to NVMe, RAM to NIC.

Owns:      the choice of the nearest drive and NIC, their routes and ceilings.
Promises:  a device reads RAM (or a GPU) with memory reads, so its link is charged with completions (20 B each), not
           writes.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hinan.wire.facts.join import OF_SEVERAL_MACHINES
from hinan.wire.facts.link import ASSUMED_MPS_BYTES
from hinan.wire.facts.model import Function, Gpu, Machine, Role
from hinan.wire.machine.sriov import is_virtual
from hinan.wire.paths.ends import PathLink, links_of
from hinan.wire.paths.path import Path, mps_of, path_ceiling, path_up
from hinan.wire.paths.peer import (
    Crossing,
    Meeting,
    acs_known,
    bridge_above_gap,
    common_bridge,
    crossing,
    distance,
    is_drawn_whole,
    nearness,
    redirecting_ports,
)
from hinan.wire.paths.rail import nic_on_bus


class Leg(msgspec.Struct, frozen=True, kw_only=True):
    """One way of the bytes.

    ends: the devices whose bytes they are. at_root: how many of `crossed` come before the root complex; None where it is
    not crossed, or where nobody knows. distance: the kernel's p2pdma distance for peer-to-peer legs; None for others, where
    the source does not draw every bridge, and where nobody knows where they meet. as_built_bytes_per_s: the ceiling by
    capability alone, above it only where lanes or speed are lost.
    """

    name: str
    device: str
    crossed: tuple[str, ...]
    ceiling_bytes_per_s: float | None
    narrowest: str | None
    as_built_bytes_per_s: float | None = None
    ends: tuple[str, ...] = ()
    at_root: int | None = None
    distance: int | None = None
    why: str = ""


def fetch_ceiling(path: Path, *, as_built: bool = False) -> tuple[float | None, str | None]:
    """Ceiling of a device that fetches over its path [bytes/s], and the narrow hop.

    None without its own link, and where a link of the path hides its rate. as_built: by capability, whatever is lost.
    """
    links = links_of(path.hops)
    return _slowest(links, links[0], mps_of(path.hops), as_built=as_built) if links else (None, None)


def _slowest(
    links: Sequence[PathLink], own: PathLink, mps_bytes: int | None, *, as_built: bool
) -> tuple[float | None, str | None]:
    """The slowest of links that completions cross [bytes/s], and its narrow end; None without the device's own link."""
    mps = mps_bytes or ASSUMED_MPS_BYTES
    rates = {order: link.fetch_bytes_per_s(mps, as_built=as_built) for order, link in enumerate(links)}
    if rates[links.index(own)] is None or any(link.hides_its_rate for link in links):
        return None, None
    value, order = min((rate, order) for order, rate in rates.items() if rate is not None)
    return value, links[order].narrow_end(mps).address


def from_ram(machine: Machine, device: str) -> Leg:
    """RAM to a drive or NIC: the device fetches through the root complex."""
    path = path_up(machine, device)
    ceiling, narrow = fetch_ceiling(path)
    built, _ = fetch_ceiling(path, as_built=True)
    return Leg(
        name="from RAM", device=device, crossed=tuple(hop.address for hop in reversed(path.hops)),
        ceiling_bytes_per_s=ceiling, as_built_bytes_per_s=built, narrowest=narrow, ends=(device,),
        at_root=0 if path.complete else None, why=path.why,
    )  # fmt: skip


def via_ram(machine: Machine, gpu: str, device: str) -> Leg:
    """GPU to RAM, then the device fetches it: the slower of the two legs."""
    mine = path_up(machine, gpu)
    up, narrow_up = path_ceiling(mine)
    down = from_ram(machine, device)
    built = (path_ceiling(mine, as_built=True)[0], down.as_built_bytes_per_s)
    both = [(v, n) for v, n in ((up, narrow_up), (down.ceiling_bytes_per_s, down.narrowest)) if v is not None]
    ceiling, narrow = min(both, key=lambda item: item[0]) if len(both) == 2 else (None, None)
    turn = len(mine.hops) if mine.complete and down.at_root is not None else None
    return Leg(
        name="via RAM", device=device, crossed=tuple(hop.address for hop in mine.hops) + down.crossed,
        ceiling_bytes_per_s=ceiling, as_built_bytes_per_s=None if None in built else min(rate or 0.0 for rate in built),
        narrowest=narrow, ends=(gpu, device), at_root=turn, why=down.why,
    )  # fmt: skip


def direct(machine: Machine, gpu: str, device: str) -> Leg:
    """The device fetches from the GPU's BAR: inside the switch, or over the root complex."""
    way = crossing(machine, gpu, device)
    ceiling, narrow = _peer_ceiling(way)
    whole = is_drawn_whole(machine, gpu, device)
    return Leg(
        name="peer to peer", device=device, crossed=tuple(hop.address for hop in (*way.up, *way.down)),
        ceiling_bytes_per_s=ceiling, as_built_bytes_per_s=_peer_ceiling(way, as_built=True)[0], narrowest=narrow,
        ends=(gpu, device), at_root=len(way.up) if way.at_root else None,
        distance=distance(machine, gpu, device) if whole else None, why=_why(machine, gpu, device),
    )  # fmt: skip


def redirect_ceilings(machine: Machine, gpu: str, device: str) -> tuple[float | None, float | None]:
    """Ceilings [bytes/s] of the way that ACS enforces, and of the way round in the switch."""
    ways = (crossing(machine, gpu, device, obey_acs=obey) for obey in (True, False))
    enforced, free = (_peer_ceiling(way)[0] for way in ways)
    return enforced, free


def _peer_ceiling(way: Crossing, *, as_built: bool = False) -> tuple[float | None, str | None]:
    """The slowest link [bytes/s] and its hop; None without the device's own, and where one hides its rate.

    The link above the hop that turns is none of them.
    """
    up, down = (tuple(hop for hop in side if hop.address != way.turn) for side in (way.up, way.down[::-1]))
    links = links_of(down)
    if not links:
        return None, None
    return _slowest((*links_of(up), *links), links[0], mps_of((*up, *down)), as_built=as_built)


def _why(machine: Machine, gpu: str, device: str) -> str:
    ports, bridge = redirecting_ports(machine, gpu, device), common_bridge(machine, gpu, device)
    if bridge is None:
        above = bridge_above_gap(machine, gpu, device)
        if above is not None:
            return f"they meet at {above.removeprefix('0000:')} or below it: bridges between are missing in the source"
        if nearness(machine, gpu, device).where is Meeting.UNKNOWN:
            return "where they meet is unknown: a path is not told up to the root complex"
        return "they meet only at the root complex: platform-dependent"
    if ports:
        return f"ACS redirect at {' '.join(p.removeprefix('0000:') for p in ports)} sends it up to the root complex"
    state = "ACS redirect off" if acs_known(machine, gpu, device) else "if ACS redirect is off there, which is unknown"
    return f"stays below {bridge.removeprefix('0000:')} ({state})"


class Devices(msgspec.Struct, frozen=True, kw_only=True):
    """The drive and the NIC that take a GPU's state from RAM; None: none is known.

    unknown: why nobody can say which these are. Then none is named, and none is said to be missing.
    """

    drive: Function | None = None
    nic: Function | None = None
    unknown: str | None = None

    @property
    def named(self) -> tuple[Function, ...]:
        """Those that are known, the drive first."""
        return tuple(device for device in (self.drive, self.nic) if device is not None)


def devices_of(machine: Machine, gpu: Gpu) -> Devices:
    """The nearest drive and the NIC of the GPU's rail; whoever names a drive or NIC beside a GPU asks here."""
    if machine.mixed is not None:
        return Devices(unknown=OF_SEVERAL_MACHINES)
    nic = machine.functions.get(nic_on_bus(machine, gpu.index) or "")
    return Devices(drive=_nearest(machine, gpu.address, Role.NVME), nic=nic)


def _nearest(machine: Machine, gpu: str | None, role: Role) -> Function | None:
    """The device of this role nearest to the GPU: same switch first, then same node, then by address."""
    node = machine.functions[gpu].numa_node if gpu in machine.functions else None
    near = []
    for function in machine.functions.values():
        if function.role is role and not is_virtual(function, machine.functions):
            steps = nearness(machine, gpu or "", function.address)
            switched = steps.where <= Meeting.REDIRECTED
            rank = 0 if switched else 1 if node is not None and function.numa_node == node else 2
            near.append((rank, steps, function.address, function))
    return min(near, key=lambda item: item[:3])[3] if near else None
