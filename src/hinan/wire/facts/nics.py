"""Which NICs a GPU should reach other hosts through: RDMA before none, wide links before narrow ones.

Owns:      what is known of a NIC's RDMA from its IDs, class and name, and the choice among NICs that are equally near.
Promises:  "no" only for what surely has none (Wi-Fi, management NICs, paravirtual ones); what nobody knows is None.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hinan.wire.facts.identity import INTEL, MELLANOX
from hinan.wire.facts.link import raw_bytes_per_s
from hinan.wire.facts.model import Function, Link

_INFINIBAND, _FABRIC, _OTHER_NETWORK = (0x0207, 0x0C06), 0x0208, 0x0280
_NONE_OF_VENDOR = {0x10EC, 0x1D6A, 0x14C3, 0x17CB, 0x168C, 0x1AF4, 0x1B36, 0x15AD, 0x5853, 0x1AE0}
"""Realtek, Aquantia, MediaTek, Qualcomm, Atheros, and what hypervisors emulate."""
_NONE_OF_INTEL = {
    0x0D9F, 0x100E, 0x100F, 0x10C9, 0x10D3, 0x10F6, 0x10FB, 0x125B, 0x125C, 0x125D, 0x1502, 0x1503, 0x151C, 0x1521, 0x1522,
    0x1523, 0x1524, 0x1528, 0x1531, 0x1533, 0x1536, 0x1537, 0x1538, 0x1539, 0x1557, 0x1560, 0x1563, 0x1572, 0x157B, 0x157C,
    0x1583, 0x1584, 0x1586, 0x1589, 0x158A, 0x158B, 0x15AD, 0x15D1, 0x15F2, 0x15F3, 0x15F6, 0x15FF, 0x3102, 0x5502, 0x5503,
}  # fmt: skip
_NONE_OF = {
    INTEL: _NONE_OF_INTEL,
    0x14E4: {0x1639, 0x1656, 0x1657, 0x165F, 0x1682, 0x1684, 0x1686, 0x1687, 0x168E},  # Broadcom below NetXtreme-E
    0x1D0F: {0x0EC2, 0x1EC2, 0xEC20, 0xEC21},  # Amazon's ENA; EFA is another device
}
_NONE_NAME = re.compile(
    r"\bWi-?Fi\b|\bWireless\b|\b(?:I210|I211|I350|I22[56])\b|(?<![0-9][ -])Gigabit Ethernet|\bvirtio\b|vmxnet|\bENA\b", re.I
)
_RDMA_NAME = re.compile(r"ConnectX|BlueField|Infiniband|\bEFA\b|Elastic Fabric Adapter|Omni-Path", re.I)


def has_rdma(nic: Function) -> bool | None:
    """Can the NIC do RDMA? None: nobody knows."""
    name = nic.name or ""
    if nic.gpudirect or nic.vendor_id == MELLANOX or nic.class_code in (*_INFINIBAND, _FABRIC) or _RDMA_NAME.search(name):
        return True
    known = nic.vendor_id in _NONE_OF_VENDOR or nic.device_id in _NONE_OF.get(nic.vendor_id or 0, ())
    return False if known or nic.class_code == _OTHER_NETWORK or _NONE_NAME.search(name) else None


def usable(nics: Sequence[Function]) -> list[Function]:
    """Those that are not known to be without RDMA; all, where none is left."""
    return [nic for nic in nics if has_rdma(nic) is not False] or list(nics)


def best(nics: Sequence[Function]) -> list[Function]:
    """Of NICs that are equally near: those that have RDMA, if any is known to, and of these the ones with the widest link.

    A link that is not told may be as wide as any.
    """
    capable = [nic for nic in nics if has_rdma(nic)] or list(nics)
    widths = [_raw(nic.link) for nic in capable]
    most = max((width for width in widths if width is not None), default=None)
    return [nic for nic, width in zip(capable, widths, strict=True) if most is None or width is None or width >= most]


def _raw(link: Link) -> float | None:
    return None if link.suspect else raw_bytes_per_s(link.cap_gt_s, link.cap_width)
