"""Keeps the slots of a node: what phase each is in, which one a trainer may fill next, which may go.

Owns:      the leases (who fills what) and the read leases. The facts in the arena are the truth about everything else.
Promises:  a slot is leased to at most one process, and only when the rules of `core.watermark` let its bytes go.
           Nothing here waits: a slot that has to be made is ordered, and leased when it is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from hinan.agent.trainers import Trainer, Trainers
from hinan.core.budget import FEWEST_SLOTS, SLOTS_A_RANK, Limit, Need, slots_that_fit
from hinan.core.errors import BudgetError
from hinan.core.slot import Event, Phase, Slot, advance
from hinan.core.watermark import slot_to_lease
from hinan.formats.records import OwnerRecord, SealedRecord
from hinan.tiers.arena import SEALED, Arena, SlotFiles

Room = Callable[[], dict[str, Limit]]
Order = Callable[[OwnerRecord, int], None]
"""Have a slot of so many bytes made for a process, in the background; `Keeper.made` is called when it is over."""


class Keeper:
    """The slots of one arena."""

    def __init__(self, arena: Arena, trainers: Trainers, room: Room, order: Order) -> None:
        self._arena, self._trainers, self._room, self._order = arena, trainers, room, order
        self._ordered: OwnerRecord | None = None
        """For whom a slot is being made. One at a time: what the next one finds left of the RAM is not known before."""
        self._ordered_bytes = 0
        self._failed: dict[tuple[int, int], OSError] = {}
        """Why no slot of so many bytes could be made for a process, until it is tried again."""
        self._readers: Counter[str] = Counter()
        self._found: set[str] = set()
        self.files: dict[str, SlotFiles] = {}
        """The last scan, by slot."""
        self.unprovable: dict[str, str] = {}
        """Sealed slots whose image is damaged, each with the reason; they are never proven."""

    def adopt(self) -> None:
        """Take over an arena that an earlier agent left: leases of living trainers stand until they say otherwise."""
        for files in self._arena.scan():
            self._found.add(files.name)
            owner = self._trainers.owner(files.owner)
            if owner is not None and files.sealed is None:
                owner.leased.add(files.name)

    def is_late(self, files: SlotFiles) -> bool:
        """Whether a seal was found by this agent rather than seen to appear."""
        return files.name in self._found and files.sealed is not None

    def slots(self) -> tuple[Slot, ...]:
        """Scan the arena; the slots as the rules see them."""
        self.files = {files.name: files for files in self._arena.scan()}
        return tuple(self._slot(files) for files in self.files.values())

    def _slot(self, files: SlotFiles) -> Slot:
        owner = self._trainers.owner(files.owner)
        sealed = files.sealed
        if sealed is None and owner is None:
            # Why again: it may have been sealed between the scan and the death that was just noticed.
            sealed = self._arena.fact(files.name + SEALED, SealedRecord)
        if sealed is not None:
            proof = files.proven
            proves_this = proof is not None and (proof.attempt, proof.step) == sealed.step_id
            phase = Phase.PROVEN if proves_this else Phase.SEALED
            if owner is not None:
                owner.leased.discard(files.name)  # the seal ends the lease
        else:
            phase = Phase.FILLING if owner is not None and files.name in owner.leased else Phase.FREE
        return Slot(
            name=files.name,
            rank=files.rank,
            owner_attempt=files.owner.attempt,
            owner_alive=owner is not None,
            owner_pid=files.owner.pid,
            phase=phase,
            holds=sealed.step_id if sealed else None,
            world_size=sealed.world_size if sealed else 0,
            image_bytes=files.image_bytes,
            commit_at=sealed.commit_at if sealed else 0,
            readers=self._readers[files.name],
        )

    def lease(
        self, trainer: Trainer, image_bytes: int, local_ranks: int, slots: tuple[Slot, ...], stays: dict[str, str]
    ) -> str | None:
        """A slot for a trainer to fill; None if it must wait.

        Args:
            slots: as they were when `stays` was decided; a slot sealed since then is FILLING there, and not given away.
            stays: slots that must keep their bytes, with the reason (`core.agenda.stays`).
        Raises:
            BudgetError: the state does not fit into RAM.
            OSError: the tmpfs has no room.
        """
        mine = [s for s in slots if s.rank == trainer.rank]
        slot = slot_to_lease(slots, trainer.process.pid, trainer.rank, image_bytes, stays)
        if slot is None:
            self._drop_other_sizes(mine, trainer, image_bytes, stays)
            self._order_one(mine, trainer, image_bytes, local_ranks)
            return None
        _, effects = advance(slot.phase, Event.RECYCLE if slot.is_sealed else Event.LEASE)
        # Ordering: facts go before the lease is given, so that no fact ever stands beside bytes being written.
        self._arena.do(slot.name, effects)
        self._found.discard(slot.name)
        self.unprovable.pop(slot.name, None)
        trainer.leased.add(slot.name)
        return slot.name

    def _order_one(self, mine: list[Slot], trainer: Trainer, image_bytes: int, local_ranks: int) -> None:
        """Have another slot made, if there is room for it."""
        held_bytes = sum(files.image_bytes for files in self.files.values())

        def own(slot: Slot) -> bool:
            return slot.owner_pid == trainer.process.pid and slot.owner_alive

        enough = len([s for s in mine if s.name in self.files and s.image_bytes == image_bytes and own(s)])
        try:
            if (failure := self._failed.get((trainer.process.pid, image_bytes))) is not None:
                raise failure
            if self._ordered is not None:
                return
            allowed = slots_that_fit(Need(local_ranks, SLOTS_A_RANK, image_bytes), self._room(), held_bytes)
        except (BudgetError, OSError):
            # Somebody else has filled the memory since: the slots that are there must do, and one of them will be free.
            if enough >= FEWEST_SLOTS:
                return
            raise
        # A living process of an older attempt keeps its slots until it ends; what is left of the RAM is for this one.
        counted = [s for s in mine if s.name in self.files and (own(s) or not s.owner_alive)]
        if len(counted) < allowed:
            process = trainer.process
            self._ordered = OwnerRecord(process.pid, process.start_ticks, trainer.attempt, trainer.rank)
            self._ordered_bytes = image_bytes
            self._order(self._ordered, image_bytes)

    @property
    def reserving(self) -> dict[str, int] | None:
        """The slot that is being made, if one is: `rank` and `image_bytes`."""
        return None if self._ordered is None else {"rank": self._ordered.rank, "image_bytes": self._ordered_bytes}

    def made(self, owner: OwnerRecord, image_bytes: int, failure: OSError | None) -> None:
        """A slot that was ordered is there, or why it is not."""
        self._ordered = None
        if failure is not None:
            self._failed[owner.pid, image_bytes] = failure

    def try_again(self) -> None:
        """Forget what failed: there may be room for another slot by now."""
        self._failed.clear()

    def _drop_other_sizes(self, mine: list[Slot], trainer: Trainer, image_bytes: int, stays: dict[str, str]) -> None:
        """The state's structure has changed: room for images of the old length is given back when nothing needs it."""
        for slot in mine:
            if slot.image_bytes != image_bytes and slot.name not in stays and slot.owner_pid == trainer.process.pid:
                trainer.leased.discard(slot.name)
                self.release(slot.name, slot.phase)

    def release(self, name: str, phase: Phase) -> None:
        """Unlink a slot, facts first. A trainer that maps it keeps its pages until it unmaps or ends."""
        _, effects = advance(phase, Event.RELEASE)
        self._arena.do(name, effects)
        self.files.pop(name, None)
        self._found.discard(name)
        self.unprovable.pop(name, None)
        self._failed.clear()  # there is more room now

    def read(self, names: list[str]) -> None:
        """Take read leases."""
        self._readers.update(names)

    def unread(self, names: list[str]) -> None:
        """Give read leases back."""
        self._readers.subtract(names)
        self._readers = +self._readers  # names come and go; those that nobody reads are not kept
