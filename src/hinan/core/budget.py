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
"""Left free under every limit for what else it counts."""

RAM_BUDGET = "the ram budget"
"""Name of the limit that the user set with `ram=`."""


@dataclass(frozen=True)
class Limit:
    """Room under one limit.

    Attributes:
        left_bytes: that may still be taken.
        of_bytes: all that it allows; None where that says nothing.
        files_only: only the slots count against it (a file system, the user's budget), not the memory of processes.
    """

    left_bytes: int
    of_bytes: int | None = None
    files_only: bool = False


@dataclass(frozen=True)
class Need:
    """What a run wants to keep in one node's RAM: `slots` images of `image_bytes` for each of `ranks` local ranks.

    Attributes:
        image_bytes: of the largest rank; every rank asks for as much room as it needs for all.
        beside: memory that processes are still going to take, by what it is, in bytes.
        where: node and ranks, for the message.
        notes: what the reader of the sum must know.
        memory_notes: the same, where the memory of processes counts.
    """

    ranks: int
    slots: int
    image_bytes: int
    beside: tuple[tuple[str, int], ...] = ()
    where: str = ""
    notes: tuple[str, ...] = ()
    memory_notes: tuple[str, ...] = ()

    def slots_bytes(self, slots: int) -> int:
        """What so many slots a rank take."""
        return self.ranks * slots * self.image_bytes

    def beside_bytes(self, limit: Limit) -> int:
        """What processes take of a limit."""
        return 0 if limit.files_only else sum(size for _, size in self.beside)


def slots_that_fit(need: Need, room: Mapping[str, Limit], held_bytes: int = 0) -> int:
    """How many slots a rank may have: `need.slots`, or fewer down to FEWEST_SLOTS.

    Args:
        need: what is wanted.
        room: every limit by its name ("/dev/shm", "cgroup /job", "MemAvailable").
        held_bytes: bytes that this run's older slots hold already and will give back.

    Raises:
        BudgetError: not even FEWEST_SLOTS fit; the message holds the sum, the tightest limit and the ways out.
    """
    usable = {n: limit.left_bytes - MARGIN_BYTES + held_bytes - need.beside_bytes(limit) for n, limit in room.items()}
    tightest = min(usable, key=lambda name: usable[name])
    for slots in range(need.slots, FEWEST_SLOTS - 1, -1):
        if need.slots_bytes(slots) <= usable[tightest]:
            return slots
    raise BudgetError(
        _refusal(need, tightest, room[tightest], held_bytes, usable[tightest]),
        need_bytes=need.slots_bytes(FEWEST_SLOTS),
        room_bytes=max(0, usable[tightest]),
        limit=tightest,
    )


def _refusal(need: Need, name: str, limit: Limit, held_bytes: int, usable_bytes: int) -> str:
    """The sum, line by line, and what can be done."""
    product = f"{need.ranks} ranks x {FEWEST_SLOTS} slots x {format_bytes(need.image_bytes)}"
    least = need.slots_bytes(FEWEST_SLOTS)
    wanted = [(product, least), *(() if limit.files_only else need.beside), ("margin", MARGIN_BYTES)]
    left = f"left by {name}" + ("" if limit.of_bytes is None else f" of its {format_bytes(limit.of_bytes)}")
    held = [("held by older slots of this run, given back", held_bytes)] if held_bytes else []
    lines = [
        f"the evacuated state does not fit in RAM{need.where}: {product} = {format_bytes(least)}, but {name} leaves "
        f"{format_bytes(max(0, usable_bytes))}.",
        *_column(wanted, "needed"),
        *_column([(left, limit.left_bytes), *held], "there"),
        *(f"  {note}" for note in (*need.notes, *(() if limit.files_only else need.memory_notes))),
        "Ways out:",
        f"  more room: {_more_room(name, limit)}",
        "  keep less: leave out of the state what can be recomputed",
        "  fewer ranks on this node" if need.ranks > 1 else "  another node: one with more RAM, or fewer ranks on it",
    ]
    return "\n".join(lines)


def _column(lines: list[tuple[str, int]], total: str) -> list[str]:
    """Sizes right-aligned before what they are, with their sum where there are several."""
    summed = [(f"= {total}", sum(size for _, size in lines))] if len(lines) > 1 else []
    return [f"  {format_bytes(size):>11}  {what}" for what, size in [*lines, *summed]]


def _more_room(name: str, limit: Limit) -> str:
    """What must become larger, by the kind of limit."""
    if name == RAM_BUDGET:
        return "a higher budget (ram=)"
    if limit.files_only:
        return f'a larger tmpfs (mount -o remount,size=SIZE {name}, or ram="/path/to/another/tmpfs")'
    if name.startswith("cgroup"):
        return f"raise the memory limit of {name} (tmpfs pages count against it, however large the mount is)"
    return "end what else fills this host's memory, or take a host with more (the pages of a tmpfs are memory too)"
