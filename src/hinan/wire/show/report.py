"""The answer to `hinan wire`: one GPU's path, its figures and what each figure is.

Owns:      what goes into an `answer`; `labels` says of each figure which of five words it is.
Promises:  `seconds` is the state at the ceiling: nobody will be faster. A GPU that does not answer on the bus has no rate,
           and no link has one for a GPU that reaches RAM otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping

from hinan.wire.checks.at_once import overfilled, overfilled_words
from hinan.wire.checks.case import Question, judged
from hinan.wire.checks.check import check_gpu, check_machine
from hinan.wire.checks.measured import best_measurement, measured_at_once
from hinan.wire.checks.notes import NO_ADDRESS, notes_for
from hinan.wire.facts.address import short_address
from hinan.wire.facts.iommu_mode import iommu_before
from hinan.wire.facts.link import ASSUMED_MPS_BYTES
from hinan.wire.facts.model import Function, Gpu, Machine, Port, Role
from hinan.wire.facts.placement import node_for_gpu
from hinan.wire.paths.ends import links_of
from hinan.wire.paths.legs import Leg, devices_of, direct, from_ram, via_ram
from hinan.wire.paths.path import Path, mps_of, path_ceiling, path_up, sharers
from hinan.wire.paths.rail import nic_for_gpu
from hinan.wire.paths.shares import known_shares, share_label, shares_at_once
from hinan.wire.paths.transport import coherent_link_of
from hinan.wire.show.answer import Hop, LegReport, Named, Report


def report_gpu(machine: Machine, gpu: Gpu, question: Question) -> Report:
    """The report of one GPU."""
    machine = judged(machine, question)
    path = path_up(machine, gpu.address) if gpu.address else Path((), False, NO_ADDRESS)
    coherent = coherent_link_of(machine, gpu)
    mps = mps_of(path.hops)
    carries = not coherent and not gpu.off_bus
    ceiling, narrow = path_ceiling(path) if carries else (None, None)
    rates = _rates(path, mps) if carries else {}
    share = known = None
    if not coherent and gpu.address:
        share, known = shares_at_once(machine).get(gpu.address), known_shares(machine).get(gpu.address)
    placement = node_for_gpu(machine, gpu.index)
    measured = best_measurement(machine, gpu, placement.near) if gpu.off_bus is None else None
    together = measured_at_once(machine, gpu) if gpu.off_bus is None else None
    too_much = overfilled(machine, gpu) if carries else None
    mode = iommu_before(machine, gpu.address)
    labels = {
        "numa_node": "reported" if placement.node is not None else "unknown",
        "mps": "reported" if mps else "unknown",
        "ceiling_bytes_per_s": "ceiling" if ceiling else "unknown",
        "all_ranks_ceiling_bytes_per_s": share_label(share, ceiling),
        "measured_bytes_per_s": "measured" if measured else "unknown",
        "all_ranks_measured_bytes_per_s": "measured" if together else "unknown",
        "seconds": "ceiling" if ceiling and question.state_bytes is not None else "unknown",
        "reported_bytes_per_s": "reported" if coherent and machine.coherent_bytes_per_s else "unknown",
        "iommu": "reported" if mode else "unknown",
    }
    rate = measured.bytes_per_s if measured else None
    return Report(
        gpu=Named(short_address(gpu.address) if gpu.address else None, gpu.name, gpu.index),
        numa_node=placement.node,
        hops=tuple(_hop(machine, hop, (path.hops[0].address,), rates) for hop in path.hops),
        narrowest=short_address(narrow) if narrow else None,
        ceiling_bytes_per_s=ceiling,
        all_ranks_ceiling_bytes_per_s=share,
        measured_bytes_per_s=rate,
        seconds=_seconds(question, ceiling),
        labels=labels,
        findings=check_gpu(machine, gpu, question),
        near_nodes=placement.near,
        path_complete=path.complete,
        mps_bytes=mps,
        assumed_mps_bytes=None if mps or not ceiling else ASSUMED_MPS_BYTES,
        state_bytes=question.state_bytes,
        as_built_bytes_per_s=path_ceiling(path, as_built=True)[0] if carries else None,
        all_ranks_known_bytes_per_s=known,
        all_ranks_seconds=_seconds(question, share),
        all_ranks_measured_bytes_per_s=together.bytes_per_s if together else None,
        all_ranks_measured_seconds=_seconds(question, together.bytes_per_s if together else None),
        all_ranks_measured_by=together.source if together else None,
        all_ranks_impossible=overfilled_words(machine, too_much) if too_much else None,
        measured_seconds=_seconds(question, rate),
        measured_by=measured.source if measured else None,
        iommu=mode.value if mode else None,
        iommu_groups=machine.has_iommu_groups,
        coherent_link=coherent,
        reported_bytes_per_s=machine.coherent_bytes_per_s if coherent else None,
        nic=nic_for_gpu(machine, gpu.index).nic,
        legs=_legs(machine, gpu, question),
        legs_unknown=_legs_unknown(machine, gpu),
        gpus=sum(each.off_bus is None for each in machine.gpus),
        virtual=machine.virtual,
        sources=machine.sources,
        notes=notes_for(machine, gpu, path, placement, question),
    )


def report_without_gpu(machine: Machine, question: Question) -> Report:
    """The report of a machine on which no GPU is known: everything about one is null."""
    fields = (
        "numa_node",
        "mps",
        "ceiling_bytes_per_s",
        "all_ranks_ceiling_bytes_per_s",
        "measured_bytes_per_s",
        "seconds",
    )
    return Report(
        gpu=None, numa_node=None, hops=(), narrowest=None, ceiling_bytes_per_s=None, all_ranks_ceiling_bytes_per_s=None,
        measured_bytes_per_s=None, seconds=None, labels=dict.fromkeys(fields, "unknown"),
        findings=check_machine(machine, question), near_nodes=(),
        path_complete=False, mps_bytes=None,
        assumed_mps_bytes=None, state_bytes=question.state_bytes, as_built_bytes_per_s=None,
        all_ranks_known_bytes_per_s=None,
        all_ranks_seconds=None, all_ranks_measured_bytes_per_s=None, all_ranks_measured_seconds=None,
        all_ranks_measured_by=None, all_ranks_impossible=None,
        measured_seconds=None, measured_by=None,
        iommu=machine.iommu_mode.value if machine.iommu_mode else None,
        iommu_groups=machine.has_iommu_groups, coherent_link=machine.coherent_link,
        reported_bytes_per_s=None, nic=None, legs=(), legs_unknown=None, gpus=0, virtual=machine.virtual,
        sources=machine.sources,
        notes=("no GPU is known on this machine", *machine.notes),
    )  # fmt: skip


def kind_of(function: Function) -> str:
    """The word for a hop: gpu, nvme, nic, root port, upstream port, downstream port, switch, bridge, endpoint."""
    if function.role in (Role.GPU, Role.NVME, Role.NIC):
        return function.role.value
    if function.role is Role.BRIDGE:
        return "bridge" if function.port in (None, Port.LEGACY) else str(function.port.value)
    return "endpoint"


def _rates(path: Path, mps: int | None) -> dict[str, float | None]:
    """Address of each hop -> ceiling of its link [bytes/s], of which the hop may be either end."""
    return {
        end.address: link.ceiling_bytes_per_s(mps or ASSUMED_MPS_BYTES) for link in links_of(path.hops) for end in link.ends
    }


def _hop(machine: Machine, function: Function, ends: tuple[str, ...], rates: Mapping[str, float | None]) -> Hop:
    """rates: of links that the copy goes over; none where the GPU does not answer, or reaches RAM by another link."""
    link = function.link
    shared = sharers(machine, function.address, *ends)
    return Hop(
        address=short_address(function.address),
        kind=kind_of(function),
        name=function.name,
        cap_gt_s=None if link.suspect else link.cap_gt_s,
        now_gt_s=link.now_gt_s if link.now_gt_s is not None else link.cap_gt_s if link.suspect else None,
        width=link.now_width or link.cap_width,
        cap_width=link.cap_width,
        mps=function.mps_bytes,
        node=function.numa_node,
        shared_with=tuple(short_address(other.address) for other in shared),
        ceiling_bytes_per_s=rates.get(function.address),
    )


def _legs(machine: Machine, gpu: Gpu, question: Question) -> tuple[LegReport, ...]:
    """To the nearest drive and the NIC of its rail, both ways each; none where `_legs_unknown` says why."""
    if gpu.address is None or gpu.off_bus is not None:
        return ()
    found = []
    for device in devices_of(machine, gpu).named:
        ways: tuple[Leg, ...] = (from_ram(machine, device.address),)
        if coherent_link_of(machine, gpu) is None:
            ways = (direct(machine, gpu.address, device.address), via_ram(machine, gpu.address, device.address))
        found += [_leg(machine, leg, question) for leg in ways]
    return tuple(found)


def _legs_unknown(machine: Machine, gpu: Gpu) -> str | None:
    if gpu.off_bus is not None:
        return "the GPU does not answer on the bus"
    return NO_ADDRESS if gpu.address is None else devices_of(machine, gpu).unknown


def _leg(machine: Machine, leg: Leg, question: Question) -> LegReport:
    hops = tuple(machine.functions[address] for address in leg.crossed)
    rates: dict[str, float | None] = {}
    for end in leg.ends:
        rates |= _rates(path_up(machine, end), mps_of(hops))
    return LegReport(
        name=leg.name,
        device=short_address(leg.device),
        hops=tuple(_hop(machine, hop, leg.ends, rates) for hop in hops),
        at_root=leg.at_root,
        narrowest=short_address(leg.narrowest) if leg.narrowest else None,
        ceiling_bytes_per_s=leg.ceiling_bytes_per_s,
        as_built_bytes_per_s=leg.as_built_bytes_per_s,
        seconds=_seconds(question, leg.ceiling_bytes_per_s),
        as_built_seconds=_seconds(question, leg.as_built_bytes_per_s),
        distance=leg.distance,
        why=leg.why,
    )


def _seconds(question: Question, rate: float | None) -> float | None:
    return question.state_bytes / rate if question.state_bytes is not None and rate else None
