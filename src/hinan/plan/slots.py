"""Images in RAM at once: which drains still read an older step when the next save is made, and what room that takes.

Owns:      the count, from the intervals and drains of all tiers, and the intervals at which fewer slots do.
Promises:  pure arithmetic on seconds; never counts less than any moment of the schedule holds (tests play schedules).
Relies on: nested saves (each interval a whole multiple of the faster one), and no save before its own tier's last drain
           is over.
Never:     knows tiers or bytes.

A drain reads the step it was begun with. Levels saved with one step read one image; so a level needs a slot of its own
only if its drain may outlast the interval of the level that it would share one with. Level 0 shares with the newest
image; each next level with the nearest faster one that has a slot of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

_HAIR = 1e-8


def own_slots(intervals_s: Sequence[float], drains_s: Sequence[float]) -> tuple[int, ...]:
    """Levels whose drain needs a slot of its own, the fewest that do under these intervals [s] and drains [s]."""
    found: list[int] = []
    for k in range(1, len(drains_s)):
        shares_with = found[-1] if found else 0
        if drains_s[k] > intervals_s[shares_with] * (1 + _HAIR):
            found.append(k)
    return tuple(found)


def waits_s(drains_s: Sequence[float], own: Collection[int]) -> tuple[float, ...]:
    """Drains that must be over before each level is saved again, if only the levels `own` have slots of their own [s]."""
    waits = list(drains_s)
    shares_with = 0
    for k in range(1, len(drains_s)):
        if k in own:
            shares_with = k
        waits[shares_with] = max(waits[shares_with], drains_s[k])
    return tuple(waits)
