"""The configuration space of one function: bridge windows, Express and ACS capabilities.

Owns:      register offsets (PCI Express base 7.5, pci_regs.h of Linux) and the decoding of bridge windows (Linux
           drivers/pci/probe.c).
Promises:  works on 64 bytes (no root), 256 or 4096; what lies beyond the bytes given is unknown.
"""

from __future__ import annotations

import msgspec

from hinan.wire.facts.model import Acs, Buses, Port, Window

_PORTS = {0x4: Port.ROOT, 0x5: Port.UP, 0x6: Port.DOWN, 0x7: Port.LEGACY, 0x0: Port.ENDPOINT, 0x1: Port.ENDPOINT}
_EXPRESS, _ACS_EXTENDED = 0x10, 0x000D


class Space(msgspec.Struct, frozen=True):
    """What the bytes told."""

    port: Port | None = None
    mps_bytes: int | None = None
    mps_cap_bytes: int | None = None
    mrrs_bytes: int | None = None
    acs: Acs | None = None
    buses: Buses | None = None
    windows: tuple[Window, ...] = ()
    silent: bool = False  # all ones: nobody answered the read


def bridge_windows(*, reg20: int, reg22: int, reg24: int, reg26: int, reg28: int = 0, reg2c: int = 0) -> tuple[Window, ...]:
    """Open windows of a type-1 header: non-prefetchable first. Registers are named by their offset.

    Base and limit hold address bits 31:20; the limit's low 20 bits are ones. Low nibble 1 of 24h means 64 bits, whose
    upper halves stand at 28h and 2Ch. Base above limit: the window is closed.

    Example:
        >>> [f"{w.first:#x}-{w.last:#x}" for w in bridge_windows(reg20=0x9620, reg22=0x9710, reg24=0xfff1, reg26=1)]
        ['0x96200000-0x971fffff']
    """
    plain = Window((reg20 & 0xFFF0) << 16, (reg22 & 0xFFF0) << 16 | 0xFFFFF)
    high = (reg28 << 32, reg2c << 32) if reg24 & 0xF == 1 else (0, 0)
    prefetch = Window((reg24 & 0xFFF0) << 16 | high[0], (reg26 & 0xFFF0) << 16 | 0xFFFFF | high[1], True)
    return tuple(window for window in (plain, prefetch) if window.first <= window.last and window.last > 0xFFFFF)


def parse(data: bytes) -> Space:
    """Decode config space; an empty or short one gives unknowns."""
    if len(data) < 64:
        return Space()
    if data[:64] == b"\xff" * 64:
        return Space(silent=True)
    bridge = data[0x0E] & 0x7F == 1
    buses = Buses(data[0x18], data[0x19], data[0x1A]) if bridge else None
    windows = _windows(data) if bridge else ()
    express = _find(data, _EXPRESS)
    acs = _extended(data, _ACS_EXTENDED)
    if express is None:
        return Space(buses=buses, windows=windows)
    control = _word(data, express + 8)
    return Space(
        port=_PORTS.get(_word(data, express + 2) >> 4 & 0xF),
        mps_bytes=128 << (control >> 5 & 7),
        mps_cap_bytes=128 << (_word(data, express + 4) & 7),
        mrrs_bytes=128 << (control >> 12 & 7),
        acs=_acs(_word(data, acs + 6)) if acs is not None else None,
        buses=buses,
        windows=windows,
    )


def _word(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 2], "little")


def _dword(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 4], "little")


def _windows(data: bytes) -> tuple[Window, ...]:
    return bridge_windows(
        reg20=_word(data, 0x20), reg22=_word(data, 0x22), reg24=_word(data, 0x24), reg26=_word(data, 0x26),
        reg28=_dword(data, 0x28), reg2c=_dword(data, 0x2C),
    )  # fmt: skip


def _find(data: bytes, wanted: int) -> int | None:
    """Offset of a capability in the list that starts at 34h; bounded, since the list may be a loop."""
    offset = data[0x34] & 0xFC
    for _ in range(48):
        if offset < 0x40 or offset + 16 > len(data):
            return None
        if data[offset] == wanted:
            return offset
        offset = data[offset + 1] & 0xFC
    return None


def _extended(data: bytes, wanted: int) -> int | None:
    """Offset of an extended capability in the list that starts at 100h."""
    offset = 0x100
    for _ in range(960):
        if offset < 0x100 or offset + 8 > len(data):
            return None
        header = _dword(data, offset)
        if header & 0xFFFF == wanted:
            return offset
        offset = header >> 20 & 0xFFC
    return None


def _acs(control: int) -> Acs:
    return Acs(
        source_validation=bool(control & 0x01),
        request_redirect=bool(control & 0x04),
        completion_redirect=bool(control & 0x08),
        upstream_forwarding=bool(control & 0x10),
        egress_control=bool(control & 0x20),
        direct_translated=bool(control & 0x40),
    )
