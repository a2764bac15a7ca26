"""Transaction Layer Packets: how a transfer is cut, and the bytes of each header.

Owns:      the rules of cutting (payload size, 4 KiB, read completion boundary) and the layout of memory requests and
           completions (PCI Express base, 2.2; the 64-bit write as in Altera's guide, table A-12).
Promises:  a request never crosses 4 KiB, never exceeds its limit, and uses the 3-DW form exactly below 4 GiB.
           Byte for byte what cocotbext-pcie packs (tests/wire/test_tlp_oracle.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from hinan.core.errors import ConfigError

PAGE_BYTES = 4096
RCB_BYTES = 64
MAX_PAYLOADS = (128, 256, 512, 1024, 2048, 4096)
_READ, _WRITE, _COMPLETION_DATA = (0b000, 0b00000), (0b010, 0b00000), (0b010, 0b01010)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A memory request. `data` of a write holds whole DWs, padded with zeros where bytes are not enabled."""

    address: int
    size_bytes: int
    requester: int
    tag: int = 0
    write: bool = True
    data: bytes = b""
    traffic_class: int = 0
    relaxed_ordering: bool = False
    no_snoop: bool = False
    translated: bool = False  # AT = 10: the device asked the IOMMU before (ATS)

    @property
    def length_dw(self) -> int:
        """Length field: DWs touched, first to last byte."""
        return ((self.address & 3) + max(self.size_bytes, 1) + 3) // 4

    @property
    def byte_enables(self) -> tuple[int, int]:
        """First and last DW byte enables. One DW: the last one is 0. Zero bytes: both are 0 (a flush)."""
        if self.size_bytes == 0:
            return 0, 0
        first = 0xF << (self.address & 3) & 0xF
        last = 0xF >> (3 - (self.address + self.size_bytes - 1) % 4)
        return (first & last, 0) if self.length_dw == 1 else (first, last)

    def header(self) -> bytes:
        """12 bytes for an address below 4 GiB, else 16."""
        wide = self.address > 0xFFFF_FFFF
        fmt, kind = _WRITE if self.write else _READ
        first = (fmt | wide) << 29 | kind << 24 | self.traffic_class << 20 | (self.length_dw & 0x3FF)
        first |= (self.tag & 0x100) << 11 | (self.tag & 0x200) << 14
        first |= self.relaxed_ordering << 13 | self.no_snoop << 12 | (0b10 << 10 if self.translated else 0)
        enable_first, enable_last = self.byte_enables
        second = self.requester << 16 | (self.tag & 0xFF) << 8 | enable_last << 4 | enable_first
        address = (self.address & ~3).to_bytes(8 if wide else 4, "big")
        return first.to_bytes(4, "big") + second.to_bytes(4, "big") + address

    def pack(self) -> bytes:
        """Header and, for a write, payload."""
        return self.header() + (self.data if self.write else b"")

    def wire_bytes(self, *, link_bytes: int = 8, ecrc: bool = False) -> int:
        """Bytes on the link: header, payload, framing and LCRC (`link_bytes`, 0 in flit mode), ECRC."""
        return len(self.header()) + (4 * self.length_dw if self.write else 0) + link_bytes + 4 * ecrc


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """A successful completion with data. `byte_count`: bytes still owed, this completion included."""

    requester: int
    completer: int
    tag: int
    byte_count: int
    lower_address: int
    data: bytes

    def header(self) -> bytes:
        """Three DWs."""
        fmt, kind = _COMPLETION_DATA
        first = fmt << 29 | kind << 24 | (len(self.data) // 4 & 0x3FF)
        first |= (self.tag & 0x100) << 11 | (self.tag & 0x200) << 14
        second = self.completer << 16 | (self.byte_count & 0xFFF)
        third = self.requester << 16 | (self.tag & 0xFF) << 8 | (self.lower_address & 0x7F)
        return b"".join(word.to_bytes(4, "big") for word in (first, second, third))

    def pack(self) -> bytes:
        """Header and payload."""
        return self.header() + self.data

    def wire_bytes(self, *, link_bytes: int = 8, ecrc: bool = False) -> int:
        """Bytes on the link."""
        return 12 + len(self.data) + link_bytes + 4 * ecrc


def _pieces(address: int, size_bytes: int, limit_bytes: int, align_bytes: int) -> Iterator[tuple[int, int]]:
    """(address, size) of each request: within 4 KiB, at most `limit_bytes` of DWs; if cut, it ends aligned."""
    if address < 0 or size_bytes < 0 or address + size_bytes > 1 << 64:
        raise ConfigError(f"{size_bytes} bytes at {address:#x} do not fit in 64 address bits")
    if size_bytes == 0:
        yield address, 0
    while size_bytes > 0:
        piece = size_bytes
        if piece > limit_bytes - (address & 3):
            piece = limit_bytes - address % align_bytes
        piece = min(piece, PAGE_BYTES - address % PAGE_BYTES)
        yield address, piece
        address, size_bytes = address + piece, size_bytes - piece


def writes(
    address: int, data: bytes, *, requester: int, mps_bytes: int, tag: int = 0, relaxed_ordering: bool = False
) -> Iterator[Request]:
    """The posted writes of a transfer. They get no answer; the semaphore written after them says "done".

    Raises:
        ConfigError: the payload size is not one PCIe has, or the range leaves 64 bits.
    """
    _check_size(mps_bytes)
    done = 0
    for at, size in _pieces(address, len(data), mps_bytes, 4):
        pad_front, pad_back = at & 3, -(at + size) & 3
        payload = bytes(pad_front) + data[done : done + size] + bytes(pad_back if size else 4 - pad_front)
        yield Request(
            address=at, size_bytes=size, requester=requester, tag=tag, data=payload, relaxed_ordering=relaxed_ordering
        )
        done += size


def reads(address: int, size_bytes: int, *, requester: int, mrrs_bytes: int, tags: int = 32) -> Iterator[Request]:
    """The read requests of a transfer, tags counting round. A cut request ends at a multiple of 128 bytes."""
    _check_size(mrrs_bytes)
    for order, (at, size) in enumerate(_pieces(address, size_bytes, mrrs_bytes, 128)):
        yield Request(address=at, size_bytes=size, requester=requester, tag=order % tags, write=False)


def completions(
    request: Request, data: bytes, *, completer: int, mps_bytes: int, every_rcb: bool = False
) -> Iterator[Completion]:
    """The answers to a read: as large as the payload size allows, or cut at every 64 bytes (the worst legal case).

    Every completion but the last ends at a multiple of the read completion boundary. A read of zero bytes (a flush) is
    answered too, by one DW that says nothing and counts as one byte.

    Args:
        data: the bytes read, `request.size_bytes` of them.
    """
    _check_size(mps_bytes)
    if not data:
        yield Completion(
            requester=request.requester, completer=completer, tag=request.tag, byte_count=1,
            lower_address=request.address & 0x7C, data=bytes(4),
        )  # fmt: skip
    done = 0
    while done < len(data):
        at = request.address + done
        room = RCB_BYTES - at % RCB_BYTES if every_rcb else mps_bytes - at % RCB_BYTES
        piece = min(room, len(data) - done)
        pad_front, pad_back = at & 3, -(at + piece) & 3
        yield Completion(
            requester=request.requester, completer=completer, tag=request.tag, byte_count=len(data) - done,
            lower_address=at & 0x7F, data=bytes(pad_front) + data[done : done + piece] + bytes(pad_back),
        )  # fmt: skip
        done += piece


def _check_size(size_bytes: int) -> None:
    if size_bytes not in MAX_PAYLOADS:
        raise ConfigError(f"{size_bytes} is no payload or read request size; PCIe has {MAX_PAYLOADS}")
