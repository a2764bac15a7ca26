"""Rules on the third leg: what a drive or NIC that takes the state from RAM crosses beside the GPU's own path.

Promises:  no alarm for devices that are no leg of a checkpoint, nor for a card in a slot that has fewer lanes: only where
           both ends of a link tell what they have. A device that serves several GPUs is told once.
"""

from __future__ import annotations

from collections.abc import Iterator

from hinan.wire.checks import effects
from hinan.wire.checks.case import Case
from hinan.wire.checks.check_links import both_ends_told, lost_lanes
from hinan.wire.checks.findings import Finding
from hinan.wire.facts.address import short_address
from hinan.wire.facts.model import Role
from hinan.wire.paths.ends import links_of
from hinan.wire.paths.legs import devices_of, from_ram
from hinan.wire.paths.path import path_up


def widths(case: Case) -> Iterator[Finding]:
    """Lanes that are lost on the way of the nearest drive or the rail's NIC; those of the GPU's own links others tell."""
    own = {hop.address for hop in case.path.hops}
    for device in devices_of(case.machine, case.gpu):
        leg = from_ram(case.machine, device.address)
        word = "drive" if device.role is Role.NVME else "NIC"
        for link in links_of(path_up(case.machine, device.address).hops):
            lost = lost_lanes(link)
            if lost is None or not both_ends_told(link) or any(end.address in own for end in link.ends):
                continue
            cap, now, at = lost
            yield Finding(
                code="width-below-capability", gpu=None, at=short_address(at),
                evidence=f"link runs x{now} of x{cap}, on the way from RAM to the {word} {short_address(device.address)}",
                effect="lanes are lost, the third leg takes longer, slots are free later; a width does not drop when idle",
                effect_s=effects.more_s(case.question.state_bytes, leg.ceiling_bytes_per_s, leg.as_built_bytes_per_s),
                fix="reseat the card or riser, check slot bifurcation",
            )  # fmt: skip
