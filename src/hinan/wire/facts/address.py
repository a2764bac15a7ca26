"""PCI addresses: one spelling inside, the short one outside.

Owns:      the canonical form `dddd:bb:dd.f` (lower case, domain of at least four digits) and the requester ID.
Promises:  what `lspci`, sysfs, hwloc, NCCL, NVML and nvbandwidth write for one function becomes one string.
"""

from __future__ import annotations

import re

_FULL = re.compile(r"(?:(?P<domain>[0-9a-f]{4,8}):)?(?P<bus>[0-9a-f]{2}):(?P<dev>[0-1][0-9a-f])(?:\.(?P<fn>[0-7]))?", re.I)


def parse_address(text: str) -> str | None:
    """The canonical address, or None when `text` is not one.

    Example:
        >>> parse_address("19:00.0"), parse_address("00000001:00:00")
        ('0000:19:00.0', '0001:00:00.0')
    """
    match = _FULL.fullmatch(text.strip())
    if match is None:
        return None
    domain = int(match["domain"] or "0", 16)
    return f"{domain:04x}:{match['bus'].lower()}:{match['dev'].lower()}.{match['fn'] or '0'}"


def short_address(address: str) -> str:
    """As lspci prints it: the domain is left out when it is 0."""
    return address.removeprefix("0000:")


def split_address(address: str) -> tuple[int, int, int, int]:
    """Domain, bus, device and function of a canonical address, as numbers."""
    domain, bus, rest = address.split(":")
    device, function = rest.split(".")
    return int(domain, 16), int(bus, 16), int(device, 16), int(function, 16)


def requester_id(address: str) -> int:
    """The 16 bits that name the sender in a TLP: bus 15:8, device 7:3, function 2:0 (PCI Express base, 2.2.6.2)."""
    _, bus, device, function = split_address(address)
    return bus << 8 | device << 3 | function
