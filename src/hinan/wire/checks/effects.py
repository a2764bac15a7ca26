"""What a finding costs in seconds, where a ceiling or a measurement can tell, and in words where none can.

Owns:      the cost of a redirect, of an IOMMU that translates, and of a buffer on another node.
Never:     a figure that nobody measured here: a range seen elsewhere is words, not `effect_s`.
"""

from __future__ import annotations

from collections.abc import Sequence

from hinan.wire.checks.measured import best_measurement
from hinan.wire.facts.model import Gpu, Machine
from hinan.wire.packets.iommu import translations_for
from hinan.wire.paths.legs import redirect_ceilings

REMOTE_TIMES = (0.98, 5.0)
"""Time of a copy to another socket's RAM by that to the near one: smallest and largest seen where both were measured."""


def seconds(state_bytes: int | None, bytes_per_s: float | None) -> float | None:
    """Time of the state at a rate [s]; None when either is unknown."""
    return state_bytes / bytes_per_s if state_bytes is not None and bytes_per_s else None


def more_s(state_bytes: int | None, slow: float | None, fast: float | None) -> float | None:
    """What the state takes longer at the slow rate [s]; None when anything is unknown."""
    at_slow, at_fast = seconds(state_bytes, slow), seconds(state_bytes, fast)
    return at_slow - at_fast if at_slow is not None and at_fast is not None else None


def redirected(machine: Machine, gpu: str, device: str, state_bytes: int | None) -> float | None:
    """The state from GPU to device over the root complex instead of round in the switch, both at their ceilings [s].

    0 where the uplink is as wide: then it costs only those who share the uplink.
    """
    enforced, free = redirect_ceilings(machine, gpu, device)
    return more_s(state_bytes, enforced, free)


def translating(
    machine: Machine, gpu: Gpu, near: Sequence[int], ceiling: float | None, state_bytes: int | None
) -> tuple[str, float | None]:
    """An upper bound [s] from a measurement, with its words; without one the number of translations, and no seconds."""
    measured = best_measurement(machine, gpu, near)
    if measured is not None and ceiling:
        most = more_s(state_bytes, min(measured.bytes_per_s, ceiling), ceiling)
        return f"at most what the measurement ({measured.source}) lacks to the ceiling", most
    if state_bytes is None:
        return "how long they take, only a measurement tells", None
    small, large = (translations_for(state_bytes, leaf) for leaf in (4 << 10, 2 << 20))
    return f"seconds unknown without a measurement: {small:,} translations of 4 KiB pages, or {large:,} of 2 MiB", None


def remote(
    machine: Machine,
    gpu: Gpu,
    near: int,
    far: int,
    ceiling: float | None,
    state_bytes: int | None,
    *,
    in_one_socket: bool = False,
) -> tuple[str, float | None]:
    """Measured on both nodes: the difference [s]; else the range seen elsewhere, in words.

    Args:
        in_one_socket: the nodes are parts of one socket, of which the range that was seen between sockets says nothing.
    """
    at_near, at_far = (best_measurement(machine, gpu, (node,)) for node in (near, far))
    if at_near is not None and at_far is not None and (at_near.numa_node, at_far.numa_node) == (near, far):
        rates = f"{at_far.bytes_per_s / 1e9:.1f} GB/s there, {at_near.bytes_per_s / 1e9:.1f} on the near node"
        return f"measured {rates} ({at_far.source})", more_s(state_bytes, at_far.bytes_per_s, at_near.bytes_per_s)
    if in_one_socket:
        return "what that costs is not known, so measure", None
    at_best = seconds(state_bytes, ceiling)
    least, most = REMOTE_TIMES
    shown = f" (here up to {at_best * (most - 1):+.2f} s)" if at_best is not None else ""
    return f"elsewhere it took {least:g} to {most:g} times as long{shown}, so measure (SuperBench names the node)", None
