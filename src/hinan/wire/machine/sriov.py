"""Virtual functions: whose they are, and which of their registers mean nothing.

Owns:      the requester IDs of VFs (PCI Express base, SR-IOV: first VF offset and VF stride).
Promises:  a VF's payload and read sizes are those of its physical function, and unknown without it: the fields of its own
           DevCtl are reserved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from hinan.wire.facts.address import requester_id, split_address
from hinan.wire.facts.identity import MELLANOX
from hinan.wire.facts.model import Function

_VIRTUAL_NAME = re.compile(r"\bVirtual Function\b|\bVF\b")
_VIRTUAL_OF_MELLANOX = {0x1002, 0x1004, 0x1012, 0x1014, 0x1016, 0x1018, 0x101A, 0x101C, 0x101E, 0xA2D3}


def with_physical(functions: Mapping[str, Function]) -> dict[str, Function]:
    """The functions with the physical function of each VF named, and its sizes in place of the VF's."""
    owners = {vf: pf.address for pf in functions.values() for vf in _virtual_of(pf) if vf in functions and vf != pf.address}
    found = {}
    for address, function in functions.items():
        owner = function.physical_function or owners.get(address)
        virtual = owner is not None or is_called_virtual(function)
        found[address] = _owned(function, owner, functions.get(owner or "")) if virtual else function
    return found


def is_virtual(function: Function, functions: Mapping[str, Function]) -> bool:
    """Is it a VF of a function that is listed too? It then shares that one's link, and is no device beside it."""
    return function.physical_function in functions


def is_called_virtual(function: Function) -> bool:
    """Does it call itself a VF, by its name or device ID, whoever owns it?"""
    named = bool(_VIRTUAL_NAME.search(function.name or ""))
    return named or (function.vendor_id == MELLANOX and function.device_id in _VIRTUAL_OF_MELLANOX)


def _virtual_of(physical: Function) -> Iterator[str]:
    """Addresses of the VFs that are switched on."""
    told = physical.sriov
    if told is None or not told.enabled:
        return
    domain = split_address(physical.address)[0]
    first = requester_id(physical.address) + told.offset
    for number in range(min(told.vfs, 1 << 16)):
        routing_id = first + number * told.stride & 0xFFFF
        yield f"{domain:04x}:{routing_id >> 8:02x}:{routing_id >> 3 & 0x1F:02x}.{routing_id & 7}"


def _owned(function: Function, owner: str | None, physical: Function | None) -> Function:
    """With the sizes of its physical function; unknown where that is not listed (a VM sees the VF alone)."""
    mps, cap, mrrs = (physical.mps_bytes, physical.mps_cap_bytes, physical.mrrs_bytes) if physical else (None, None, None)
    return msgspec.structs.replace(
        function, physical_function=owner, mps_bytes=mps, mps_cap_bytes=cap, mrrs_bytes=mrrs,
    )  # fmt: skip
