"""Where bytes that follow one another in address cease to have one destination.

Owns:      cutting a write into the parts of which one answer holds.
Promises:  what a part says is what `route_write` and /proc/iomem say of each of its bytes: both answer by ranges, so that
           between two ends of these (`ranges_on_bus`, `ranges_at_root`) nothing changes. Neighbours that say the same are
           one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from hinan.wire.facts.model import IomemRange, Machine
from hinan.wire.machine.root_complex import UNKNOWN, ranges_at_root
from hinan.wire.paths.decode import Step, ranges_on_bus, route_write
from hinan.wire.readers.iomem import claimants

_ADDRESSES = 1 << 64


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Some of the bytes of a write, one after the other.

    first, last: their addresses, both included; None where these are not known. destination: as in `Route`; None where
    there is no route. decided: the step that says so. iomem: ranges of /proc/iomem that hold them, the outermost first.
    """

    offset_bytes: int
    size_bytes: int
    first: int | None
    last: int | None
    destination: str | None
    node: int | None = None
    decided: Step | None = None
    iomem: tuple[IomemRange, ...] = ()

    @property
    def answer(self) -> tuple[object, ...]:
        """What it says of its bytes."""
        return self.destination, self.node, self.decided, self.iomem


def parts_of(
    machine: Machine, requester: str | None, address: int, size_bytes: int, iomem: Sequence[IomemRange]
) -> tuple[Part, ...]:
    """The parts of a write by `requester` to these bus addresses, at least one. requester None: nobody tells its way.

    iomem: of the machine that has the pages.
    """
    end = min(address + size_bytes, _ADDRESSES)
    inside = (edge for edge in _edges(machine, iomem) if address < edge < end)
    pieces = [
        _part(machine, requester, first, after - first, offset_bytes=first - address, iomem=iomem)
        for first, after in pairwise(sorted({address, *inside, end}))
    ]
    return merged(pieces)


def elsewhere(offset_bytes: int, size_bytes: int, why: str, *, routed: bool) -> Part:
    """Bytes of which nobody says where they are. routed: the way of the others is told."""
    destination = UNKNOWN if routed else None
    step = Step("the mapping", "unknown", why)
    return Part(
        offset_bytes=offset_bytes, size_bytes=size_bytes, first=None, last=None, destination=destination, decided=step
    )


def merged(parts: Sequence[Part], *, by: tuple[str, ...] = ("answer",)) -> tuple[Part, ...]:
    """The same with neighbours as one that say the same, or the same in these fields: then the first's answer stands."""
    found: list[Part] = []
    for part in parts:
        before = found[-1] if found else None
        if before is None or any(getattr(before, name) != getattr(part, name) for name in by):
            found.append(part)
        else:
            found[-1] = msgspec.structs.replace(before, size_bytes=before.size_bytes + part.size_bytes, last=part.last)
    return tuple(found)


def _edges(machine: Machine, iomem: Sequence[IomemRange]) -> Iterator[int]:
    """Addresses that may be told otherwise than the one before them."""
    ranges = (*ranges_on_bus(machine), *ranges_at_root(machine), *((r.first, r.last) for r in iomem))
    for first, last in ranges:
        yield from (first, last + 1)


def _part(
    machine: Machine, requester: str | None, first: int, size_bytes: int, *, offset_bytes: int, iomem: Sequence[IomemRange]
) -> Part:
    route = route_write(machine, requester, first) if requester is not None else None
    return Part(
        offset_bytes=offset_bytes,
        size_bytes=size_bytes,
        first=first,
        last=first + size_bytes - 1,
        destination=route.destination if route is not None else None,
        node=route.node if route is not None else None,
        decided=route.steps[-1] if route is not None and route.steps else None,
        iomem=claimants(iomem, first),
    )
