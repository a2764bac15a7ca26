"""What stands between the DMA addresses of one sender and physical addresses.

Owns:      whose word counts: that of the sender's own IOMMU group, since one machine translates for a drive and passes a
           GPU through.
Promises:  None where nobody tells, and where sources contradict each other. A mode is told of other senders than GPUs
           only by their own group, or where the IOMMU is off for all.
"""

from __future__ import annotations

from hinan.wire.facts.model import IommuMode, Machine, Role

UNKNOWN_MODE = "on (groups exist), mode unknown"


def iommu_before(machine: Machine, sender: str | None) -> IommuMode | None:
    """The mode in front of the function at a PCI address; sender None: what is told of the machine's GPUs."""
    function = machine.functions.get(sender or "")
    if "iommu_mode" in machine.disputed or (function is not None and "iommu_mode" in function.disputed):
        return None
    if function is not None and function.iommu_mode is not None:
        return function.iommu_mode
    of_gpus = function is None or function.role is Role.GPU
    return machine.iommu_mode if of_gpus or machine.iommu_mode is IommuMode.OFF else None
