"""What is known of product families and their links: what a GPU can do, whose word on a link is worth nothing.

Owns:      tables by device ID: highest speeds of GPU families, bridges that sit on the GPU's own card, tunnels, GPUs
           without a memory of their own. What a function *is*, `identity` says.
Promises:  a family that is not in a table is unknown, never slow.
Never:     errs low on a speed: what is told above a limit would be taken for another width.
"""

from __future__ import annotations

import re

from hinan.wire.facts.identity import AMD, AMD_GPU, INTEL, NVIDIA
from hinan.wire.facts.link import speeds_of_raw
from hinan.wire.facts.model import Function, Link, Role

# Highest GT/s of families of device IDs, upper bounds exclusive; None: a mixture, or nothing that we know.
_NVIDIA_GT_S = (
    (0x0FC0, 5.0),  # Fermi and older
    (0x1040, 8.0),  # Kepler
    (0x1180, 5.0),
    (0x1200, 8.0),  # Kepler
    (0x1340, 5.0),  # Fermi, and the small Keplers
    (0x2080, 8.0),  # Maxwell to Turing
    (0x2180, 16.0),  # Ampere, the large one
    (0x2200, 8.0),  # Turing, the small ones
    (0x2300, 16.0),  # Ampere
    (0x2400, 32.0),  # Hopper
    (0x2900, 16.0),  # Ampere and Ada
    (0x3000, 32.0),  # Blackwell
)
_AMD_GT_S = (
    (0x6600, None),
    (0x66A0, 8.0),  # GCN
    (0x66B0, 16.0),  # Vega 20: MI50, MI60
    (0x6700, 8.0),
    (0x6780, 5.0),  # Northern Islands
    (0x6880, 8.0),
    (0x6900, 5.0),  # Evergreen
    (0x7310, 8.0),
    (0x74A0, 16.0),  # Navi 1 to 3, MI100, MI200
    (0x7600, 32.0),  # MI300, MI350, Navi 4
)
_GT_S = {NVIDIA: _NVIDIA_GT_S, AMD_GPU: _AMD_GT_S}

_CARD_BRIDGES = {(AMD_GPU, 0x1478), (AMD_GPU, 0x1479), (AMD, 0x1500)}
"""The switch on AMD's own cards: its links are the GPU's, and idle with it."""

TUNNEL_GT_S = 2.5
_TUNNEL_NAME = re.compile(r"\bThunderbolt\b|\bUSB4\b", re.I)
_TUNNELS = {
    INTEL: {
        0x0B26, 0x1133, 0x1136, 0x1513, 0x151A, 0x151B, 0x1547, 0x1548, 0x1549, 0x1567, 0x1569, 0x156B, 0x156D, 0x1576,
        0x1578, 0x157E, 0x15C0, 0x15D3, 0x15DA, 0x15E7, 0x15EA, 0x15EF, 0x461F, 0x462F, 0x463F, 0x466E, 0x5780, 0x5783,
        0x5786, 0x57A4, 0x8A1D, 0x8A1F, 0x8A21, 0x8A23, 0x9A23, 0x9A25, 0x9A27, 0x9A29, 0x9A2B, 0x9A2D, 0x9A2F, 0x9A31,
        0xA71F, 0xA72F, 0xA76E, 0xD34E, 0xD34F, 0xD360, 0xD44E, 0xD44F, 0xD460,
    },
    AMD: {0x14CD, 0x14EF, 0x150A},
    0x106B: {0x1010},
    0x1B21: {0x2463},
}  # fmt: skip

_SHARED_NAME = re.compile(r"\bMI300A\b|\bStrix\b|\bJetson\b", re.I)


def max_gt_s_of_gpu(vendor: int | None, device: int | None) -> float | None:
    """The highest link speed of this GPU family [GT/s]; None where we do not know."""
    if device is None:
        return None
    return next((gt_s for bound, gt_s in _GT_S.get(vendor or 0, ()) if device < bound), None)


def told_gt_s(link: Link) -> tuple[float, ...]:
    """Every speed that the source may mean [GT/s]: its word, or what fits the bandwidth that it tells instead."""
    if link.cap_gt_s is not None:
        return (link.cap_gt_s,)
    if link.now_bytes_per_s is None:
        return ()
    return tuple(gt_s for gt_s, _ in speeds_of_raw(link.now_bytes_per_s))


def is_card_bridge(function: Function) -> bool:
    """Is this bridge a part of the GPU's card?"""
    return (function.vendor_id, function.device_id) in _CARD_BRIDGES


def is_tunnel(function: Function) -> bool:
    """Is this port one end of a Thunderbolt or USB4 tunnel? It says 2.5 GT/s whatever the cable carries.

    A port of the same chip that faces a device tells a real speed.
    """
    named = bool(_TUNNEL_NAME.search(function.name or "")) or function.device_id in _TUNNELS.get(
        function.vendor_id or 0, ()
    )
    return function.role is Role.BRIDGE and named and min(told_gt_s(function.link), default=TUNNEL_GT_S) <= TUNNEL_GT_S


def tells_no_link(function: Function) -> bool:
    """Is the link that it tells no link at all? Intel's cards say 2.5 GT/s x1 of the way within the card."""
    discrete = function.role is Role.GPU and function.vendor_id == INTEL
    return discrete and function.link.cap_gt_s is not None and function.link.cap_gt_s <= TUNNEL_GT_S


def shares_ram(vendor: int | None, device: int | None, *names: str | None) -> str | None:
    """Evidence that this GPU's memory is the host's RAM (AMD's APUs, MI300A, Jetson); None: nothing says so."""
    integrated = device is not None and (
        (vendor == AMD_GPU and (0x1000 <= device < 0x2000 or 0x9600 <= device < 0x9A00 or device == 0x74A0))
        or (vendor == NVIDIA and device == 0x2B00)
    )
    if integrated:
        return f"shared memory (device {device:04x})"
    named = (
        next((name for name in names if name and _SHARED_NAME.search(name)), None)
        if vendor in (AMD_GPU, NVIDIA, None)
        else None
    )
    return f"shared memory ({named.strip()})" if named else None
