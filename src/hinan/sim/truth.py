"""What really happened, known to no process: the yardstick of the checks.

Owns:      each attempt's past and parent, noted when a resume record is published.
Never:     is asked by an agent or a trainer, and uses no function of the core: the chain is walked by a second, slower
           way, so that a bug in the core's lineage is not excused by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hinan.core.ids import StepId
from hinan.sim.values import Chunks, Content, whole_image


@dataclass
class Truth:
    """`parents` has an entry for every attempt that published a resume."""

    parents: dict[int, StepId | None] = field(default_factory=dict)
    pasts: dict[int, str] = field(default_factory=dict)

    def resumed(self, attempt: int, parent: StepId | None) -> None:
        """Note that `attempt` goes on from `parent`."""
        before = "" if parent is None else f"{self.pasts[parent.attempt]}>"
        self.parents[attempt] = parent
        self.pasts[attempt] = f"{before}{attempt}:{0 if parent is None else parent.step}"

    @property
    def newest(self) -> int:
        """The newest attempt that published a resume; 0 before the first."""
        return max(self.parents, default=0)

    def on_line(self, step_id: StepId, of_attempt: int | None = None) -> bool:
        """Whether that attempt (by default the newest that resumed) has this step in its past, or makes it itself."""
        attempt = self.newest if of_attempt is None else of_attempt
        highest = float("inf")
        while attempt:
            if step_id.attempt == attempt:
                return step_id.step <= highest
            parent = self.parents[attempt]
            if parent is None:
                return False
            highest = min(highest, parent.step)
            attempt = parent.attempt
        return False

    def content(self, step_id: StepId, rank: int) -> Content:
        """The state that `rank` had after `step_id`."""
        return Content(self.pasts.get(step_id.attempt, "?"), step_id.step, rank)

    def image(self, step_id: StepId, rank: int) -> Chunks:
        return whole_image(self.content(step_id, rank))
