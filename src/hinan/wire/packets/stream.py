"""A simulated copy as rows: time, direction, header bytes of each packet; and the sum.

Owns:      the shape of `hinan wire dma`. Every figure is an illustration of an ideal link, none is a measurement.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hinan.wire.packets.dma import Descriptor, Sent, Wire, simulate
from hinan.wire.packets.tlp import Request


class Row(msgspec.Struct, frozen=True):
    """One packet. kind: MWr, MRd or CplD; payload_bytes as carried, padding included."""

    start_ns: float
    end_ns: float
    direction: str
    kind: str
    header: str
    payload_bytes: int


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """The first rows, how many there are, how long all take [s], and the rate of the payload [bytes/s]."""

    rows: tuple[Row, ...]
    packets: int
    duration_s: float
    bytes_per_s: float
    label: str = "illustration"


def stream_of(descriptor: Descriptor, wire: Wire, *, shown: int = 8) -> Stream:
    """Simulate a copy and keep its first `shown` packets.

    Raises:
        ConfigError: a link or size that PCIe does not have.
    """
    sent = list(simulate(descriptor, wire))
    duration_s = max((packet.end_s for packet in sent), default=0.0)
    return Stream(
        rows=tuple(_row(packet) for packet in sent[:shown]),
        packets=len(sent),
        duration_s=duration_s,
        bytes_per_s=descriptor.size_bytes / duration_s if duration_s else 0.0,
    )


def _row(sent: Sent) -> Row:
    packet = sent.packet
    kind = ("MWr" if packet.write else "MRd") if isinstance(packet, Request) else "CplD"
    header = packet.header()
    return Row(
        sent.start_s * 1e9,
        sent.end_s * 1e9,
        "up" if sent.up else "down",
        kind,
        header.hex(" "),
        len(packet.pack()) - len(header),
    )


def lines(found: Stream, wire: Wire) -> Sequence[str]:
    """The rows as text of at most 100 columns."""
    out = [f"{'start ns':>10} {'end ns':>10}  {'way':<5}{'TLP':<5}{'payload':>7}  header"]
    out += [
        f"{r.start_ns:>10.2f} {r.end_ns:>10.2f}  {r.direction:<5}{r.kind:<5}{r.payload_bytes:>7}  {r.header}"
        for r in found.rows
    ]
    if found.packets > len(found.rows):
        out.append(f"{'':>23}... {found.packets - len(found.rows)} more")
    packets = "1 packet" if found.packets == 1 else f"{found.packets} packets"
    out.append(
        f"{packets} in {found.duration_s * 1e6:.3f} µs: {found.bytes_per_s / 1e9:.2f} GB/s on an ideal "
        f"{wire.gt_s:g} GT/s x{wire.width} (illustration)"
    )
    return out
