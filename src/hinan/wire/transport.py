"""Does this GPU reach RAM over PCIe at all?

Owns:      the verdict "NVLink-C2C or POWER NVLink", from device IDs, names and what the sources say.
Promises:  where it holds no PCIe ceiling is claimed: 295 to 330 GB/s is right there, not a wrong measurement.
"""

from __future__ import annotations

from hinan.wire.identity import coherent_evidence
from hinan.wire.model import Gpu, Machine


def coherent_link_of(machine: Machine, gpu: Gpu | None) -> str | None:
    """Evidence that the GPU reaches host RAM by a coherent NVLink; None: as far as told, by PCIe."""
    if gpu is None:
        return machine.coherent_link
    function = machine.functions.get(gpu.address or "")
    own = function.coherent_link if function else None
    return own or machine.coherent_link or coherent_evidence(function.device_id if function else None, gpu.name)
