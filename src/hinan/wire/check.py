"""What is wrong with the path of a checkpoint, with evidence, effect and fix.

Owns:      the rules. Each looks at hops that carry a checkpoint, never at the rest of the tree.
Promises:  no alarm for an idle GPU's link, a gen 4 drive in a gen 5 slot, a management port, SrcValid, SYS on Grace,
           or a remote node that nobody measured.
Relies on: speeds dropping when idle and widths not; a measurement at 85 % of the ceiling proving the link whole.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from hinan.wire import effects
from hinan.wire.address import short_address
from hinan.wire.findings import Finding
from hinan.wire.measured import best_measurement
from hinan.wire.model import Function, Gpu, IommuMode, Machine, Measurement, Port, Role
from hinan.wire.path import Path, fair_shares, path_ceiling, path_up
from hinan.wire.peer import redirecting_ports, same_switch
from hinan.wire.placement import node_for_gpu
from hinan.wire.transport import coherent_link_of

PROVEN_RATIO = 0.85
IMPOSSIBLE_RATIO = 1.05  # MPS is often assumed, and 512 bytes instead of 256 are 4.5 % more


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked about: bytes of one rank's state, where its buffer lies, whether the links were busy when read.

    buffers: PCI address of a GPU -> node of its buffer; `buffer_node` is for the GPUs that are not in it.
    """

    state_bytes: int | None = None
    buffer_node: int | None = None
    buffers: dict[str, int] = {}
    under_load: bool = False


class _Case(msgspec.Struct, frozen=True, kw_only=True):
    machine: Machine
    gpu: Gpu
    path: Path
    question: Question
    ceiling: float | None
    proven: bool

    def loss_s(self, slow: float | None) -> float | None:
        return effects.more_s(self.question.state_bytes, slow, self.ceiling)

    def finding(
        self, code: str, at: str | None, evidence: str, effect: str, fix: str, effect_s: float | None = None
    ) -> Finding:
        return Finding(
            code=code, gpu=self.gpu.index, at=short_address(at) if at else None, evidence=evidence, effect=effect,
            effect_s=effect_s, fix=fix,
        )  # fmt: skip


def check_gpu(machine: Machine, gpu: Gpu, question: Question) -> tuple[Finding, ...]:
    """Findings for one GPU, worst evidence first."""
    path = path_up(machine, gpu.address) if gpu.address else Path((), False)
    coherent = coherent_link_of(machine, gpu)
    ceiling = None if coherent else path_ceiling(path)[0]
    measured = best_measurement(machine, gpu, node_for_gpu(machine, gpu.index).node)
    proven = bool(measured and ceiling and PROVEN_RATIO * ceiling <= measured.bytes_per_s <= IMPOSSIBLE_RATIO * ceiling)
    case = _Case(machine=machine, gpu=gpu, path=path, question=question, ceiling=ceiling, proven=proven)
    if gpu.off_bus is not None:
        return tuple(_off_bus(case))  # whatever else is told of it is of another day
    found = [*_node(case), *_ram(case), *_iommu(case, coherent is not None), *_gds(case), *_acs(case)]
    if coherent is None:
        found = [
            *_measured(case),
            *_payloads(case),
            *_widths(case),
            *_speeds(case),
            *_suspects(case),
            *_shared(case),
            *found,
        ]
    return tuple(found)


def check_machine(machine: Machine, question: Question) -> tuple[Finding, ...]:
    """Findings for every GPU; what holds for the whole machine is told once."""
    found = [f for gpu in machine.gpus for f in check_gpu(machine, gpu, question)]
    if not machine.gpus and question.state_bytes is not None:
        found += _short_nodes(machine, question.state_bytes)
    seen: dict[tuple[str, int | None, str | None, str], Finding] = {}
    for finding in found:
        gpu = finding.gpu if finding.at is not None else None
        seen.setdefault((finding.code, gpu, finding.at, finding.evidence), finding)
    return tuple(seen.values())


def _off_bus(case: _Case) -> Iterator[Finding]:
    yield case.finding(
        "gpu-off-bus", case.gpu.address, case.gpu.off_bus or "",
        "it has fallen off the bus, or sleeps (D3cold): nothing can be copied from it, and its rank hangs or dies",
        "look for Xid 79 and AER errors in dmesg; drain the node, power-cycle it, reseat the card. A dump that was cut or "
        "filtered says the same: then take it whole",
    )  # fmt: skip


def _measured(case: _Case) -> Iterator[Finding]:
    measured = best_measurement(case.machine, case.gpu, node_for_gpu(case.machine, case.gpu.index).node)
    if measured is None or not case.ceiling or case.proven:
        return
    ratio = measured.bytes_per_s / case.ceiling
    if ratio > IMPOSSIBLE_RATIO:
        yield from _too_fast(case, measured, ratio)
        return
    yield case.finding(
        "below-ceiling", case.gpu.address,
        f"measured {measured.bytes_per_s / 1e9:.1f} GB/s ({measured.source}) of {case.ceiling / 1e9:.1f}: {ratio:.0%}",
        "a whole path measures 91 to 97 % of its ceiling",
        "read the links again under load; then measure with the buffer on each NUMA node",
        case.loss_s(measured.bytes_per_s),
    )  # fmt: skip


def _too_fast(case: _Case, measured: Measurement, ratio: float) -> Iterator[Finding]:
    """Not where hwloc tells the present speed of an idle link: there the ceiling is low, and a note says so."""
    if any(hop.link.now_bytes_per_s is not None for hop in case.path.hops):
        return
    yield case.finding(
        "above-ceiling", case.gpu.address,
        f"measured {measured.bytes_per_s / 1e9:.1f} GB/s ({measured.source}), {ratio:.0%} of what the links can carry",
        "nothing is faster than its links: the log is of another machine or GPU, or a link is told wrongly",
        "measure on this machine, or read it again",
    )  # fmt: skip


def _payloads(case: _Case) -> Iterator[Finding]:
    """A port that takes smaller packets than the GPU may send."""
    sent = case.path.hops[0].mps_bytes if case.path.hops else None
    small = [hop for hop in case.path.hops[1:] if sent is not None and hop.mps_bytes is not None and hop.mps_bytes < sent]
    if small:
        yield case.finding(
            "mps-mismatch", small[0].address, f"MPS is {small[0].mps_bytes} bytes there and {sent} at the GPU",
            "a packet above a port's MPS is malformed: it is dropped with an error (AER)",
            "look for malformed TLPs in dmesg; boot with pci=pcie_bus_safe, which sets one MPS that all support",
        )  # fmt: skip


def _peer_of(case: _Case, order: int) -> Function | None:
    """The other end of the hop's link, if on the path: ports facing down meet the hop before, others the next."""
    hops = case.path.hops
    facing_down = hops[order].port in (Port.ROOT, Port.DOWN)
    other = order - 1 if facing_down else order + 1
    if not 0 <= other < len(hops) or hops[order].port in (Port.SWITCH, None):
        return None
    return hops[other]


def _smaller(mine: float | None, other: float | None) -> float | None:
    return min((value for value in (mine, other) if value is not None), default=None)


def _widths(case: _Case) -> Iterator[Finding]:
    told: set[frozenset[str]] = set()
    for order, hop in enumerate(case.path.hops):
        peer = _peer_of(case, order)
        cap = _smaller(hop.link.cap_width, peer.link.cap_width if peer else None)
        now = hop.link.now_width
        ends = frozenset({hop.address, peer.address if peer else hop.address})
        if cap is None or now is None or now >= cap or ends in told:
            continue
        told.add(ends)
        slow = case.ceiling * now / cap if case.ceiling else None
        yield case.finding(
            "width-below-capability", hop.address, f"link runs x{now} of x{int(cap)}",
            "lanes are lost; a width does not drop when idle", "reseat the card or riser, check slot bifurcation",
            case.loss_s(slow),
        )  # fmt: skip


def _speeds(case: _Case) -> Iterator[Finding]:
    """A speed below both ends' capability. Idle GPUs do that; links between switches, or under load, should not."""
    told: set[frozenset[str]] = set()
    for order, hop in enumerate(case.path.hops):
        peer = _peer_of(case, order)
        cap = _smaller(hop.link.cap_gt_s, peer.link.cap_gt_s if peer else None)
        now = hop.link.now_gt_s
        ends = frozenset({hop.address, peer.address if peer else hop.address})
        if cap is None or now is None or now >= cap or ends in told:
            continue
        told.add(ends)
        at_gpu = Role.GPU in (hop.role, peer.role if peer else None)
        if not case.question.under_load and (at_gpu or case.proven):
            continue
        slow = case.ceiling * now / cap if case.ceiling else None
        sure = case.question.under_load
        yield case.finding(
            "speed-below-capability" if sure else "link-suspect", hop.address, f"link runs at {now:g} of {cap:g} GT/s",
            "read under load: a fault" if sure else "idle down-training or a real fault: one reading cannot tell",
            "retrain or reseat; look for AER errors" if sure else "read again under load (--under-load), or measure",
            case.loss_s(slow),
        )  # fmt: skip


def _suspects(case: _Case) -> Iterator[Finding]:
    for order, hop in enumerate(case.path.hops):
        peer = _peer_of(case, order)
        at_gpu = Role.GPU in (hop.role, peer.role if peer else None)
        if not hop.link.suspect or at_gpu or case.proven:
            continue
        told = f"{hop.link.cap_gt_s:g} GT/s" if hop.link.cap_gt_s else f"{(hop.link.now_bytes_per_s or 0) / 1e9:.1f} GB/s"
        yield case.finding(
            "link-suspect", hop.address, f"the source says {told} above a faster GPU",
            "idle down-training or a real fault: one reading cannot tell; not used for the ceiling",
            "read it again while a copy runs, or measure",
        )  # fmt: skip


def _shared(case: _Case) -> Iterator[Finding]:
    gpus = list(case.machine.evacuating)
    address = case.gpu.address
    if address is None or case.ceiling is None or len(gpus) < 2:
        return
    share = fair_shares(case.machine, gpus).get(address)
    if share is None or share >= case.ceiling * 0.999:
        return
    hop, others = _crowded(case, gpus)
    yield case.finding(
        "shared-uplink", hop, f"{others + 1} GPUs evacuate through {short_address(hop) if hop else 'one link'}",
        f"{share / 1e9:.2f} GB/s each when all do at once, {case.ceiling / 1e9:.1f} alone",
        "stagger the ranks of one uplink, or plan with the shared figure", case.loss_s(share),
    )  # fmt: skip


def _crowded(case: _Case, gpus: list[str]) -> tuple[str | None, int]:
    """The hop nearest the root that the most other GPUs cross, and how many."""
    best: tuple[int, str | None] = (0, None)
    for hop in case.path.hops:
        count = sum(hop.address in {h.address for h in path_up(case.machine, g).hops} for g in gpus) - 1
        if count and count >= best[0]:
            best = (count, hop.address)
    return best[1], best[0]


def _node(case: _Case) -> Iterator[Finding]:
    placement = node_for_gpu(case.machine, case.gpu.index)
    buffer = case.question.buffers.get(case.gpu.address or "", case.question.buffer_node)
    if buffer is None or placement.node is None or buffer == placement.node:
        return
    state = case.question.state_bytes
    cost, effect_s = effects.remote(case.machine, case.gpu, placement.node, buffer, case.ceiling, state)
    yield case.finding(
        "wrong-numa-node", case.gpu.address, f"buffer on node {buffer}, GPU on node {placement.node} ({placement.why})",
        f"each byte crosses the socket link: {cost}",
        f"bind the buffer to node {placement.node} before first touch; pinning does not move pages", effect_s,
    )  # fmt: skip


def _ram(case: _Case) -> Iterator[Finding]:
    node = next((n for n in case.machine.nodes if n.index == node_for_gpu(case.machine, case.gpu.index).node), None)
    state = case.question.state_bytes
    if node is None or node.free_bytes is None or state is None or state <= node.free_bytes:
        return
    yield case.finding(
        "ram-short", None, f"node {node.index} has {node.free_bytes / 1e9:.1f} GB free, {state / 1e9:.1f} GB are asked",
        "pinning fails or takes pages of another node", "free the page cache first, or evacuate in a ring",
    )  # fmt: skip


def _short_nodes(machine: Machine, state_bytes: int) -> list[Finding]:
    """Without a GPU nobody says which node is meant: a finding only if no node has room."""
    told = [(n.free_bytes, n.index) for n in machine.nodes if n.free_bytes is not None]
    if not told or max(told)[0] >= state_bytes or len(told) < len(machine.nodes):
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


def iommu_of(machine: Machine, gpu: Gpu) -> IommuMode | None:
    """The mode in front of this GPU: its group's, else the machine's."""
    function = machine.functions.get(gpu.address or "")
    return (function.iommu_mode if function else None) or machine.iommu_mode


def _iommu(case: _Case, coherent: bool) -> Iterator[Finding]:
    mode = iommu_of(case.machine, case.gpu)
    if mode is IommuMode.TRANSLATED and not coherent:
        node = node_for_gpu(case.machine, case.gpu.index).node
        cost, effect_s = effects.translating(case.machine, case.gpu, node, case.ceiling, case.question.state_bytes)
        yield case.finding(
            "iommu-translating", case.gpu.address, "the GPU's IOMMU group translates DMA addresses",
            f"GPUDirect Storage is not guaranteed; page-table walks on IOTLB misses, {cost}",
            "boot with iommu=pt (amd_iommu=pt is no option and is ignored), or off", effect_s,
        )  # fmt: skip
    if mode in (IommuMode.PASSTHROUGH, IommuMode.OFF) and coherent and case.machine.cpu_arch in (None, "arm64", "aarch64"):
        yield case.finding(
            "iommu-not-translating", case.gpu.address, f"the IOMMU is {mode.value} on a Grace-like machine",
            "GPUDirect Storage expects translation here, the reverse of x86", "boot with iommu.passthrough=0",
        )  # fmt: skip


def _gds(case: _Case) -> Iterator[Finding]:
    gds = case.machine.gds
    if gds is None or not gds.compat_mode:
        return
    proof = best_measurement(case.machine, case.gpu, None, "gds_write")
    yield case.finding(
        "gds-compat", None, "cuFile compatibility mode is on" + ("" if gds.nvme_supported else "; NVMe is not served"),
        "what cannot go directly bounces through RAM without a word" + ("" if proof is None else "; gdsio cannot tell"),
        "set allow_compat_mode false and measure with gdsio -x 0; only that is proof",
    )  # fmt: skip


def _acs(case: _Case) -> Iterator[Finding]:
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
