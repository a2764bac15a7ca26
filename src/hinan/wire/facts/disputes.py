"""What sources contradict each other on: how it is kept, and the sentence that names it.

Owns:      the record (`Disputed`: a fact -> what was said of it) and its words.
Promises:  a fact stands in the record or has a value, never both; what was disputed once stays so in a capture file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from hinan.wire.facts.address import short_address
from hinan.wire.facts.model import Machine

Disputed = dict[str, tuple[str, ...]]

PLACE_OF = "place of "
"""Before the name of an interface that sources put at different addresses."""

_WORDS = {
    "device_id": "device", "class_code": "class", "numa_node": "NUMA node", "mps_bytes": "MPS", "acs": "ACS",
    "cap_gt_s": "link speed", "cap_width": "link width", "buses": "buses behind it", "iommu_mode": "IOMMU",
    "gpudirect": "GPUDirect", "cpus": "CPUs", "size": "memory", "packages": "sockets", "cpu_arch": "CPU architecture",
    "parent": "place below", "memory_node": "node of its own memory", "relations": "nearness of",
}  # fmt: skip


def contradicted(told: Iterable[str], before: Iterable[str] = ()) -> tuple[str, ...]:
    """What sources say of one fact, sorted, if it is not one and the same; `before`: what was said of it earlier."""
    values = {*told, *before}
    return tuple(sorted(values)) if len(values) > 1 else ()


def note(machine: Machine) -> tuple[str, ...]:
    """One sentence that names what the sources contradict each other on; the first few places of each kind."""
    places: dict[str, list[str]] = {}
    for what, where in _all(machine):
        places.setdefault(what, []).append(where)
    if not places:
        return ()
    told = "; ".join(f"{what}{_where(where)}" for what, where in places.items())
    return (f"sources contradict each other: {told}. Unknown there; are they of one machine, and of one day?",)


def _all(machine: Machine) -> Iterator[tuple[str, str]]:
    records: list[tuple[str, Mapping[str, tuple[str, ...]]]] = [
        *((short_address(address), function.disputed) for address, function in sorted(machine.functions.items())),
        *((f"GPU {gpu.index}", gpu.disputed) for gpu in machine.gpus),
        *((f"node {node.index}", node.disputed) for node in machine.nodes),
        ("", machine.disputed),
    ]
    for where, disputed in records:
        for name, values in disputed.items():
            yield f"{_WORDS.get(name, name)} {' or '.join(values)}", where


def _where(places: list[str]) -> str:
    shown = [place for place in places[:3] if place]
    more = f" and {len(places) - 3} more" if len(places) > 3 else ""
    return f" at {' '.join(shown)}{more}" if shown else ""
