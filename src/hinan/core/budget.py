"""The RAM budget as a contract: the sum is made before training, and a plan that does not fit is refused with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hinan.core.errors import BudgetError
from hinan.core.units import format_bytes

SLOTS_A_RANK = 3
"""The watermark, the one being filled, and the one being drained (rule C5)."""

FEWEST_SLOTS = 2
"""With two the drain and the next evacuation take turns; with one a failure in mid-copy would lose the watermark."""

MARGIN_BYTES = 64 << 20
"""Left free in the tightest limit for the agent and what else the limit counts."""


@dataclass(frozen=True)
class Need:
    """What a run wants to keep in one node's RAM: `slots` images of `image_bytes` for each of `ranks` local ranks."""

    ranks: int
    slots: int
    image_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.ranks * self.slots * self.image_bytes


def slots_that_fit(need: Need, room: Mapping[str, int], held_bytes: int = 0) -> int:
    """How many slots a rank may have: `need.slots`, or fewer down to FEWEST_SLOTS.

    Args:
        need: what is wanted.
        room: free bytes under each limit, by its name ("/dev/shm", "cgroup /job", "MemAvailable", "ram=200GiB").
        held_bytes: bytes that this run's older slots hold already and will give back.

    Raises:
        BudgetError: not even FEWEST_SLOTS fit; the message holds the sum, the tightest limit and three ways out.
    """
    tightest = min(room, key=lambda name: room[name])
    usable = room[tightest] - MARGIN_BYTES + held_bytes
    for slots in range(need.slots, FEWEST_SLOTS - 1, -1):
        if need.ranks * slots * need.image_bytes <= usable:
            return slots
    least = need.ranks * FEWEST_SLOTS * need.image_bytes
    raise BudgetError(
        f"the evacuated state does not fit in RAM: {need.ranks} ranks x {FEWEST_SLOTS} slots x "
        f"{format_bytes(need.image_bytes)} = {format_bytes(least)}, but {tightest} leaves "
        f"{format_bytes(max(0, usable))} (of which {format_bytes(MARGIN_BYTES)} are kept as margin).\n"
        f'Ways out: give more room (a larger tmpfs: ram="/path/to/tmpfs", or a higher memory limit), '
        f"keep less (leave out of the state what can be recomputed), or run fewer ranks on this node.",
        need_bytes=least,
        room_bytes=max(0, usable),
        limit=tightest,
    )
