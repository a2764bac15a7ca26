"""What a PCIe link can carry: encoding, TLP overhead, ceiling.

Owns:      the arithmetic from GT/s and lanes to bytes per second of payload.
Promises:  a ceiling that no measurement of the same link exceeds; None in, None out.
Relies on: gen 1-2: 8b/10b; gen 3-5: 128b/130b; gen 6: flits of 256 bytes of which 236 carry TLPs (6 DLP, 8 CRC, 6 FEC).
           Other conventions for gen 6: Linux prints 128 GB/s for x16 (1/1), pcie-model 121 (242/256); ours is 118.
Never:     counts what travels the other way (ACK and flow-control DLLPs of a write stream), SKP ordered sets, retries
           or credit stalls: they are why 91 to 97 percent of the ceiling is measured.
"""

from __future__ import annotations

ENCODING = {2.5: 0.8, 5.0: 0.8, 8.0: 128 / 130, 16.0: 128 / 130, 32.0: 128 / 130, 64.0: 236 / 256}
GENERATION = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
WIDTHS = (1, 2, 4, 8, 12, 16, 32)
LINK_BYTES = 8  # gen 3-5: STP token with sequence number 4, LCRC 4; gen 1-2: 1 + 2 + 4 + 1
HEADER_64_BYTES = 16
COMPLETION_HEADER_BYTES = 12
ECRC_BYTES = 4
ASSUMED_MPS_BYTES = 256
OBSERVED_BAND = (0.91, 0.97)  # H100 95.7 %, H200 95.6 %, MI100 97 %, RTX 6000 Ada 91 %, V100 91 %


def raw_bytes_per_s(gt_s: float | None, width: int | None) -> float | None:
    """One direction after encoding [bytes/s]; None if speed or width is unknown or not one PCIe has.

    Example:
        >>> raw_bytes_per_s(8.0, 16)
        15753846153.846153
    """
    if gt_s not in ENCODING or width not in WIDTHS:
        return None
    return gt_s * 1e9 * width / 8 * ENCODING[gt_s]


def width_of(lanes: int | None) -> int | None:
    """A width that PCIe has; None for any other number: the kernel says 255 where it does not know, all ones say 63."""
    return lanes if lanes in WIDTHS else None


def overhead_bytes(gt_s: float | None, *, ecrc: bool = False, header_bytes: int = HEADER_64_BYTES) -> int:
    """Bytes on the wire per TLP beside its payload; in flit mode the link layer is paid by the encoding."""
    return header_bytes + (0 if gt_s == 64.0 else LINK_BYTES) + (ECRC_BYTES if ecrc else 0)


def write_ceiling_bytes_per_s(gt_s: float | None, width: int | None, *, mps_bytes: int, ecrc: bool = False) -> float | None:
    """Payload of a stream of 64-bit memory writes of `mps_bytes` each [bytes/s]: GPU to RAM.

    Source: wire rate x MPS / (MPS + 24); 24 = 16 header + 8 link, as in pcie-bench's pcie-model and Intel AN 829.
    Example:
        >>> round(write_ceiling_bytes_per_s(32.0, 16, mps_bytes=256) / 1e9, 3)
        57.614
    """
    raw = raw_bytes_per_s(gt_s, width)
    if raw is None:
        return None
    return raw * mps_bytes / (mps_bytes + overhead_bytes(gt_s, ecrc=ecrc))


def completion_ceiling_bytes_per_s(gt_s: float | None, width: int | None, *, completion_bytes: int) -> float | None:
    """Payload of read completions of `completion_bytes` each [bytes/s]: RAM to GPU, or a drive that reads a GPU."""
    raw = raw_bytes_per_s(gt_s, width)
    if raw is None:
        return None
    overhead = overhead_bytes(gt_s, header_bytes=COMPLETION_HEADER_BYTES)
    return raw * completion_bytes / (completion_bytes + overhead)


def payload_of_raw(raw: float, *, mps_bytes: int) -> float:
    """Payload ceiling of a link of which only the encoded bandwidth is known (hwloc) [bytes/s]."""
    return raw * mps_bytes / (mps_bytes + HEADER_64_BYTES + LINK_BYTES)


def speeds_of_raw(raw: float) -> tuple[tuple[float, int], ...]:
    """Every (GT/s, width) that has this encoded bandwidth within 0.1 percent. 15.75 GB/s is three of them."""
    found = []
    for gt_s in ENCODING:
        for width in WIDTHS:
            value = raw_bytes_per_s(gt_s, width)
            if value is not None and abs(value - raw) <= raw * 1e-3:
                found.append((gt_s, width))
    return tuple(found)
