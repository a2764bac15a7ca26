"""The terminal's picture of a report: at most 100 columns, no colour needed to read it.

Owns:      the layout. Every figure stands beside its word: ceiling, measured, reported, unknown.
Never:     computes; what is not in the report or a leg is not printed.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from hinan.wire.checks.findings import Finding
from hinan.wire.checks.notes import DRAM, union
from hinan.wire.facts.address import short_address
from hinan.wire.facts.iommu_mode import UNKNOWN_MODE
from hinan.wire.facts.model import Machine, Role
from hinan.wire.paths.legs import Leg, from_ram
from hinan.wire.paths.shares import SHARING_UNKNOWN
from hinan.wire.show.answer import Hop, Report
from hinan.wire.show.figures import BY_CAPABILITY, figures_of
from hinan.wire.show.render_nodes import free_words, gb, node_lines
from hinan.wire.show.segments import UNTOLD, Segment, segments_of

WIDTH = 100


def clip(line: str, width: int = WIDTH) -> str:
    """At most `width` columns; what is cut shows as …"""
    return line if len(line) <= width else line[: width - 1] + "…"


def wrapped(mark: str, text: str) -> list[str]:
    """A paragraph under a one-character mark."""
    return textwrap.wrap(text, WIDTH, initial_indent=f"{mark} ", subsequent_indent="  ", break_on_hyphens=False)


def noted(notes: Iterable[str]) -> list[str]:
    """What a reader should know, one paragraph each."""
    return [line for note in notes for line in wrapped("i", note)]


def gigabytes(rate: float | None) -> str:
    """A rate in GB/s, three digits that count; "unknown" for None."""
    if rate is None:
        return "unknown"
    value = rate / 1e9
    return f"{value:.1f} GB/s" if value >= 10 else f"{value:.2f} GB/s"


def seconds(duration_s: float | None) -> str:
    """A duration with two decimals, as plans need it; empty for None."""
    return "" if duration_s is None else f"{duration_s:.2f} s" if duration_s < 1000 else f"{duration_s:.0f} s"


def render(report: Report, machine: Machine) -> list[str]:
    """All lines for one GPU."""
    lines = [*_tree(report, machine), "", *_figures(report), ""]
    for finding in report.findings:
        lines += wrapped("!", sentence(finding))
    lines += noted(report.notes)
    return [clip(line.rstrip()) for line in lines]


def _tree(report: Report, machine: Machine) -> list[str]:
    gpu = report.gpu
    assert gpu is not None
    near = report.near_nodes
    where = f"node{'s' if len(near) > 1 else ''} {_runs(near)} (reported)" if near else "node unknown"
    head = f"GPU {gpu.index}  {gpu.address or 'address unknown'}  {gpu.name or ''}".rstrip()
    lines = [f"{head[: WIDTH - 24]:<{WIDTH - 24}}  {where}"]
    for order, segment in enumerate(segments_of(report)):
        hop = segment.hop
        if order:
            lines.append(f"  {hop.address:<13} {hop.kind}{_own_end(hop, report.hops[order - 1])}")
        if segment.kind == "link":
            lines.append(f"  | {_link(hop, segment, report)}{'   <- narrowest' if segment.narrow else ''}")
        if segment.kind == "switch":
            lines.append("  | inside the switch")
        elif hop.shared_with and segment.kind == "link":
            lines += textwrap.wrap(
                _shared(hop, machine), WIDTH, initial_indent="  |   shared with: ", subsequent_indent="  |     "
            )
    if not report.path_complete:
        lines.append(f"  ? {UNTOLD}")
    lines.append(f"  | IOMMU: {_iommu(report, machine)}")
    lines.append(_ram(report, machine))
    return lines


def _runs(nodes: Sequence[int]) -> str:
    """0-3 for neighbours, else each."""
    whole = len(nodes) > 1 and list(nodes) == list(range(nodes[0], nodes[-1] + 1))
    return f"{nodes[0]}-{nodes[-1]}" if whole else ",".join(map(str, nodes))


def _own_end(hop: Hop, below: Hop) -> str:
    """What a port tells of its end of the link, where that differs from the other end."""
    if hop.kind not in ("root port", "downstream port") or hop.cap_gt_s is None:
        return ""
    same = (hop.cap_gt_s, hop.cap_width) == (below.cap_gt_s, below.cap_width)
    return "" if same else f"   (this end: {hop.cap_gt_s:g} GT/s x{hop.cap_width or '?'})"


def _link(hop: Hop, segment: Segment, report: Report) -> str:
    if hop.cap_gt_s is not None:
        text = _speed_and_lanes(hop)
    elif hop.now_gt_s is not None:
        text = f"{hop.now_gt_s:g} GT/s x{hop.width or '?'} as read now, capability unknown"
    elif segment.port is not None and segment.port.cap_gt_s is not None:
        text = "speed and width told by the port's end only"
    elif segment.ceiling_bytes_per_s is not None:
        text = "speed and width unknown, bandwidth reported"
    else:
        text = "link unknown"
    mps = f"MPS {hop.mps}" if hop.mps else "MPS unknown"
    if report.coherent_link is not None:
        return f"{text}, {mps:<12}   no ceiling claimed"
    return f"{text}, {mps:<12}   ceiling {gigabytes(segment.ceiling_bytes_per_s)}"


def _speed_and_lanes(hop: Hop) -> str:
    """Capability, and what the link has of it now; for a hop whose capability is known."""
    now = "" if hop.now_gt_s in (None, hop.cap_gt_s) else f" (now {hop.now_gt_s:g})"
    lost = f" of x{hop.cap_width}" if hop.cap_width is not None and (hop.width or 0) < hop.cap_width else ""
    return f"{hop.cap_gt_s:g} GT/s{now} x{hop.width if hop.width is not None else '?'}{lost}"


def _shared(hop: Hop, machine: Machine) -> str:
    roles = {short_address(a): f.role.value for a, f in machine.functions.items()}
    words = {"gpu": "GPU", "nvme": "NVMe", "nic": "NIC"}
    named = [f"{words.get(roles.get(address, ''), '')} {address}".strip() for address in hop.shared_with]
    several = any(name.startswith("GPU") for name in named) or machine.mixed is not None
    alone = "" if several else " (no other GPU)"
    return ", ".join(named) + alone


def iommu_words(report: Report) -> str:
    """The mode in front of the GPU; "unknown" only where nothing says that an IOMMU is on."""
    return report.iommu or (UNKNOWN_MODE if report.iommu_groups else "unknown")


def _iommu(report: Report, machine: Machine) -> str:
    if machine.virtual and report.iommu in ("off", "passthrough"):
        return f"{report.iommu + ' (guest)':<21}DMA address = guest-physical address; the host's IOMMU is unknown"
    return {
        "off": "off                  DMA address = physical address",
        "passthrough": "passthrough          DMA address = physical address",
        "translated": "translates           DMA address -> page tables -> physical address",
    }.get(report.iommu or "", iommu_words(report))


def _ram(report: Report, machine: Machine) -> str:
    node = next((n for n in machine.nodes if n.index == report.numa_node), None)
    name = f"node {report.numa_node}" if report.numa_node is not None else "node unknown"
    asked = f"{gb(report.state_bytes)} asked, " if report.state_bytes is not None else ""
    return f"RAM  {name}  ({asked}{free_words(node)})"


def _row(name: str, word: str, rate: str, duration_s: float | None, why: str) -> str:
    return f"{name:<12}{word:<9} {rate:>11}  {seconds(duration_s):>9}  {why}"


def _figures(report: Report) -> list[str]:
    rows = [_row(f.name, f.label, gigabytes(f.bytes_per_s), f.duration_s, f.why) for f in figures_of(report)]
    return rows + _legs(report)


def _legs(report: Report) -> list[str]:
    lines: list[str] = []
    seen: set[str] = set()
    for leg in report.legs:
        kind = leg.hops[-1].kind if leg.hops else ""
        word = {"nvme": "to NVMe", "nic": "to NIC"}.get(kind, "") if leg.device not in seen else ""
        seen.add(leg.device)
        narrow = f", narrowest: {leg.narrowest}" if leg.narrowest else ""
        lines.append(
            _row(word, "ceiling", gigabytes(leg.ceiling_bytes_per_s), leg.seconds, f"{leg.device} {leg.name}{narrow}")
        )
        if leg.runs_below_capability:
            can = (gigabytes(leg.as_built_bytes_per_s), leg.as_built_seconds)
            lines.append(_row("", "ceiling", *can, f"{leg.device} {BY_CAPABILITY}"))
        steps = f"; kernel distance {leg.distance}" if leg.distance is not None else ""
        if leg.why:
            lines += textwrap.wrap(leg.why + steps, WIDTH, initial_indent=" " * 36, subsequent_indent=" " * 36)
    return lines


def render_legs(report: Report) -> list[str]:
    """Every leg hop by hop: `hinan wire --legs`."""
    lines: list[str] = []
    for leg in report.legs:
        way = f"RAM to {leg.device}" if leg.name == "from RAM" else f"GPU to {leg.device}, {leg.name}"
        rates = [(leg.ceiling_bytes_per_s, leg.seconds, "")]
        if leg.runs_below_capability:
            rates.append((leg.as_built_bytes_per_s, leg.as_built_seconds, f", {BY_CAPABILITY}"))
        lines += [
            f"{way}: ceiling {gigabytes(rate)} {seconds(duration_s)}".rstrip() + why for rate, duration_s, why in rates
        ]
        lines += textwrap.wrap(leg.why, WIDTH, initial_indent="  ", subsequent_indent="  ")
        for order, hop in enumerate(leg.hops):
            if order == leg.at_root:
                lines.append(f"  root complex{', RAM' if leg.name == 'via RAM' else ''}")
            node = f"node {hop.node}" if hop.node is not None else "node ?"
            speed = _speed_and_lanes(hop) if hop.cap_gt_s else "link unknown"
            mps = f"MPS {hop.mps}" if hop.mps else "MPS ?"
            mark = "   <- narrowest" if hop.address == leg.narrowest else ""
            lines.append(f"  {hop.address:<13} {hop.kind:<16} {speed:<22} {mps:<8} {node:<8}{mark}")
            if hop.shared_with:
                lines += textwrap.wrap(
                    f"shared with {', '.join(hop.shared_with)}", WIDTH, initial_indent=" " * 16, subsequent_indent=" " * 16
                )
        lines.append("")
    return [clip(line.rstrip()) for line in lines] or [_no_legs(report)]


def _no_legs(report: Report) -> str:
    return f"unknown: {report.legs_unknown}" if report.legs_unknown else "no drive and no NIC is known"


def sentence(finding: Finding) -> str:
    """A finding in one paragraph: where, evidence, effect, cost, fix."""
    who = f"GPU {finding.gpu}" if finding.gpu is not None else "this machine"
    at = f" at {finding.at}" if finding.at else ""
    cost = f" ({finding.effect_s:+.2f} s for this state)" if finding.effect_s is not None else ""
    return f"{finding.code} {who}{at}: {finding.evidence}; {finding.effect}{cost}. Fix: {finding.fix}."


def render_without_gpu(report: Report, machine: Machine) -> list[str]:
    """RAM, NVMe and NIC paths of a machine on which no GPU is known."""
    lines = ["No GPU is known on this machine: there is nothing to evacuate. What the other legs look like:", ""]
    lines += node_lines(machine.nodes, WIDTH)
    if not machine.nodes:
        lines.append("RAM  nodes unknown")
    for role, word in ((Role.NVME, "NVMe"), (Role.NIC, "NIC")):
        devices = [f for a, f in sorted(machine.functions.items()) if f.role is role]
        lines += [
            line for device in devices[:8] for line in _plain_leg(word, from_ram(machine, device.address), device.name)
        ]
        if not devices:
            lines.append(f"{word:<5}none is known")
    lines += ["", *(line for f in report.findings for line in wrapped("!", sentence(f)))]
    lines += noted(report.notes)
    return [clip(line.rstrip()) for line in lines]


def _plain_leg(word: str, leg: Leg, name: str | None) -> list[str]:
    route = " > ".join(short_address(a) for a in leg.crossed)
    head = f"{word:<5}{short_address(leg.device)}  {(name or '')[:50]}"
    return [head, f"     RAM > root complex > {route}   ceiling {gigabytes(leg.ceiling_bytes_per_s)}"]


def render_all(reports: Sequence[Report]) -> list[str]:
    """One line per GPU; then what was found, and what the sources leave open for the whole machine."""
    head = f"{'GPU':<4}{'address':<14}{'node':>5}  {'alone':>11}  {'all at once':>11}  {'measured':>11}"
    lines = [f"{head}  {'narrowest':<13} NIC of its rail"]
    for r in reports:
        node = str(r.numa_node) if r.numa_node is not None else "?"
        address = r.gpu.address if r.gpu and r.gpu.address else "unknown"
        index = r.gpu.index if r.gpu else "?"
        rates = (r.ceiling_bytes_per_s, r.all_ranks_ceiling_bytes_per_s, r.measured_bytes_per_s)
        columns = "  ".join(f"{gigabytes(rate):>11}" for rate in rates)
        lines.append(f"{index!s:<4}{address:<14}{node:>5}  {columns}  {r.narrowest or 'unknown':<13} {r.nic or 'unknown'}")
    shares = [r.all_ranks_ceiling_bytes_per_s for r in reports]
    summed = bool(shares) and all(share is not None for share in shares)
    at_once = [r.all_ranks_measured_bytes_per_s for r in reports]
    if at_once and None not in at_once:
        known = [rate for rate in at_once if rate is not None]
        lines.append(
            f"measured, all at once: together {gigabytes(sum(known))}, slowest {gigabytes(min(known))} "
            f"({reports[0].all_ranks_measured_by})"
        )
    elif summed:
        lines.append(
            f"together {gigabytes(sum(share or 0.0 for share in shares))}; the DRAM write limit is not in any file"
        )
    elif len(reports) > 1 and any(r.ceiling_bytes_per_s is not None for r in reports):
        lines.append(f"together unknown: {SHARING_UNKNOWN}")
    told = {(f.code, f.at, f.evidence): f for r in reversed(reports) for f in reversed(r.findings)}
    for finding in reversed(told.values()):  # of several GPUs that say the same of one place, the first one's
        lines += wrapped("!", sentence(finding))
    lines += noted(note for note in union(r.notes for r in reports) if not (summed and note == DRAM))
    return [clip(line) for line in lines]
