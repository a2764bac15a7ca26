"""Rules on the links of a GPU's path: what they can carry, what they do carry, and what was measured.

Promises:  no alarm for an idle GPU's link or a gen 4 drive in a gen 5 slot.
Relies on: speeds dropping when idle and widths not; a measurement at 85 % of the ceiling proving the link whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hinan.wire.address import short_address
from hinan.wire.case import IMPOSSIBLE_RATIO, Case
from hinan.wire.families import is_card_bridge, is_tunnel
from hinan.wire.findings import Finding
from hinan.wire.measured import best_measurement
from hinan.wire.model import Function, Link, Measurement, Port, Role
from hinan.wire.path import fair_shares, path_up
from hinan.wire.placement import node_for_gpu


def measured(case: Case) -> Iterator[Finding]:
    """A stopwatch far below the ceiling, or above what the links can carry."""
    best = best_measurement(case.machine, case.gpu, node_for_gpu(case.machine, case.gpu.index).node)
    if best is None or not case.ceiling or case.proven:
        return
    ratio = best.bytes_per_s / case.ceiling
    if ratio > IMPOSSIBLE_RATIO:
        yield from _too_fast(case, best, ratio)
        return
    yield case.finding(
        "below-ceiling", case.gpu.address,
        f"measured {best.bytes_per_s / 1e9:.1f} GB/s ({best.source}) of {case.ceiling / 1e9:.1f}: {ratio:.0%}",
        "a whole path measures 91 to 97 % of its ceiling",
        "read the links again under load; then measure with the buffer on each NUMA node",
        case.loss_s(best.bytes_per_s),
    )  # fmt: skip


def _too_fast(case: Case, measured: Measurement, ratio: float) -> Iterator[Finding]:
    """Not where hwloc tells the present speed of an idle link: there the ceiling is low, and a note says so."""
    if any(hop.link.now_bytes_per_s is not None for hop in case.path.hops):
        return
    yield case.finding(
        "above-ceiling", case.gpu.address,
        f"measured {measured.bytes_per_s / 1e9:.1f} GB/s ({measured.source}), {ratio:.0%} of what the links can carry",
        "nothing is faster than its links: the log is of another machine or GPU, or a link is told wrongly",
        "measure on this machine, or read it again",
    )  # fmt: skip


def payloads(case: Case) -> Iterator[Finding]:
    """A port that takes smaller packets than the GPU may send."""
    sent = case.path.hops[0].mps_bytes if case.path.hops else None
    small = [hop for hop in case.path.hops[1:] if sent is not None and hop.mps_bytes is not None and hop.mps_bytes < sent]
    if small:
        yield case.finding(
            "mps-mismatch", small[0].address, f"MPS is {small[0].mps_bytes} bytes there and {sent} at the GPU",
            "a packet above a port's MPS is malformed: it is dropped with an error (AER)",
            "look for malformed TLPs in dmesg; boot with pci=pcie_bus_safe, which sets one MPS that all support",
        )  # fmt: skip


def _is_gpus(function: Function) -> bool:
    """Is this end of a link the GPU's, so that it idles with it: the GPU itself, or a bridge on its card?"""
    return function.role is Role.GPU or is_card_bridge(function)


@dataclass(frozen=True)
class _Below:
    """A link of which less is used than both its ends can do; lanes, or GT/s."""

    hop: Function
    peer: Function | None
    cap: float
    now: float

    @property
    def at_gpu(self) -> bool:
        return _is_gpus(self.hop) or (self.peer is not None and _is_gpus(self.peer))

    def loss_s(self, case: Case) -> float | None:
        """What the lack costs this state."""
        return case.loss_s(case.ceiling * self.now / self.cap if case.ceiling else None)


def _peer_of(case: Case, order: int) -> Function | None:
    """The other end of the hop's link, if on the path: ports facing down meet the hop before, others the next."""
    hops = case.path.hops
    facing_down = hops[order].port in (Port.ROOT, Port.DOWN)
    other = order - 1 if facing_down else order + 1
    if not 0 <= other < len(hops) or hops[order].port in (Port.SWITCH, None):
        return None
    return hops[other]


def _below(case: Case, read: Callable[[Link], tuple[float | None, float | None]]) -> Iterator[_Below]:
    """Each link of the path below its capability, once although both of its ends tell of it.

    Args:
        read: (capability, present state) of one end.
    """
    told: set[frozenset[str]] = set()
    for order, hop in enumerate(case.path.hops):
        peer = _peer_of(case, order)
        caps = [read(end.link)[0] for end in (hop, peer) if end is not None]
        cap, now = min((value for value in caps if value is not None), default=None), read(hop.link)[1]
        ends = frozenset({hop.address, peer.address if peer else hop.address})
        if cap is not None and now is not None and now < cap and ends not in told:
            told.add(ends)
            yield _Below(hop, peer, cap, now)


def widths(case: Case) -> Iterator[Finding]:
    """Fewer lanes than both ends have."""
    for link in _below(case, lambda end: (end.cap_width, end.now_width)):
        yield case.finding(
            "width-below-capability", link.hop.address, f"link runs x{link.now:g} of x{link.cap:g}",
            "lanes are lost; a width does not drop when idle", "reseat the card or riser, check slot bifurcation",
            link.loss_s(case),
        )  # fmt: skip


def speeds(case: Case) -> Iterator[Finding]:
    """A speed below both ends' capability. Idle GPUs do that; links between switches, or under load, should not."""
    sure = case.question.under_load
    for link in _below(case, lambda end: (end.cap_gt_s, end.now_gt_s)):
        if not sure and (link.at_gpu or case.proven):
            continue
        yield case.finding(
            "speed-below-capability" if sure else "link-suspect", link.hop.address,
            f"link runs at {link.now:g} of {link.cap:g} GT/s",
            "read under load: a fault" if sure else "idle down-training or a real fault: one reading cannot tell",
            "retrain or reseat; look for AER errors" if sure else "read again under load (--under-load), or measure",
            link.loss_s(case),
        )  # fmt: skip


def suspects(case: Case) -> Iterator[Finding]:
    """A link that its source calls slow above a GPU that is faster."""
    for order, hop in enumerate(case.path.hops):
        peer = _peer_of(case, order)
        at_gpu = _is_gpus(hop) or (peer is not None and _is_gpus(peer))
        if not hop.link.suspect or at_gpu or is_tunnel(hop) or case.proven:
            continue
        told = f"{hop.link.cap_gt_s:g} GT/s" if hop.link.cap_gt_s else f"{(hop.link.now_bytes_per_s or 0) / 1e9:.1f} GB/s"
        yield case.finding(
            "link-suspect", hop.address, f"the source says {told} above a faster GPU",
            "idle down-training or a real fault: one reading cannot tell; not used for the ceiling",
            "read it again while a copy runs, or measure",
        )  # fmt: skip


def shared(case: Case) -> Iterator[Finding]:
    """A link that several GPUs fill when all evacuate."""
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


def _crowded(case: Case, gpus: list[str]) -> tuple[str | None, int]:
    """The hop nearest the root that the most other GPUs cross, and how many."""
    best: tuple[int, str | None] = (0, None)
    for hop in case.path.hops:
        count = sum(hop.address in {h.address for h in path_up(case.machine, g).hops} for g in gpus) - 1
        if count and count >= best[0]:
            best = (count, hop.address)
    return best[1], best[0]
