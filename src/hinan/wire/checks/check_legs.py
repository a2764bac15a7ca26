"""Rules on the third leg: what a drive or NIC that takes the state from RAM crosses beside the GPU's own path.

Promises:  no alarm for devices that are no leg of a checkpoint, nor for a card in a slot that has fewer lanes: only where
           both ends of a link tell what they have. A device that serves several GPUs is told once, and so is a link of
           several devices; one that copies of a GPU cross is told as that GPU's, and not here. A leg is called slower only
           where it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hinan.wire.checks import effects
from hinan.wire.checks.case import Question, crossed_by_copies
from hinan.wire.checks.check_links import both_ends_told, lost_lanes
from hinan.wire.checks.findings import Finding
from hinan.wire.facts.address import short_address
from hinan.wire.facts.link import ASSUMED_MPS_BYTES, completion_ceiling_bytes_per_s
from hinan.wire.facts.model import Function, Gpu, Machine, Role
from hinan.wire.paths.ends import PathLink, links_of
from hinan.wire.paths.legs import devices_of, from_ram
from hinan.wire.paths.path import mps_of, path_up


def widths(machine: Machine, gpus: Sequence[Gpu], question: Question) -> Iterator[Finding]:
    """Lanes lost on the ways of these GPUs' nearest drives and rails' NICs, and on none that their own copies cross."""
    crossed = crossed_by_copies(machine, gpus)
    alive = [gpu for gpu in gpus if gpu.off_bus is None]
    devices = {device.address: device for gpu in alive for device in devices_of(machine, gpu).named}
    links: dict[str, PathLink] = {}
    behind: dict[str, list[Function]] = {}
    for device in devices.values():
        for link in links_of(path_up(machine, device.address).hops):
            links[link.key] = link
            behind.setdefault(link.key, []).append(device)
    for link in links.values():
        lost = lost_lanes(link)
        if lost is None or not both_ends_told(link) or any(end.address in crossed for end in link.ends):
            continue
        cap, now, at = lost
        slower = [_slower(machine, link, now, device) for device in behind[link.key]]
        costs = [effects.more_s(question.state_bytes, *rates) for rates in slower if rates is not None]
        told = [cost for cost in costs if cost is not None]
        yield Finding(
            code="width-below-capability", gpu=None, at=short_address(at),
            evidence=f"link runs x{now} of x{cap}, on the way from RAM to {_named(behind[link.key])}",
            effect=f"lanes are lost, {_effect(slower)}; a width does not drop when idle",
            effect_s=max(told, default=None),
            fix="reseat the card or riser, check slot bifurcation",
        )  # fmt: skip


_WORDS = {Role.NVME: "drive", Role.NIC: "NIC"}


def _named(devices: list[Function]) -> str:
    *others, last = [f"the {_WORDS[device.role]} {short_address(device.address)}" for device in devices]
    return f"{', '.join(others)} and {last}" if others else last


def _slower(machine: Machine, link: PathLink, lanes: int, device: Function) -> tuple[float, float] | None:
    """What a device's leg does [bytes/s] if nothing but these lanes of this link is lost, and if nothing is.

    Each link by itself, so that two that are faulty do not both name what one of them costs. None: not known.
    """
    built = from_ram(machine, device.address).as_built_bytes_per_s
    mps = mps_of(path_up(machine, device.address).hops) or ASSUMED_MPS_BYTES
    alone = completion_ceiling_bytes_per_s(link.cap_gt_s, lanes, completion_bytes=mps)
    return (min(alone, built), built) if alone is not None and built is not None else None


def _effect(legs: list[tuple[float, float] | None]) -> str:
    """The words for what the lanes of one link do to the legs that cross it."""
    if any(leg is not None and leg[0] < leg[1] for leg in legs):
        return "the third leg takes longer, slots are free later"
    if None in legs:
        return "what that costs the third leg is not known"
    return "the third leg takes no longer by them: another link of it is no wider"
