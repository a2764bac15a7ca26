"""Rules on the links of a GPU's path: what they can carry, what they do carry, and what was measured.

Promises:  no alarm for an idle GPU's link or a gen 4 drive in a gen 5 slot.
Relies on: speeds dropping when idle and widths not; a measurement at 85 % of the ceiling proving the link whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hinan.wire.checks import effects
from hinan.wire.checks.at_once import is_full, overfilled, overfilled_words
from hinan.wire.checks.behind import expected_at_once, why_behind
from hinan.wire.checks.case import IMPOSSIBLE_RATIO, PROVEN_RATIO, Case
from hinan.wire.checks.findings import Finding
from hinan.wire.checks.measured import best_measurement, measured_at_once
from hinan.wire.facts.address import short_address
from hinan.wire.facts.families import is_tunnel
from hinan.wire.facts.link import payload_of_raw, write_ceiling_bytes_per_s
from hinan.wire.facts.model import Link, Measurement
from hinan.wire.facts.placement import node_for_gpu
from hinan.wire.paths.ends import PathLink, links_of
from hinan.wire.paths.shares import fills_up, known_shares


def measured(case: Case) -> Iterator[Finding]:
    """A stopwatch far below the ceiling, or above what the links can carry."""
    best = best_measurement(case.machine, case.gpu, node_for_gpu(case.machine, case.gpu.index).near)
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
    """Not where the ceiling stands on the present speed of an idle link: there it is low, and a note says so."""
    if any(link.by_present for link in links_of(case.path.hops)):
        return
    yield case.finding(
        "above-ceiling", case.gpu.address,
        f"measured {measured.bytes_per_s / 1e9:.1f} GB/s ({measured.source}), {ratio:.0%} of what the links can carry",
        "nothing is faster than its links: the log is of another machine or GPU, or a link is told wrongly",
        "measure on this machine, or read it again",
    )  # fmt: skip


def measured_with_all(case: Case) -> Iterator[Finding]:
    """The same while all GPUs copy: more than a link can carry, or far less than one expects of this GPU."""
    best = measured_at_once(case.machine, case.gpu)
    if best is None or len(case.machine.evacuating) < 2:
        return
    said = f"measured {best.bytes_per_s / 1e9:.1f} GB/s while all copy ({best.source})"
    link = overfilled(case.machine, case.gpu)
    if link is not None:
        if not link.by_present:
            yield case.finding(
                "above-ceiling", case.gpu.address, f"{said}: {overfilled_words(case.machine, link)}",
                "no link carries more than it can: the log is of another machine, or a link or a sharer is told wrongly",
                "measure on this machine, or read it again",
            )  # fmt: skip
        return
    expected, why = expected_at_once(case.machine, case.gpu)
    if expected and best.bytes_per_s < PROVEN_RATIO * expected and not is_full(case.machine, case.gpu):
        yield case.finding(
            "below-share", case.gpu.address,
            f"{said} of {expected / 1e9:.1f} that {why}: {best.bytes_per_s / expected:.0%}",
            *why_behind(case.machine, case.gpu),
            effects.more_s(case.question.state_bytes, best.bytes_per_s, expected),
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


def widths(case: Case) -> Iterator[Finding]:
    """Fewer lanes than both ends have; of a link that is told by one end, fewer than that has."""
    for link in links_of(case.path.hops):
        lost = lost_lanes(link)
        if lost is None:
            continue
        cap, now, at = lost
        both = both_ends_told(link)
        yield case.finding(
            "width-below-capability", at, f"link runs x{now} of x{cap}",
            "lanes are lost; a width does not drop when idle" if both else (
                "lanes are lost, or the slot has no more: how many the other end has is not told; a width does not drop "
                "when idle"
            ),
            "reseat the card or riser, check slot bifurcation" if both else
            "look at both ends (lspci -vvv of the whole machine); then reseat the card or riser",
            case.lost_s(write_ceiling_bytes_per_s(link.cap_gt_s, now, mps_bytes=case.mps_bytes)),
        )  # fmt: skip


def lost_lanes(link: PathLink) -> tuple[int, int, str] | None:
    """Lanes that a link has and lanes in use, and the end that tells the latter; None where none is known to be lost."""
    cap, now = link.cap_width, link.now_width
    if cap is None or now is None or now >= cap:
        return None
    return cap, now, _lagging(link, lambda end: end.now_width, now)


def both_ends_told(link: PathLink) -> bool:
    """Does each end tell how many lanes it has?"""
    return len(link.ends) == 2 and all(end.link.cap_width is not None for end in link.ends)


def speeds(case: Case) -> Iterator[Finding]:
    """A speed below both ends' capability. Idle GPUs do that; links between switches, or under load, should not."""
    sure = case.question.under_load
    for link in links_of(case.path.hops):
        cap, now = link.cap_gt_s, link.now_gt_s
        if cap is None or now is None or now >= cap or (not sure and (link.at_gpu or case.proven)):
            continue
        yield case.finding(
            "speed-below-capability" if sure else "link-suspect", _lagging(link, lambda end: end.now_gt_s, now),
            f"link runs at {now:g} of {cap:g} GT/s",
            "read under load: a fault" if sure else "idle down-training or a real fault: one reading cannot tell",
            "retrain or reseat; look for AER errors" if sure else "read again under load (--under-load), or measure",
            case.lost_s(write_ceiling_bytes_per_s(now, link.cap_width, mps_bytes=case.mps_bytes)),
        )  # fmt: skip


def present(case: Case) -> Iterator[Finding]:
    """A bandwidth below the capability that another source tells: lost lanes or speed, if it was read under load.

    Else it may be at rest, as a GPU's own link is, of which a note tells.
    """
    sure = case.question.under_load
    for link in links_of(case.path.hops):
        short = link.present_shortfall(case.mps_bytes, busy=sure)
        if short is None or (not sure and (link.at_gpu or case.proven)):
            continue
        does, can = short
        yield case.finding(
            "speed-below-capability" if sure else "link-suspect", link.ends[0].address,
            f"link carries {does / 1e9:.1f} GB/s of {can / 1e9:.1f} ({link.cap_gt_s:g} GT/s x{link.cap_width})",
            "read under load: a fault, of speed or of lanes" if sure else
            "idle down-training or a real fault, of speed or of lanes: one reading cannot tell",
            "retrain or reseat; look for AER errors" if sure else "read again under load (--under-load), or measure",
            case.lost_s(does),
        )  # fmt: skip


def _lagging(link: PathLink, read: Callable[[Link], float | None], now: float) -> str:
    """The end that tells this state, the one nearer to the GPU if both do."""
    return next(end.address for end in link.ends if read(end.link) == now)


def suspects(case: Case) -> Iterator[Finding]:
    """A link that its source calls slow, on the way of a GPU that is faster; under load a present rate is no doubt."""
    for link in links_of(case.path.hops):
        for hop in link.ends:
            if not hop.link.suspect or is_tunnel(hop):
                continue
            if not hop.link.doubtful and hop.link.now_bytes_per_s is not None:
                yield case.finding(
                    "speed-below-capability", hop.address,
                    f"link carries {hop.link.now_bytes_per_s / 1e9:.1f} GB/s, as a link at rest does",
                    "read under load: a fault", "retrain or reseat; look for AER errors",
                    case.lost_s(payload_of_raw(hop.link.now_bytes_per_s, mps_bytes=case.mps_bytes)),
                )  # fmt: skip
            elif not link.at_gpu and not case.proven:
                now = (hop.link.now_bytes_per_s or 0) / 1e9
                told = f"{hop.link.cap_gt_s:g} GT/s" if hop.link.cap_gt_s else f"{now:.1f} GB/s"
                yield case.finding(
                    "link-suspect", hop.address, f"the source says {told} above a faster GPU",
                    "idle down-training or a real fault: one reading cannot tell; not used for the ceiling",
                    "read it while a copy runs (lspci -vvv or hwloc, and --under-load), or measure",
                )  # fmt: skip


def shared(case: Case) -> Iterator[Finding]:
    """A link that several GPUs fill when all evacuate; also one below which all is told, whatever lies above it."""
    share = known_shares(case.machine).get(case.gpu.address or "")
    if share is None or case.ceiling is None or share >= case.ceiling * 0.999:
        return
    link = fills_up(case.machine, case.gpu.address or "")
    if link is not None:
        yield case.finding(
            "shared-uplink", link.key, f"{len(link.users)} GPUs evacuate through {short_address(link.key)}",
            f"{share / 1e9:.2f} GB/s each when all do at once, {case.ceiling / 1e9:.1f} alone",
            "stagger the ranks of one uplink, or plan with the shared figure", case.loss_s(share),
        )  # fmt: skip
