"""Does this GPU reach RAM over PCIe at all?

Owns:      the verdict "NVLink-C2C, POWER NVLink, Infinity Fabric or shared memory", from device IDs, names and what the
           sources say.
Promises:  where it holds no PCIe ceiling is claimed: 295 to 330 GB/s is right there, not a wrong measurement.
"""

from __future__ import annotations

from hinan.wire.facts.families import shares_ram
from hinan.wire.facts.identity import (
    coherent_evidence,
    fabric_evidence,
    has_nvlink_to_power,
    is_grace_host,
    is_plain_pcie,
    is_power_host,
)
from hinan.wire.facts.model import Function, Gpu, Machine, Role


def coherent_link_of(machine: Machine, gpu: Gpu | None) -> str | None:
    """Evidence that the GPU reaches host RAM by a coherent link, or has no other memory; None: as far as told, by PCIe."""
    if gpu is None:
        return machine.coherent_link
    function = machine.functions.get(gpu.address or "")
    own = function.coherent_link if function else None
    vendor, device = (function.vendor_id, function.device_id) if function else (None, None)
    of_host = machine.coherent_link
    if is_c2c(of_host) and is_plain_pcie(vendor, device, gpu.name, function.name if function else None):
        of_host = None  # a Grace host takes PCIe cards too
    found = own or of_host or coherent_evidence(vendor, device, gpu.name)
    found = found or fabric_evidence(vendor, device)
    return found or _power_nvlink(machine, function, gpu) or shared_memory_of(machine, gpu)


def over_pcie(machine: Machine) -> tuple[str, ...]:
    """Addresses of the GPUs whose copies to RAM share PCIe links when all evacuate at once."""
    gpus = {gpu.address: gpu for gpu in machine.gpus}
    return tuple(address for address in machine.evacuating if coherent_link_of(machine, gpus[address]) is None)


def is_c2c(evidence: str | None) -> bool:
    """Is the coherent link NVLink-C2C, so the host a Grace? POWER's NVLink and shared memory are coherent too."""
    return (evidence or "").startswith("NVLink-C2C")


def has_other_tables(machine: Machine) -> bool:
    """Is it surely a host whose IOMMU has other tables than x86: POWER, Grace, or an architecture that a source names?

    lspci names no CPU: a GPU on NVLink-C2C, or Grace's own root ports, tell it.
    """
    c2c = is_c2c(machine.coherent_link) or any(is_c2c(coherent_link_of(machine, gpu)) for gpu in machine.gpus)
    grace = any(f.role is Role.BRIDGE and is_grace_host(f.vendor_id, f.device_id) for f in machine.functions.values())
    return machine.cpu_arch not in (None, "x86_64") or c2c or grace or _is_power(machine)


def _is_power(machine: Machine) -> bool:
    return (
        is_power_host(None, None, machine.cpu_model)
        or (machine.cpu_arch or "").startswith("ppc64")
        or any(
            f.role is Role.BRIDGE and is_power_host(f.vendor_id, f.device_id, f.name) for f in machine.functions.values()
        )
    )


def shared_memory_of(machine: Machine, gpu: Gpu) -> str | None:
    """Evidence that the GPU's memory is the host's RAM; None: nothing says so."""
    function = machine.functions.get(gpu.address or "")
    vendor, device = (function.vendor_id, function.device_id) if function else (None, None)
    return shares_ram(vendor, device, gpu.name)


def _power_nvlink(machine: Machine, function: Function | None, gpu: Gpu) -> str | None:
    """lspci shows these GPUs as PCIe devices, for control; their copies go over NVLink, which it does not show."""
    name = gpu.name or (function.name if function else None)
    vendor, device = (function.vendor_id, function.device_id) if function else (None, None)
    return (
        f"NVLink between GPU and CPU ({name} on a POWER host)"
        if _is_power(machine) and has_nvlink_to_power(vendor, device, name)
        else None
    )
