"""A copy engine on paper: a descriptor goes in, the TLPs and their times come out.

Owns:      the timing model: a link sends one TLP after the other at its encoded rate; a read waits a round trip, and at
           most `tags` reads are on the way.
Promises:  the rate of a long aligned write equals the ceiling of `link.py`. The semaphore is written after all data.
Relies on: an ideal other side: no retries, no exhausted credits, no DRAM limit. A real copy is slower.
Never:     touches a device.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import msgspec

from hinan.core.errors import ConfigError
from hinan.wire.facts.link import LINK_BYTES, raw_bytes_per_s
from hinan.wire.packets.tlp import Completion, Request, completions, reads, writes

SEMAPHORE_BYTES = 4


class Descriptor(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver tells the copy engine, reduced to one dimension.

    address: bus address in host RAM (what dma_map returned), not the CPU's virtual address.
    to_host: device to host (posted writes), else host to device (reads and completions).
    semaphore_address: where 4 bytes are written when the data is on its way; the event that software waits for.
    """

    address: int
    size_bytes: int
    to_host: bool = True
    requester: int = 0
    relaxed_ordering: bool = False
    semaphore_address: int | None = None
    semaphore_value: int = 1


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """The link and the limits of the two ends."""

    gt_s: float
    width: int
    mps_bytes: int = 256
    mrrs_bytes: int = 512
    tags: int = 32
    round_trip_s: float = 1e-6  # request out, DRAM, completion back; an illustration, no measurement

    @property
    def bytes_per_s(self) -> float:
        """Encoded bandwidth, one direction.

        Raises:
            ConfigError: PCIe has no such link.
        """
        raw = raw_bytes_per_s(self.gt_s, self.width)
        if raw is None:
            raise ConfigError(f"PCIe has no link of {self.gt_s} GT/s x{self.width}")
        return raw

    def time_s(self, packet: Request | Completion) -> float:
        """How long the packet occupies its direction."""
        link_bytes = 0 if self.gt_s == 64.0 else LINK_BYTES
        return packet.wire_bytes(link_bytes=link_bytes) / self.bytes_per_s


class Sent(msgspec.Struct, frozen=True):
    """One packet: when its first and last byte are on the wire [s], and which way it goes."""

    start_s: float
    end_s: float
    up: bool
    packet: Request | Completion


def simulate(descriptor: Descriptor, wire: Wire, data: bytes | None = None, *, every_rcb: bool = False) -> Iterator[Sent]:
    """Every packet of one copy in order of time; `data` is what is copied (zeros if None).

    Raises:
        ConfigError: sizes that PCIe does not have, `data` of another length, or a semaphore that is no aligned word: what
            is written in two packets is seen half done.
    """
    if (descriptor.semaphore_address or 0) % SEMAPHORE_BYTES:
        raise ConfigError(
            f"the semaphore at {descriptor.semaphore_address:#x} is no aligned word; give a multiple of {SEMAPHORE_BYTES}"
        )
    payload = bytes(descriptor.size_bytes) if data is None else data
    if len(payload) != descriptor.size_bytes:
        raise ConfigError(f"the descriptor says {descriptor.size_bytes} bytes, {len(payload)} were given")
    end_s = 0.0
    for sent in (
        _to_host(descriptor, wire, payload) if descriptor.to_host else _to_device(descriptor, wire, payload, every_rcb)
    ):
        end_s = max(end_s, sent.end_s)
        yield sent
    if descriptor.semaphore_address is not None:
        # Ordering: without relaxed ordering a posted write cannot pass an earlier one, so this means "data is there".
        done = descriptor.semaphore_value.to_bytes(SEMAPHORE_BYTES, "little")
        for packet in writes(descriptor.semaphore_address, done, requester=descriptor.requester, mps_bytes=wire.mps_bytes):
            yield Sent(end_s, end_s + wire.time_s(packet), True, packet)
            end_s += wire.time_s(packet)


def _to_host(descriptor: Descriptor, wire: Wire, data: bytes) -> Iterator[Sent]:
    now_s = 0.0
    for packet in writes(
        descriptor.address, data, requester=descriptor.requester, mps_bytes=wire.mps_bytes,
        relaxed_ordering=descriptor.relaxed_ordering,
    ):  # fmt: skip
        yield Sent(now_s, now_s + wire.time_s(packet), True, packet)
        now_s += wire.time_s(packet)


def _to_device(descriptor: Descriptor, wire: Wire, data: bytes, every_rcb: bool) -> Iterator[Sent]:
    """Requests go up while tags are free; completions come down in request order after the round trip."""
    up_s = down_s = 0.0
    done = 0
    freed_s: deque[float] = deque()
    found: list[Sent] = []
    for request in reads(
        descriptor.address, len(data), requester=descriptor.requester, mrrs_bytes=wire.mrrs_bytes, tags=wire.tags
    ):
        if len(freed_s) == wire.tags:
            up_s = max(up_s, freed_s.popleft())
        asked_s, up_s = up_s, up_s + wire.time_s(request)
        found.append(Sent(asked_s, up_s, True, request))
        down_s = max(down_s, up_s + wire.round_trip_s)
        part = data[done : done + request.size_bytes]
        for packet in completions(request, part, completer=0, mps_bytes=wire.mps_bytes, every_rcb=every_rcb):
            found.append(Sent(down_s, down_s + wire.time_s(packet), False, packet))
            down_s += wire.time_s(packet)
        freed_s.append(down_s)
        done += request.size_bytes
    yield from sorted(found, key=lambda sent: sent.start_s)
