"""A link with its two ends joined: the one notion of a link that ceilings, shares, rules and pictures use.

Owns:      which hops of a path are the two ends of one link, what the link can do, and what counts of what it does.
Promises:  a link is as fast as its slower end and as wide as its narrower one, even if these are two ends. A state below
           that counts only where it is a fault and no rest: lanes that are lost, and a speed that was read under load. An
           end that is suspect tells nothing, unless what it tells is a present rate, read under load.
Relies on: every function's link being the one towards its peer: a port that faces down is the upper end of a link, all
           others are the lower end (NCCL's switch in one line is that of its uplink).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from hinan.wire.facts.families import is_card_bridge, is_tunnel
from hinan.wire.facts.join import link_is_disputed
from hinan.wire.facts.link import completion_ceiling_bytes_per_s, payload_of_raw, write_ceiling_bytes_per_s
from hinan.wire.facts.model import Function, Link, Machine, Port, Role
from hinan.wire.machine.suspects import SLOW_GT_S

_T = TypeVar("_T", int, float)
_SAME = 0.999
_FACING_DOWN = (Port.ROOT, Port.DOWN)


class PathLink(msgspec.Struct, frozen=True):
    """One link of a path. ends: one or both, the one nearer to the device first."""

    ends: tuple[Function, ...]

    @property
    def key(self) -> str:
        """One for all functions of a device, which share its link: the port's address where it is told."""
        return self.ends[-1].address

    @property
    def _told(self) -> tuple[Link, ...]:
        return tuple(end.link for end in self.ends if not end.link.suspect)

    @property
    def _present(self) -> tuple[Link, ...]:
        """Ends whose present bandwidth bounds a copy: that of a suspect one too, where it was read while one ran."""
        return tuple(end.link for end in self.ends if not end.link.doubtful)

    @property
    def cap_gt_s(self) -> float | None:
        """What both ends can do [GT/s]."""
        return _least((*(link.cap_gt_s for link in self._told), *self._both("cap_gt_s", "both_gt_s")))

    @property
    def cap_width(self) -> int | None:
        """Lanes that both ends have."""
        return _least((*(link.cap_width for link in self._told), *self._both("cap_width", "both_width")))

    def _both(self, cap: str, together: str) -> list[Any]:
        """What a source says of the link as a whole; not where each end is told, nor a speed that a link at rest has."""
        if len(self.ends) == 2 and all(getattr(end.link, cap) is not None for end in self.ends):
            return []
        told = [getattr(link, together) for link in self._told]
        return [value for value in told if together != "both_gt_s" or (value or 0.0) > SLOW_GT_S]

    @property
    def now_gt_s(self) -> float | None:
        """Present speed [GT/s]."""
        return _least(link.now_gt_s for link in self._told)

    @property
    def now_width(self) -> int | None:
        """Lanes in use."""
        return _least(link.now_width for link in self._told)

    @property
    def counted(self) -> tuple[float | None, int | None]:
        """GT/s and lanes that a copy gets: capability, less what is lost. A width does not drop when idle; a speed does."""
        busy = any(link.busy for link in self._told)
        return _least((self.cap_gt_s, self.now_gt_s if busy else None)), _least((self.cap_width, self.now_width))

    @property
    def at_gpu(self) -> bool:
        """Does it idle with a GPU: is one end the GPU, or a bridge on its card?"""
        return any(end.role is Role.GPU or is_card_bridge(end) for end in self.ends)

    @property
    def hides_its_rate(self) -> bool:
        """May it be the narrow one of its path, with nobody to say how narrow? Disputed links, and tunnels."""
        return any(link_is_disputed(end) or is_tunnel(end) for end in self.ends)

    @property
    def by_present(self) -> bool:
        """Is a present bandwidth all that anybody tells of it? Then that stands for the capability."""
        told = any(end.link.now_bytes_per_s is not None for end in self.ends)
        return told and (self.cap_gt_s is None or self.cap_width is None)

    def present_bytes_per_s(self, mps_bytes: int, *, busy: bool) -> float | None:
        """Payload of the present bandwidth that ends tell beside no speed and width [bytes/s]. busy: as a copy ran only."""
        ends = self._present if busy else self._told
        return _least(
            payload_of_raw(link.now_bytes_per_s, mps_bytes=mps_bytes)
            for link in ends
            if link.now_bytes_per_s is not None and (link.busy or not busy)
        )

    def present_shortfall(self, mps_bytes: int, *, busy: bool) -> tuple[float, float] | None:
        """A present bandwidth below the capability that another source tells: both [bytes/s]; None where there is none.

        Nor where a source tells speed and lanes as they are: then these say it.
        """
        can = write_ceiling_bytes_per_s(self.cap_gt_s, self.cap_width, mps_bytes=mps_bytes)
        does = self.present_bytes_per_s(mps_bytes, busy=busy)
        told = (self.now_gt_s or self.cap_gt_s, self.now_width or self.cap_width)
        if can is None or does is None or told != (self.cap_gt_s, self.cap_width) or does >= can * _SAME:
            return None
        return does, can

    def ceiling_bytes_per_s(self, mps_bytes: int, *, as_built: bool = False) -> float | None:
        """Payload of memory writes [bytes/s]; None when the link is unknown or not believed.

        hwloc tells only the present bandwidth. It stands for the capability where no source tells that of either end, and
        counts beside it where it was read while a copy ran.

        Args:
            as_built: by capability alone, whatever is lost.
        """
        gt_s, width = (self.cap_gt_s, self.cap_width) if as_built else self.counted
        found = [write_ceiling_bytes_per_s(gt_s, width, mps_bytes=mps_bytes)]
        if self.by_present:
            found.append(self.present_bytes_per_s(mps_bytes, busy=False))
        if not as_built:
            found.append(self.present_bytes_per_s(mps_bytes, busy=True))
        return _least(found)

    def fetch_bytes_per_s(self, completion_bytes: int, *, as_built: bool = False) -> float | None:
        """Payload of read completions [bytes/s]; None when speed or width is unknown."""
        gt_s, width = (self.cap_gt_s, self.cap_width) if as_built else self.counted
        return completion_ceiling_bytes_per_s(gt_s, width, completion_bytes=completion_bytes)

    def narrow_end(self, mps_bytes: int) -> Function:
        """The end that limits the link by itself; the nearer one where neither does."""
        rate = self.ceiling_bytes_per_s(mps_bytes)
        return next((end for end in self.ends if _by_itself(end).ceiling_bytes_per_s(mps_bytes) == rate), self.ends[0])


def _by_itself(end: Function) -> PathLink:
    link = msgspec.structs.replace(end.link, both_gt_s=None, both_width=None)
    return PathLink((msgspec.structs.replace(end, link=link),))


def _least(values: Iterable[_T | None]) -> _T | None:
    return min((value for value in values if value is not None), default=None)


def links_of(hops: Sequence[Function]) -> tuple[PathLink, ...]:
    """The links of hops that lie above one another, the device first."""
    found: list[PathLink] = []
    for order, hop in enumerate(hops):
        below = hops[order - 1] if order else None
        if below is not None and hop.port in _FACING_DOWN and below.port not in _FACING_DOWN:
            found[-1] = PathLink((below, hop))
        else:
            found.append(PathLink((hop,)))
    return tuple(found)


def read_under_load(machine: Machine, busy: Iterable[str]) -> Machine:
    """The machine with the present state of these functions' links as what they do at best: a copy ran over them."""
    idle = [address for address in busy if not machine.functions[address].link.busy]
    if not idle:
        return machine
    functions = dict(machine.functions)
    for address in idle:
        link = msgspec.structs.replace(functions[address].link, busy=True)
        functions[address] = msgspec.structs.replace(functions[address], link=link)
    return msgspec.structs.replace(machine, functions=functions)
