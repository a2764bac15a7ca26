"""An alarm for frozen copies: digests that do not change although the step moved.

Something between the live state and the slot then shows an old value: a cache of tensors that were replaced, a copy that
never ran, a model that is not the one being trained. The bytes are proven and useless.
"""

from __future__ import annotations

from hinan.core.ids import StepId
from hinan.formats.digest import digest
from hinan.formats.records import ProvenRecord


class Freshness:
    """Remembers one digest a rank."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[StepId, str]] = {}

    def look(self, proven: ProvenRecord) -> str | None:
        """What is wrong with this image beside the one before of the same rank and attempt; None if nothing is."""
        step_id = StepId(proven.attempt, proven.step)
        digests = [text for box in proven.boxes if 0 not in box.global_shape for text in box.digests]
        now = digest("".join(digests).encode())
        before, self._last[proven.rank] = self._last.get(proven.rank), (step_id, now)
        if not digests or before is None or before[0].attempt != step_id.attempt or before[0].step == step_id.step:
            return None
        if before[1] != now:
            return None
        return (
            f"rank {proven.rank}: every tensor evacuated at step {step_id.step} is bit-equal to step {before[0].step}: "
            "does the state still hold the objects that are trained?"
        )
