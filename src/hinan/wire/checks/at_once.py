"""What was measured while all GPUs copied, against what their links can carry together.

Owns:      the verdict "impossible", and whether it is a link that leaves a GPU no more.
Promises:  impossible is only what a link forbids: more of one GPU than its own links carry, or more of all that cross
           a link than it carries. An uneven split is neither: how a link divides itself, no source tells.
Relies on: `measured_at_once` giving each GPU the least that a run saw, so that sums are what a link surely carried.
"""

from __future__ import annotations

from collections.abc import Mapping

from hinan.wire.checks.case import IMPOSSIBLE_RATIO, PROVEN_RATIO
from hinan.wire.checks.measured import measured_at_once, runs_at_once
from hinan.wire.facts.address import short_address
from hinan.wire.facts.memo import remembered
from hinan.wire.facts.model import Gpu, Machine
from hinan.wire.paths.shares import SharedLink, links_of_gpu


def overfilled(machine: Machine, gpu: Gpu) -> SharedLink | None:
    """The link of this GPU that cannot have carried what was measured over it; None where all is possible."""
    found = [link for link in _links(machine, gpu) if _carried(machine, link) > link.bytes_per_s * IMPOSSIBLE_RATIO]
    return min(found, key=lambda link: len(link.users), default=None)


def overfilled_words(machine: Machine, link: SharedLink) -> str:
    """How much, over which link, and what it can carry."""
    carried = f"{_carried(machine, link) / 1e9:.1f} GB/s"
    can = f"{link.bytes_per_s / 1e9:.1f}"
    if len(link.users) == 1:
        return f"{carried} where its links carry {can}"
    return f"{carried} of {len(link.users)} GPUs over {short_address(link.key)}, which carries {can}"


def is_full(machine: Machine, gpu: Gpu) -> bool:
    """Did a link that this GPU shares carry about all it can, in any run? Then the others have what the GPU lacks."""
    shared = [link for link in _links(machine, gpu) if len(link.users) > 1]
    return any(_sum(rates, link) >= link.bytes_per_s * PROVEN_RATIO for link in shared for rates in runs_at_once(machine))


def _links(machine: Machine, gpu: Gpu) -> tuple[SharedLink, ...]:
    return links_of_gpu(machine, gpu.address) if gpu.address and measured_at_once(machine, gpu) is not None else ()


def _carried(machine: Machine, link: SharedLink) -> float:
    return _sum(remembered(machine, "least at once", lambda: _least(machine)), link)


def _sum(rates: Mapping[str, float], link: SharedLink) -> float:
    return sum(rates.get(user, 0.0) for user in link.users)


def _least(machine: Machine) -> dict[str, float]:
    measured = {gpu.address: measured_at_once(machine, gpu) for gpu in machine.gpus if gpu.address and not gpu.off_bus}
    return {address: m.bytes_per_s for address, m in measured.items() if address and m is not None}
