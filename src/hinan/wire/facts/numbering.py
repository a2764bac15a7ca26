"""Which GPU a tool means by a number or a name.

Owns:      counting per vendor (`nvidia-smi`, CUDA and NVML see NVIDIA's GPUs only, ROCm AMD's), and telling whether two
           names are of different products.
Promises:  "different" only where both names tell a model and have none in common: a chip's and a card's name, or a
           longer and a shorter one of the same model, are not.
Relies on: `nvidia-smi` and NVML counting in PCI address order. CUDA's numbers are those only by default.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hinan.wire.facts.identity import AMD_GPU, NVIDIA
from hinan.wire.facts.model import Gpu

_VENDORS = (
    (re.compile(r"\bNVIDIA\b|\bTesla\b|\bGeForce\b|\bQuadro\b", re.I), NVIDIA),
    (re.compile(r"\bAMD\b|\bRadeon\b|\bInstinct\b", re.I), AMD_GPU),
)
_MODEL = re.compile(
    r"\b(?!(?:SXM|HBM|MIG|GDDR|PCIE?|NVL|REV)[ -]?[0-9])([A-Z]{1,3})[ -]?([0-9]{1,4})(?![0-9]|[ -]?GB)", re.I
)

_BARE = re.compile(r"(?<![A-Z0-9_-])[0-9]{3,4}(?![0-9]|[ -]?GB)", re.I)
_MANY = re.compile(r"\bSeries\b|\bDevice [0-9a-f]{4}\b", re.I)  # no model's name


def vendor_of_gpu_name(name: str | None) -> int | None:
    """The vendor that a tool's name for a GPU tells, if it does."""
    return next((vendor for pattern, vendor in _VENDORS if pattern.search(name or "")), None)


def models_of(name: str | None) -> frozenset[str]:
    """Model numbers in a name, without the letters behind them; "6800/6900 XT" are two.

    Example:
        >>> sorted(models_of("GA102GL [RTX A6000]")), sorted(models_of("Tesla V100-PCIE-32GB"))
        (['A6000', 'GA102'], ['V100'])
    """
    if name is None or _MANY.search(name):
        return frozenset()
    return frozenset(f"{word}{number}".upper() for word, number in _MODEL.findall(name)) | frozenset(_BARE.findall(name))


def surely_differ(one: str | None, *others: str | None) -> bool:
    """Is a GPU of the first name no GPU that has the other names?"""
    mine, theirs = models_of(one), frozenset().union(*map(models_of, others))
    return bool(mine) and bool(theirs) and not mine & theirs


def indices_of(gpus: Sequence[Gpu], vendor: int | None) -> dict[int, int]:
    """A tool's numbers -> our indices, for tools of one vendor; GPUs of unknown vendor count as its own.

    Tools count in address order unless a source has their numbers, whatever order another numbers GPUs in (NCCL: that of
    CUDA_VISIBLE_DEVICES).
    """
    mine = _of_vendor(gpus, vendor)
    if is_reordered(gpus, vendor):
        return dict(enumerate(gpu.index for gpu in _as_tools_count(mine)))
    indices = sorted(gpu.index for gpu in mine)
    return {index: index for index in indices} if len(mine) == len(gpus) else dict(enumerate(indices))


def number_of(gpus: Sequence[Gpu], gpu: Gpu, vendor: int | None) -> int | None:
    """The number that tools of this vendor give to a GPU; None if it is of another vendor."""
    return next((number for number, index in indices_of(gpus, vendor).items() if index == gpu.index), None)


def is_reordered(gpus: Sequence[Gpu], vendor: int | None) -> bool:
    """Does a source number the GPUs of a vendor in another order than its tools do?

    Then nobody knows which order a program saw that prints a number only: CUDA's numbers depend on CUDA_VISIBLE_DEVICES.
    """
    mine = _as_tools_count(_of_vendor(gpus, vendor))
    indices = [gpu.index for gpu in mine if gpu.address is not None and gpu.off_bus is None]
    return indices != sorted(indices)


def _as_tools_count(gpus: Sequence[Gpu]) -> list[Gpu]:
    """Those whose place is known first, by the tools' own numbers if all are told; then those that only tools name."""
    numbered = all(gpu.smi_index is not None for gpu in gpus)
    return sorted(
        gpus,
        key=lambda gpu: (
            gpu.address is None or gpu.off_bus is not None,
            gpu.smi_index if numbered else 0,
            gpu.address or "",
            gpu.index,
        ),
    )


def _of_vendor(gpus: Sequence[Gpu], vendor: int | None) -> list[Gpu]:
    return [gpu for gpu in gpus if vendor is None or gpu.vendor_id in (vendor, None)]
