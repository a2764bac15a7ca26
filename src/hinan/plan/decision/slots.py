"""Images in RAM at once: which drains still read an older step when the next save is made, and what room that takes.

Owns:      the count, from the intervals and drains of all tiers, and the intervals at which fewer slots do.
Promises:  pure arithmetic on seconds; the count is that of the schedule, played save by save with the agent's own rules for
           giving slots away (tests do).
Relies on: nested saves (each interval a whole multiple of the faster one), no save before its own tier's last drain is
           over, and a copy no longer than the fastest interval.
Never:     knows tiers or bytes.

A drain reads the step that it was begun with, from the moment it is sealed: the copy out of HBM is over. Where RAM is a
tier that step is the newest complete one until the next is sealed, and keeps its slot anyway; the next is being filled in
the other. Only the save after that needs the slot again: `FREE_SAVES_KEPT` intervals after the step was begun. Where images
only pass through RAM one slot is being filled, and a drain that goes on until the next save takes another:
`FREE_SAVES_PASSING`. The smallest number of slots is `FEWEST` either way.

Levels saved with one step read one image. So two levels hold two older steps at once only if the slower one's drain
outlasts the faster one's interval too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

FEWEST = 2
FREE_SAVES_KEPT, FREE_SAVES_PASSING = 2, 1
_HAIR = 1e-8
AS_LONG = (1.0, 1.0)
"""Drains as long as they are."""


def older_steps(intervals_s: Sequence[float], drains_s: Sequence[float], copy_s: float, free_saves: float) -> int:
    """Most older steps that drains read at the moment of a save, each of which takes a slot of its own.

    A chain of levels, each slower than the last, reads as many steps at one save as it has members: the slowest has begun
    one interval of each of the others, and the free saves, before it.
    """
    began_s = [0.0]  # for a chain of each length: how long at least before the free saves its next member must have begun
    for interval_s, drain_s in zip(intervals_s, drains_s, strict=True):
        for length in range(len(began_s) - 1, -1, -1):
            if drain_s + copy_s > (began_s[length] + free_saves * intervals_s[0]) * (1 + _HAIR):
                longer_s = began_s[length] + interval_s
                if length + 1 == len(began_s):
                    began_s.append(longer_s)
                began_s[length + 1] = min(began_s[length + 1], longer_s)
    return len(began_s) - 1


@dataclass(frozen=True)
class Slots:
    """The levels that may go on reading an older step, in slots of their own, and what else bounds how close saves are."""

    own: tuple[int, ...]
    copy_s: float
    closest_s: float
    """The fastest level is saved no more often than this for other reasons: a step, or an interval given."""
    free_saves: float
    """Infinite where no image waits in RAM."""

    def least_s(self, drains_s: Sequence[float]) -> tuple[float, ...]:
        """Least intervals of the levels with which these slots do, whatever intervals above them are taken [s].

        A level without a slot of its own shares that of the nearest faster one that has it, which is then saved no more
        often than that the older step is free again; without such a one it is over before the free saves are.
        """
        longest_s: dict[int | None, float] = {}
        lead = None
        for k, drain_s in enumerate(drains_s):
            lead = k if k in self.own else lead
            longest_s[lead] = max(longest_s.get(lead, 0.0), drain_s + self.copy_s)
        least = list(drains_s)
        alone_s, led_s = longest_s.pop(None, 0.0), longest_s.pop(0, 0.0)
        waits_s = (alone_s / self.free_saves, led_s / (1 + self.free_saves))
        least[0] = max(least[0], self.copy_s, self.closest_s, *waits_s)
        for own, read_s in longest_s.items():
            assert own is not None
            least[own] = max(least[own], read_s - self.free_saves * least[0])
        return tuple(least)

    def late(self, drains_s: Sequence[float], lengths: tuple[float, float] = AS_LONG) -> tuple[int, ...]:
        """Levels whose drain may outlast the free saves: no other needs a slot of its own. `lengths`: all drains may be as
        many times as long, from the first to the second; a level too many is no harm, for its slot widens ranges only."""
        if math.isinf(self.free_saves):
            return ()
        shortest, longest = lengths
        closest_s = max(drains_s[0] * shortest, self.copy_s, self.closest_s)
        return tuple(k for k, tau_s in enumerate(drains_s) if tau_s * longest + self.copy_s > self.free_saves * closest_s)
