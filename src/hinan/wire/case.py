"""What the rules of `hinan wire check` are given: the question, and one GPU with all that is known of its path.

Owns:      these records.
"""

from __future__ import annotations

import msgspec

from hinan.wire import effects
from hinan.wire.address import short_address
from hinan.wire.findings import Finding
from hinan.wire.model import Gpu, Machine
from hinan.wire.path import Path

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


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU before the rules.

    ceiling: of its path [bytes/s], None where PCIe does not carry the copy. proven: a measurement comes near the ceiling.
    """

    machine: Machine
    gpu: Gpu
    path: Path
    question: Question
    ceiling: float | None
    proven: bool

    def loss_s(self, slow: float | None) -> float | None:
        """Seconds more than at the ceiling; None where a rate or the state is unknown."""
        return effects.more_s(self.question.state_bytes, slow, self.ceiling)

    def finding(
        self, code: str, at: str | None, evidence: str, effect: str, fix: str, effect_s: float | None = None
    ) -> Finding:
        """A finding on this GPU."""
        return Finding(
            code=code, gpu=self.gpu.index, at=short_address(at) if at else None, evidence=evidence, effect=effect,
            effect_s=effect_s, fix=fix,
        )  # fmt: skip
