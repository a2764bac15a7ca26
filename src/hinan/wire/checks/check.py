"""What is wrong with the path of a checkpoint, with evidence, effect and fix.

Owns:      the rules beside those on links (`check_links`, `check_legs`), and the order of all. Each looks at hops that
           carry a checkpoint, never at the rest of the tree.
Promises:  no alarm for a management port, SrcValid, SYS on Grace, or a remote node that nobody measured.
"""

from __future__ import annotations

from collections.abc import Iterator

from hinan.wire.checks import check_legs, check_links, effects
from hinan.wire.checks.case import IMPOSSIBLE_RATIO, PROVEN_RATIO, Case, Question, judged
from hinan.wire.checks.findings import Finding
from hinan.wire.checks.measured import best_measurement
from hinan.wire.facts.address import short_address
from hinan.wire.facts.iommu_mode import iommu_before
from hinan.wire.facts.link import ASSUMED_MPS_BYTES
from hinan.wire.facts.model import Gpu, IommuMode, Machine, Role
from hinan.wire.facts.placement import has_all_nodes, in_one_socket, node_for_gpu
from hinan.wire.paths.path import Path, mps_of, path_ceiling, path_up
from hinan.wire.paths.peer import redirecting_ports, same_switch
from hinan.wire.paths.transport import coherent_link_of, is_c2c


def check_gpu(machine: Machine, gpu: Gpu, question: Question) -> tuple[Finding, ...]:
    """Findings for one GPU and its drive and NIC, worst evidence first."""
    machine = judged(machine, question)
    return (*_of_gpu(machine, gpu, question), *check_legs.widths(machine, (gpu,), question))


def check_machine(machine: Machine, question: Question) -> tuple[Finding, ...]:
    """Findings for every GPU; what holds for the whole machine, or of what several GPUs use, is told once."""
    machine = judged(machine, question)
    found = [f for gpu in machine.gpus for f in _of_gpu(machine, gpu, question)]
    found += check_legs.widths(machine, machine.gpus, question)
    if not machine.gpus and question.state_bytes is not None:
        found += _short_nodes(machine, question.state_bytes)
    seen: dict[tuple[str, int | None, str | None, str], Finding] = {}
    for finding in found:
        gpu = finding.gpu if finding.at is not None else None
        seen.setdefault((finding.code, gpu, finding.at, finding.evidence), finding)
    return tuple(seen.values())


def _of_gpu(machine: Machine, gpu: Gpu, question: Question) -> tuple[Finding, ...]:
    """What is wrong on one GPU's own way, worst evidence first."""
    path = path_up(machine, gpu.address) if gpu.address else Path((), False)
    coherent = coherent_link_of(machine, gpu)
    ceiling, as_built = (None if coherent else path_ceiling(path, as_built=alone)[0] for alone in (False, True))
    measured = best_measurement(machine, gpu, node_for_gpu(machine, gpu.index).near)
    proven = bool(measured and ceiling and PROVEN_RATIO * ceiling <= measured.bytes_per_s <= IMPOSSIBLE_RATIO * ceiling)
    case = Case(
        machine=machine, gpu=gpu, path=path, question=question, ceiling=ceiling, as_built=as_built, coherent=coherent,
        proven=proven, mps_bytes=mps_of(path.hops) or ASSUMED_MPS_BYTES,
    )  # fmt: skip
    if gpu.off_bus is not None:
        return tuple(_off_bus(case))  # whatever else is told of it is of another day
    found = [*_node(case), *_ram(case), *_iommu(case), *_gds(case), *_acs(case)]
    if coherent is None:
        found = [
            *check_links.measured(case),
            *check_links.measured_with_all(case),
            *check_links.payloads(case),
            *check_links.widths(case),
            *check_links.speeds(case),
            *check_links.present(case),
            *check_links.suspects(case),
            *check_links.shared(case),
            *found,
        ]
    return tuple(found)


def _off_bus(case: Case) -> Iterator[Finding]:
    yield case.finding(
        "gpu-off-bus", case.gpu.address, case.gpu.off_bus or "",
        "it has fallen off the bus, or sleeps (D3cold): nothing can be copied from it, and its rank hangs or dies",
        "look for Xid 79 and AER errors in dmesg; drain the node, power-cycle it, reseat the card. A dump that was cut or "
        "filtered says the same: then take it whole",
    )  # fmt: skip


def _node(case: Case) -> Iterator[Finding]:
    placement = node_for_gpu(case.machine, case.gpu.index)
    buffer = case.question.buffers.get(case.gpu.address or "", case.question.buffer_node)
    if buffer is None or placement.node is None or buffer in placement.near:
        return
    state = case.question.state_bytes
    near = in_one_socket(case.machine, placement.node, buffer)
    cost, effect_s = effects.remote(
        case.machine, case.gpu, placement.node, buffer, case.ceiling, state, in_one_socket=bool(near)
    )
    way = {
        True: "each byte goes to another node of the same socket",
        False: "each byte crosses the socket link",
        None: "each byte goes to another node, of the same socket or another, which is not told",
    }[near]
    yield case.finding(
        "wrong-numa-node", case.gpu.address, f"buffer on node {buffer}, GPU on node {placement.node} ({placement.why})",
        f"{way}: {cost}",
        f"bind the buffer to node {placement.node} before first touch; pinning does not move pages", effect_s,
    )  # fmt: skip


def _ram(case: Case) -> Iterator[Finding]:
    """All ranks of a node evacuate into the same memory. Slots that a run has made already take no more of it."""
    machine, state = case.machine, case.question.state_bytes
    lands = {gpu.index: _lands_on(case.question, machine, gpu) for gpu in machine.gpus if gpu.off_bus is None}
    node = next((n for n in machine.nodes if n.index == lands.get(case.gpu.index)), None)
    if node is None or node.free_bytes is None or state is None:
        return
    ranks = sum(where == node.index for where in lands.values())
    if ranks * state <= node.free_bytes:
        return
    asked = f"{state / 1e9:.1f} GB are asked" if ranks == 1 else (
        f"{ranks} GPUs evacuate {state / 1e9:.1f} GB each to it, {ranks * state / 1e9:.1f} GB together"
    )  # fmt: skip
    yield case.finding(
        "ram-short", None, f"node {node.index} has {node.free_bytes / 1e9:.1f} GB free, {asked}",
        "pinning fails or takes pages of another node", "free the page cache first, or evacuate in a ring",
    )  # fmt: skip


def _lands_on(question: Question, machine: Machine, gpu: Gpu) -> int | None:
    """The node that must still have room for this GPU's state; None: unknown, or a slot is made already."""
    if gpu.address in question.buffers:
        return None
    return question.buffer_node if question.buffer_node is not None else node_for_gpu(machine, gpu.index).node


def _short_nodes(machine: Machine, state_bytes: int) -> list[Finding]:
    """Without a GPU nobody says which node is meant: a finding only if no node has room."""
    told = [(n.free_bytes, n.index) for n in machine.nodes if n.free_bytes is not None]
    if not told or max(told)[0] >= state_bytes or len(told) < len(machine.nodes) or not has_all_nodes(machine):
        return []
    free, index = max(told)
    return [
        Finding(
            code="ram-short", gpu=None, at=None,
            evidence=f"node {index} has {free / 1e9:.1f} GB free, {state_bytes / 1e9:.1f} GB are asked",
            effect="pinning fails or takes pages of another node", effect_s=None,
            fix="free the page cache first, or evacuate in a ring",
        )
    ]  # fmt: skip


def _iommu(case: Case) -> Iterator[Finding]:
    mode = iommu_before(case.machine, case.gpu.address)
    if mode is IommuMode.TRANSLATED and case.coherent is None:
        near = node_for_gpu(case.machine, case.gpu.index).near
        cost, effect_s = effects.translating(case.machine, case.gpu, near, case.ceiling, case.question.state_bytes)
        yield case.finding(
            "iommu-translating", case.gpu.address, "the GPU's IOMMU group translates DMA addresses",
            f"GPUDirect Storage is not guaranteed; page-table walks on IOTLB misses, {cost}",
            "boot with iommu=pt (amd_iommu=pt is no option and is ignored), or off", effect_s,
        )  # fmt: skip
    grace = is_c2c(case.coherent) and case.machine.cpu_arch in (None, "arm64", "aarch64")
    if mode in (IommuMode.PASSTHROUGH, IommuMode.OFF) and grace:
        yield case.finding(
            "iommu-not-translating", case.gpu.address, f"the IOMMU is {mode.value} on a Grace-like machine",
            "GPUDirect Storage expects translation here, the reverse of x86", "boot with iommu.passthrough=0",
        )  # fmt: skip


def _gds(case: Case) -> Iterator[Finding]:
    gds = case.machine.gds
    if gds is None or not gds.compat_mode:
        return
    proof = best_measurement(case.machine, case.gpu, (), "gds_write")
    yield case.finding(
        "gds-compat", None, "cuFile compatibility mode is on" + ("" if gds.nvme_supported else "; NVMe is not served"),
        "what cannot go directly bounces through RAM without a word" + ("" if proof is None else "; gdsio cannot tell"),
        "set allow_compat_mode false and measure with gdsio -x 0; only that is proof",
    )  # fmt: skip


def _acs(case: Case) -> Iterator[Finding]:
    if case.gpu.address is None:
        return
    for peer in same_switch(case.machine, case.gpu.address, (Role.NVME, Role.NIC)):
        ports = redirecting_ports(case.machine, case.gpu.address, peer.address)
        if ports:
            names = " ".join(short_address(port) for port in ports)
            yield case.finding(
                "acs-redirect", ports[0], f"ACS redirect is on at {names}, on the way to {short_address(peer.address)}",
                "peer-to-peer traffic goes up to the root complex and back, and shares the uplink",
                "pci=disable_acs_redir= for these ports (not in a VM host: there ACS isolates, use ATS)",
                effects.redirected(case.machine, case.gpu.address, peer.address, case.question.state_bytes),
            )  # fmt: skip
