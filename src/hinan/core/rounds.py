"""Which step is drained next (rule C3): one round at a time a tier, one step a round, chosen once for all nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from hinan.core.ids import StepId
from hinan.core.lineage import Lineage


@dataclass(frozen=True)
class Wish:
    """What asks for a drain besides the cadence.

    Attributes:
        wanted: steps that a caller asked for by name (`evacuate(wait="committed")`).
        newest_at_any_rate: the trainers ended without closing, or the run closes: save the newest there is.
    """

    wanted: Collection[StepId] = ()
    newest_at_any_rate: bool = False


def next_round(
    held: Mapping[StepId, int],
    *,
    line: Lineage,
    committed: Collection[StepId],
    wish: Wish,
    failed: Collection[StepId] = (),
    proving: Collection[StepId] = (),
) -> StepId | None:
    """The step whose images the next round drains; None if nothing asks for one.

    A due step that was recycled before its turn came is not mourned: the newest held-everywhere step stands in for it.

    Args:
        held: steps held everywhere and proven, each with its `commit_at` (see `Slot`).
        failed: steps whose round was abandoned; not tried again.
        proving: steps held everywhere whose proof is still to come. When the newest is saved at any rate, no older one that
            did not fall due is drained in the meantime: the newest would have to wait for it.
    """
    newest_committed = max((s for s in committed if s in line), default=StepId(0, 0))
    eligible = sorted((s for s in held if s in line and s not in committed and s not in failed), reverse=True)
    # A step that somebody waits for comes first: newer ones fall due all the time, and it would never have its turn.
    wanted = [s for s in eligible if s in wish.wanted]
    coming = max((s for s in proving if s in line and s not in committed and s not in failed), default=StepId(0, 0))

    def is_due(step_id: StepId) -> bool:
        return held[step_id] > newest_committed.step or (wish.newest_at_any_rate and step_id > coming)

    return next(iter([*wanted, *(s for s in eligible if s > newest_committed and is_due(s))]), None)
