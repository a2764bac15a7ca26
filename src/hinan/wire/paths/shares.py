"""All GPUs at once: which links several of them cross, and what each gets if these are shared evenly.

Owns:      a link as those see it who cross it together, and max-min fair shares over all of them.
Promises:  what a link carries bounds the *sum* of the GPUs that are known to cross it, whatever lies above: that is a fact.
           A share is none: switches may arbitrate per port and not per GPU, and who does not use its part leaves it to
           others. So one GPU may be faster than its share; the slowest of a link cannot be faster than an even one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from hinan.wire.facts.link import ASSUMED_MPS_BYTES
from hinan.wire.facts.memo import remembered
from hinan.wire.facts.model import Function, Machine
from hinan.wire.paths.ends import PathLink, links_of
from hinan.wire.paths.path import crossed, mps_of, path_ceiling, path_up
from hinan.wire.paths.transport import over_pcie

_FULL = 1 - 1e-9

SHARING_UNKNOWN = "what is shared is not known"
"""Beside a figure of all at once that nobody can tell."""


class SharedLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link of known rate and the devices that are known to cross it. key: its port's address, as `PathLink.key`.

    by_present: the rate is a present one, which an idle link lowers: it tells what to plan with, and proves nothing.
    """

    key: str
    bytes_per_s: float
    users: tuple[str, ...]
    by_present: bool


def links_at_once(machine: Machine) -> tuple[SharedLink, ...]:
    """Every link of known rate that evacuations over PCIe cross; none where sources of different machines are joined."""
    return remembered(machine, "links_at_once", lambda: _links(machine, over_pcie(machine)))


def links_of_gpu(machine: Machine, device: str) -> tuple[SharedLink, ...]:
    """Those that one GPU crosses, the nearest first."""
    order = {address: at for at, address in enumerate(crossed(machine, device))}
    mine = [link for link in links_at_once(machine) if device in link.users]
    return tuple(sorted(mine, key=lambda link: order[link.key]))


def shares_at_once(machine: Machine) -> dict[str, float | None]:
    """`fair_shares` of all GPUs that evacuate over PCIe."""
    return remembered(machine, "shares_at_once", lambda: fair_shares(machine, over_pcie(machine)))


def known_shares(machine: Machine) -> dict[str, float]:
    """Shares of the links that are known, also where a path is not told up to the root: no plan goes above."""
    return remembered(machine, "known_shares", lambda: _fill(links_at_once(machine)))


def fair_shares(machine: Machine, devices: Iterable[str]) -> dict[str, float | None]:
    """Bytes/s for each device when all send to RAM at once: max-min fair over the links they share.

    Links fill together; when one is full, the devices that cross it stop and the others go on. A device whose own rate is
    not known takes its part of the links that it is known to cross. None for such a device, for one whose path is not known
    up to the root, for one that shares a link of which nobody tells the rate, for one on whose way another may be whose own
    way is disputed, and for all if the sources are of different machines: nobody can say who shares, or what.
    """
    ways = {device: frozenset(crossed(machine, device)) for device in devices}
    shares = _fill(_links(machine, ways))
    unknown = _unknown_shared(machine, ways)
    perhaps = {device: _perhaps_crossed(machine, way) for device, way in ways.items()}
    return {
        device: shares.get(device)
        if path_up(machine, device).complete and path_ceiling(path_up(machine, device))[0] is not None
        and not any(way & doubtful for other, doubtful in perhaps.items() if other != device)
        and device not in unknown
        else None
        for device, way in ways.items()
    }  # fmt: skip


def unknown_shared(machine: Machine) -> dict[str, str]:
    """`_unknown_shared` of all GPUs that evacuate over PCIe."""
    return remembered(machine, "unknown_shared", lambda: _unknown_shared(machine, over_pcie(machine)))


def _unknown_shared(machine: Machine, devices: Iterable[str]) -> dict[str, str]:
    """Each device that shares a link of which nobody tells the rate -> the nearest such link.

    A link that a device has for itself is none: it takes nothing from others, and the path's ceiling goes without it too.
    """
    ways = {device: crossed(machine, device) for device in devices}
    users = Counter(hop for way in ways.values() for hop in way)
    found: dict[str, str] = {}
    for device, way in ways.items():
        for link in _drawn_links(machine, way):
            if users[link.key] > 1 and link.ceiling_bytes_per_s(ASSUMED_MPS_BYTES) is None:
                found.setdefault(device, link.key)
    return found


def share_label(share: float | None, ceiling: float | None) -> str:
    """Nobody is faster than a share that is all its links carry; of a smaller one, others may leave more."""
    return "unknown" if not share else "share" if ceiling and share < ceiling * 0.999 else "ceiling"


def fills_up(machine: Machine, device: str) -> SharedLink | None:
    """The link that stops a GPU's share: full, and nobody gets more of it. Of several, the one nearest the root."""
    shares = known_shares(machine)
    for link in reversed(links_of_gpu(machine, device)):
        parts = [shares[user] for user in link.users]
        if len(parts) > 1 and sum(parts) >= link.bytes_per_s * _FULL and shares[device] >= max(parts) * _FULL:
            return link
    return None


def _links(machine: Machine, devices: Iterable[str]) -> tuple[SharedLink, ...]:
    if machine.mixed is not None:
        return ()
    ways = {device: crossed(machine, device) for device in devices}
    known: dict[str, tuple[float, bool]] = {}
    for device, way in ways.items():  # what is known of a way bounds what it takes of others
        mps = mps_of(path_up(machine, device).hops) or ASSUMED_MPS_BYTES
        for link in _drawn_links(machine, way):
            rate = link.ceiling_bytes_per_s(mps)
            if rate is not None:
                known[link.key] = min((rate, link.by_present), known.get(link.key, (rate, link.by_present)))
    users: dict[str, list[str]] = {key: [] for key in known}
    for device, way in ways.items():
        for key in users.keys() & set(way):
            users[key].append(device)
    return tuple(
        SharedLink(key=key, bytes_per_s=rate, users=tuple(sorted(users[key])), by_present=by_present)
        for key, (rate, by_present) in sorted(known.items())
    )


def _drawn_links(machine: Machine, way: Iterable[str]) -> Iterator[PathLink]:
    """Links of a way; across a gap two functions are no ends of one link."""
    part: list[Function] = []
    for address in way:
        part.append(machine.functions[address])
        if part[-1].gap_above:
            yield from links_of(part)
            part = []
    yield from links_of(part)


def _perhaps_crossed(machine: Machine, way: Iterable[str]) -> frozenset[str]:
    """What a device crosses if one source is right of those that contradict each other on its way."""
    told = [above for address in way for above in machine.functions[address].disputed.get("parent", ())]
    return frozenset(address for above in told for address in (above, *crossed(machine, above)))


def _fill(links: Sequence[SharedLink]) -> dict[str, float]:
    """Progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2)."""
    left = {link.key: link.bytes_per_s for link in links}
    active = {link.key: set(link.users) for link in links}
    shares: dict[str, float] = {}
    while any(active.values()):
        hop = min((h for h in active if active[h]), key=lambda h: (left[h] / len(active[h]), h))
        share = left[hop] / len(active[hop])
        for device in sorted(active[hop]):
            shares[device] = share
            for other, waiting in active.items():
                if device in waiting:
                    waiting.discard(device)
                    left[other] -= share
    return shares
