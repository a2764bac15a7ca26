"""What the rules of `hinan wire check` are given: the question, and one GPU with all that is known of its path.

Owns:      these records, and what a question says of the machine.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hinan.wire.checks import effects
from hinan.wire.checks.findings import Finding
from hinan.wire.facts.address import short_address
from hinan.wire.facts.link import ASSUMED_MPS_BYTES
from hinan.wire.facts.memo import remembered
from hinan.wire.facts.model import Gpu, Machine
from hinan.wire.paths.ends import read_under_load
from hinan.wire.paths.path import Path, path_up
from hinan.wire.paths.transport import over_pcie

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


def judged(machine: Machine, question: Question) -> Machine:
    """The machine whose links are as the question says that they were read; every answer to a question begins with it.

    Busy are the links between GPUs and RAM: nobody says that drives and NICs worked too.
    """
    return remembered(machine, "judged", lambda: _with_busy_links(machine)) if question.under_load else machine


def _with_busy_links(machine: Machine) -> Machine:
    return read_under_load(machine, sorted(crossed_by_copies(machine, machine.gpus)))


def crossed_by_copies(machine: Machine, gpus: Sequence[Gpu]) -> frozenset[str]:
    """Addresses of the functions that copies from these GPUs to RAM cross; none of one off the bus, or on another link."""
    addresses = {gpu.address for gpu in gpus}
    ways = [path_up(machine, address) for address in over_pcie(machine) if address in addresses]
    return frozenset(hop.address for way in ways for hop in way.hops)


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU before the rules.

    ceiling: of its path [bytes/s], None where PCIe does not carry the copy. as_built: the same by capability alone, without
    what is lost. coherent: evidence that PCIe does not carry the copy. proven: a measurement comes near the ceiling.
    mps_bytes: payload that the ceilings stand on.
    """

    machine: Machine
    gpu: Gpu
    path: Path
    question: Question
    ceiling: float | None
    as_built: float | None
    coherent: str | None
    proven: bool
    mps_bytes: int = ASSUMED_MPS_BYTES

    def loss_s(self, slow: float | None) -> float | None:
        """Seconds more than at the ceiling; None where a rate or the state is unknown."""
        return effects.more_s(self.question.state_bytes, slow, self.ceiling)

    def lost_s(self, link: float | None) -> float | None:
        """Seconds more than by capability, if one link of the path does no better than this [bytes/s]."""
        slow = min(link, self.as_built) if link is not None and self.as_built is not None else None
        return effects.more_s(self.question.state_bytes, slow, self.as_built)

    def finding(
        self, code: str, at: str | None, evidence: str, effect: str, fix: str, effect_s: float | None = None
    ) -> Finding:
        """A finding on this GPU."""
        return Finding(
            code=code, gpu=self.gpu.index, at=short_address(at) if at else None, evidence=evidence, effect=effect,
            effect_s=effect_s, fix=fix,
        )  # fmt: skip
