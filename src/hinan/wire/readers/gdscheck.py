"""`gdscheck -p`: what GPUDirect Storage could do here. Capability bits, not proof: it pins no GPU page.

Owns:      the few lines a verdict needs: NVMe support, compatibility mode, IOMMU, and each GPU's line.
"""

from __future__ import annotations

import re

from hinan.wire.facts.model import Gds, IommuMode, Machine
from hinan.wire.facts.text import whole_lines

_NVME = re.compile(r"^\s*NVMe\s+: (Supported|Unsupported)\s*$")
_COMPAT = re.compile(r"^\s*properties\.(?:use_compat_mode|allow_compat_mode) : (true|false)\s*$")
_IOMMU = re.compile(r"^\s*IOMMU: (disabled|enabled|Pass-through or enabled)\b", re.I)
_GPU = re.compile(r"^\s*GPU index ([0-9]{1,3}) (.+?) bar:1 bar size \(MiB\):([0-9]{1,9}) (.*?supports? GDS)")


def read(text: str) -> Machine | None:
    """The verdict's inputs; None when the text is no gdscheck output."""
    nvme: bool | None = None
    compat: bool | None = None
    off: bool | None = None
    gpus: dict[int, bool] = {}
    bars: dict[int, int] = {}
    for line in whole_lines(text)[0]:
        if match := _NVME.match(line):
            nvme = match[1] == "Supported"
        elif match := _COMPAT.match(line):
            compat = match[1] == "true"
        elif match := _IOMMU.match(line):
            off = match[1].lower() == "disabled"
        elif match := _GPU.match(line):
            gpus[int(match[1])] = "not" not in match[4]
            bars[int(match[1])] = int(match[3]) << 20
    if nvme is None and compat is None and not gpus:
        return None
    gds = Gds(nvme_supported=nvme, compat_mode=compat, iommu_off=off, gpus_supported=gpus, bar1_bytes=bars)
    return Machine(gds=gds, iommu_mode=IommuMode.OFF if off else None, sources=("gdscheck -p",))
