"""Every GPU in hardware stands on a port: what that says of a source which draws none.

Owns:      whether a GPU is at an address that no port gives, so that a hypervisor gave it.
Relies on: a port having a bus of its own for the one device of its link, which is number 0 there (PCI Express base, 7.3.1).
           Devices within the root complex need no port: of GPUs these are the ones whose memory is the host's RAM.
"""

from __future__ import annotations

from collections.abc import Mapping

from hinan.wire.facts.address import split_address
from hinan.wire.facts.families import shares_ram
from hinan.wire.facts.model import Function, Role
from hinan.wire.machine.sriov import is_virtual


def is_on_no_port(function: Function, functions: Mapping[str, Function]) -> bool:
    """Is this a GPU on a root bus, or beside others on one bus? Virtual functions are numbered on from device 0."""
    if function.role is not Role.GPU or is_virtual(function, functions):
        return False
    if shares_ram(function.vendor_id, function.device_id, function.name):
        return False
    domain, bus, device, _ = split_address(function.address)
    return bus == 0 or (device != 0 and f"{domain:04x}:{bus:02x}:00.0" not in functions)
