"""What a reader of the report must know that is no fault: assumptions, limits of the source, idle links.

Owns:      these sentences.
Promises:  every figure that rests on an assumption has its sentence here. A sentence on one function ends with its address.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hinan.wire.checks.case import IMPOSSIBLE_RATIO, PROVEN_RATIO, Question, judged
from hinan.wire.checks.measured import (
    at_once_counts,
    best_measurement,
    only_elsewhere,
    strangers,
    too_small_bytes,
    without_place,
)
from hinan.wire.facts.address import parse_address, short_address
from hinan.wire.facts.families import TUNNEL_GT_S, is_tunnel, max_gt_s_of_gpu
from hinan.wire.facts.identity import NVIDIA, gpu_name
from hinan.wire.facts.link import ASSUMED_MPS_BYTES
from hinan.wire.facts.model import Gpu, Machine, Role
from hinan.wire.facts.numbering import number_of
from hinan.wire.facts.placement import Placement, node_for_gpu
from hinan.wire.paths.ends import links_of
from hinan.wire.paths.path import Path, mps_of, path_ceiling, path_up
from hinan.wire.paths.shares import unknown_shared
from hinan.wire.paths.transport import coherent_link_of, shared_memory_of

DRAM = "the DRAM write limit of the node is not in any file; measure all_to_host_memcpy_ce"
NO_ADDRESS = "no source tells the GPU's address"


def notes_for(machine: Machine, gpu: Gpu, path: Path, placement: Placement, question: Question) -> tuple[str, ...]:
    """Sentences for one GPU, those of the machine's sources last."""
    found = [
        *_transport(machine, gpu),
        *_links(machine, gpu, path, placement, question),
        *_stopwatch(machine, gpu, placement),
        *_place(placement, path),
        *_at_once(machine),
        *_storage(machine, gpu),
        *_peers(machine, gpu),
    ]
    return tuple(dict.fromkeys([*found, *machine.notes]))


def union(notes: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """What is to be said of several GPUs, each sentence once; of one that ends in an address, with all addresses."""
    places: dict[str, list[str]] = {}
    for note in dict.fromkeys(note for each in notes for note in each):
        said, _, where = note.rpartition(": ")
        if said and parse_address(where) is not None:
            places.setdefault(said, []).append(where)
        else:
            places.setdefault(note, [])
    return tuple(_with_places(said, where) for said, where in places.items())


def _with_places(said: str, places: list[str]) -> str:
    more = f" and {len(places) - 4} more" if len(places) > 4 else ""
    return f"{said}: {' '.join(places[:4])}{more}" if places else said


def notes_of_machine(machine: Machine, question: Question) -> tuple[str, ...]:
    """What a reader of findings must know: the notes of every GPU, without the one that holds for any machine."""
    machine = judged(machine, question)
    each = []
    for gpu in machine.gpus:
        path = path_up(machine, gpu.address) if gpu.address else Path((), False, NO_ADDRESS)
        each.append(notes_for(machine, gpu, path, node_for_gpu(machine, gpu.index), question))
    return tuple(note for note in union([*each, machine.notes]) if note != DRAM)


def _transport(machine: Machine, gpu: Gpu) -> Iterator[str]:
    coherent = coherent_link_of(machine, gpu)
    shared = shared_memory_of(machine, gpu)
    if coherent is not None and coherent == shared:
        yield f"{coherent}: the GPU's memory is host RAM, no link lies between them, so no ceiling is claimed"
    elif coherent is not None:
        yield f"{coherent}: RAM is reached over it, the PCIe formula says nothing, so no ceiling is claimed"
    if machine.virtual:
        yield f"as told by the VM ({'; '.join(machine.virtual)}): the physical wire may differ"


def _links(machine: Machine, gpu: Gpu, path: Path, placement: Placement, question: Question) -> Iterator[str]:
    if not path.complete:
        yield f"the path is not known up to the root complex, {path.why}"
    if not path.hops or coherent_link_of(machine, gpu):
        return
    shared = unknown_shared(machine).get(gpu.address or "")
    if shared is not None:
        said = "nobody tells the rate of a link that several GPUs share, so what each gets is unknown"
        yield f"{said}: {short_address(shared)}"
    ceiling, _ = path_ceiling(path)
    measured = best_measurement(machine, gpu, placement.near)
    tunnels = [short_address(hop.address) for hop in path.hops if is_tunnel(hop)]
    if tunnels:
        yield (
            f"a Thunderbolt or USB4 tunnel is on the path ({' '.join(tunnels)}): its ports say {TUNNEL_GT_S:g} GT/s "
            "whatever the cable carries, so the ceiling is unknown; measure"
        )
    elif ceiling is None:
        yield f"speed or width of the GPU's link is unknown, so the ceiling is: {short_address(path.hops[0].address)}"
    elif measured is not None and measured.bytes_per_s > ceiling * IMPOSSIBLE_RATIO:
        yield (
            f"measured ({measured.source}) is above the ceiling: a link is told below its capability, or this is another "
            "machine's log"
        )
    elif mps_of(path.hops) is None:
        yield "MPS is not told: the ceiling assumes 256 B (128 B: 8 % less, 512 B: 4 % more)"
    for link in links_of(path.hops):
        cap, now = link.cap_gt_s, link.now_gt_s
        if link.at_gpu and cap and now and now < cap and not question.under_load:
            yield f"runs at {now:g} of {cap:g} GT/s now, idle: {short_address(link.ends[0].address)}"
        short = link.present_shortfall(mps_of(path.hops) or ASSUMED_MPS_BYTES, busy=False)
        proven = measured is not None and ceiling is not None and measured.bytes_per_s >= PROVEN_RATIO * ceiling
        if link.at_gpu and short is not None and not question.under_load and not proven:
            said = f"carries {short[0] / 1e9:.1f} of {short[1] / 1e9:.1f} GB/s now: idle, or speed or lanes are lost"
            yield f"{said}; read it under load, or measure: {short_address(link.ends[0].address)}"
        for gpu_end in (end for end in link.ends if end.role is Role.GPU):
            where, limit = short_address(gpu_end.address), max_gt_s_of_gpu(gpu_end.vendor_id, gpu_end.device_id)
            if gpu_end.link.doubtful:
                yield f"told at its idle speed, its capability is unknown: {where}"
            elif limit is not None and gpu_end.link.cap_gt_s is not None and gpu_end.link.cap_gt_s > limit:
                told = f"{gpu_end.link.cap_gt_s:g} GT/s"
                yield f"told at {told}, though GPUs of this family do {limit:g}; a ceiling above that is none: {where}"
    if any(link.by_present for link in links_of(path.hops)):
        yield "hwloc tells the present speed of links, not their capability; an idle link reads low"


def _stopwatch(machine: Machine, gpu: Gpu, placement: Placement) -> Iterator[str]:
    for m in only_elsewhere(machine, gpu, placement.near):
        yield (
            f"{m.source} measured {m.bytes_per_s / 1e9:.2f} GB/s with the buffer on node {m.numa_node}, the GPU is on node "
            f"{placement.node}: not the rate of its own way"
        )
    for m in strangers(machine, gpu):
        yield f"{m.source} measured another GPU ({m.gpu_name}; this one is {_known_as(machine, gpu)}): not taken"
    for source in without_place(machine):
        yield f"{source} numbers GPUs, and a topology numbers them in another order than their addresses: not taken"
    largest = too_small_bytes(machine, gpu)
    if largest is not None:
        yield (
            f"copies of at most {largest:,} bytes were measured: too small to fill the link, so they say nothing of its "
            "rate (a log that was cut?)"
        )


def _known_as(machine: Machine, gpu: Gpu) -> str:
    function = machine.functions.get(gpu.address or "")
    listed = gpu_name(function.vendor_id, function.device_id) if function else None
    return listed or gpu.name or "of another vendor"


def _place(placement: Placement, path: Path) -> Iterator[str]:
    own = path.hops[0].numa_node if path.hops else None
    above = sorted({hop.numa_node for hop in path.hops[1:] if hop.numa_node is not None} - {own, *placement.near})
    if own is not None and above and own not in (hop.numa_node for hop in path.hops[1:]):
        nodes = " and ".join(map(str, above))
        yield (
            f"told to be on node {own}, and ports above it on node {nodes}: one is told wrongly; measure with the buffer on"
            f" each: {short_address(path.hops[0].address)}"
        )
    if placement.node is None:
        yield f"NUMA node unknown: {placement.why}"
    elif "no CPUs" in placement.why:
        yield placement.why


def _at_once(machine: Machine) -> Iterator[str]:
    measured, evacuating = at_once_counts(machine)
    if 0 < measured < evacuating:
        yield f"copies of {measured} of {evacuating} GPUs at once were measured: not the rate when all evacuate"
    if not measured or measured < evacuating:
        yield DRAM


def _storage(machine: Machine, gpu: Gpu) -> Iterator[str]:
    gds = machine.gds
    proof = best_measurement(machine, gpu, (), "gds_write")
    if proof is not None:
        where = short_address(gpu.address) if gpu.address else f"GPU {gpu.index}"
        yield f"GDS: measured {proof.bytes_per_s / (1 << 30):.1f} GiB/s write ({proof.source}): {where}"
    elif gds is not None and gds.nvme_supported and gds.gpus_supported.get(_number(machine, gpu), True):
        yield "GDS: possible, unproven (gdscheck tells capability; gdsio -x 0 with compatibility mode off is proof)"
    elif gds is not None and gds.nvme_supported is False:
        yield "GDS: nvidia-fs does not serve NVMe here; a write would go through RAM"


def _number(machine: Machine, gpu: Gpu) -> int:
    """gdscheck's number of this GPU; ours where it counts none."""
    number = number_of(machine.gpus, gpu, NVIDIA)
    return gpu.index if number is None else number


def _peers(machine: Machine, gpu: Gpu) -> Iterator[str]:
    redirecting = sum(acs.redirects for acs in machine.acs_unplaced)
    if machine.acs_unplaced and not redirecting:
        yield f"ACS redirect is off on all {len(machine.acs_unplaced)} ports listed"
    elif redirecting:
        yield f"ACS redirect is on at {redirecting} of {len(machine.acs_unplaced)} ports listed without address"
