"""One evacuation on its way: from the boundary that started it to the moment it is held, or found torn (rules D1 to D3).

Two threads meet here. The trainer passes the gate (`hold`), or reaches the next boundary without having passed it
(`finish`); the landing thread waits for the last copy and ends the flight.

Invariant:  sources are looked at after the end of the last copy, or as the gate is passed, if that comes first: the last
            look is before the trainer may change them by right. What has moved by then was moved by nobody we know, and is
            torn. It comes after whatever was being done when the copy ended, because a write is counted at its end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from hinan.core.errors import HinanError
from hinan.trainer.evacuating.copying import Copying
from hinan.trainer.evacuating.watching import Watched, digest_of
from hinan.trainer.ports.pieces import flat_bytes
from hinan.trainer.ports.underway import UnderWay
from hinan.trainer.ports.waking import Once

UNDER_WAY_S = 60.0
"""How long an operation of the trainer's is waited for at most: longer than one write of any tensor takes, and shorter than
the minutes after which a rank that hangs in a collective is killed. What was copied before it hung must be held by then."""

GATE_S = 1.0
"""How long another thread than the trainer's, whose optimizer is about to step, waits for such an operation."""

LOOK_AFTER_S, LOOK_EVERY_S = 0.001, 0.02
"""First and longest pause between two looks at whether it has ended."""


class UnseenWrites(HinanError):
    """What was done to the sources while they were copied cannot be known."""


class Flight:
    """Copies under way, the gates they wait for, and what becomes of them.

    Attributes:
        torn: name of a tensor that changed while it might still be read; None as long as none is known.
        failure: what went wrong on the way; None if nothing did.
        waited_s: time the trainer was held back at the gate.
    """

    def __init__(
        self,
        copying: Copying,
        gates: frozenset[str],
        watched: Watched,
        end: Callable[[Flight], None],
        *,
        check_bits: bool,
        hand_over: Callable[[Callable[[], None]], object] = lambda land: None,
    ) -> None:
        """
        Args:
            hand_over: has `land` called by the landing thread.
            end: called once, in the landing thread, when nothing is read any more: seals, or gives the step up.
            check_bits: digest the sources now, and at the gate compare both them and their copies with that; only then is
                it held. Comparing the two with each other would not do: both may be younger than the boundary.
        """
        self.gates, self.waited_s, self._hand_over = gates, 0.0, hand_over
        self.torn: str | None = None
        self.failure: Exception | None = None
        self._copying, self._watched, self._end = copying, watched, end
        self._digests = [digest_of(flat_bytes(piece)) for piece in copying.gated] if check_bits else []
        self._trainer, self._compares = threading.get_ident(), check_bits
        self._begun = threading.Lock()
        self._passed, self._may_end, self._landed = Once(), Once(), Once()
        if not gates:
            self._passed.set()
        if not gates or not check_bits:
            self._may_end.set()

    @property
    def is_passed(self) -> bool:
        """Whether the trainer may change the sources: all copies come before whatever it does next."""
        return self._passed.is_set()

    @property
    def has_landed(self) -> bool:
        return self._landed.is_set()

    def hold(self, gates: Iterable[str]) -> None:
        """An optimizer is about to step: order it after the copies. On a device the host does not wait."""
        if not self.is_passed and not self.gates.isdisjoint(gates):
            self._pass(self._copying.hold_back)

    def finish(self) -> None:
        """A boundary, or the end, was reached without the gate: wait on the host for the copies.

        What went wrong with them is for the landing thread to find: whoever joins first takes the error with him, and the
        other one would take the copy for whole.
        """
        if not self.is_passed:
            self._pass(self._copying.wait)
        self._forget()  # whoever passed it may have been interrupted before he did

    def settle(self, timeout_s: float | None = None) -> bool:
        """Wait until it is held or given up, whoever asks, so long at most [s]; whether it is.

        Another thread than the trainer's cannot pass the gate for him: he may be in the middle of a write, and it would be
        the last look. Where bits are compared it can, for then the write is seen in the copy; and must, for the comparison
        is made at a gate, which a trainer that waits for that thread never reaches.
        """
        if self._compares or threading.get_ident() == self._trainer:
            self.finish()
        return self.wait(timeout_s)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is held or given up."""
        if not self.has_landed:
            self.hand_over()  # again: whoever was to do it may have been interrupted before he did
        return self._landed.wait(timeout_s)

    def hand_over(self) -> None:
        """Have the landing thread do its part."""
        self._hand_over(self.land)

    def land(self) -> None:
        """The landing thread's part, done once however often it is called."""
        if not self._begun.acquire(blocking=False):
            return
        try:
            self._copying.join()
            self._judge()
            if self.torn is None:
                self._let_operations_end(UNDER_WAY_S, self._passed)
                self._judge()
            self._may_end.wait()
            self._copying.let_go()
            self._watched = Watched([])
        except Exception as error:  # noqa: BLE001 - whatever failed, what lies in the slot is not known to be whole
            self.failure = error.with_traceback(None)  # whose frames have this flight, and so the sources
        finally:
            try:
                self._end(self)
            finally:
                self._landed.set()
                self._forget()

    def _pass(self, order: Callable[[], None]) -> None:
        """A handler may raise between any two lines of this, and it is then called again, from the start.

        Ordering: until `_may_end` is set, all that is looked at here is kept. From then on the landing thread lets it go,
        and nothing is left to be done but `order`, which may be done twice. And it is set before the trainer counts as past
        the gate: he does not look again at a flight that he has passed, and by then nobody may be left waiting for him.
        """
        began = time.monotonic()
        try:
            self._judge()
            # What is raised here is not ours to catch: by a handler of the trainer's own signals, or by its device. The
            # flight is then not passed: the watch goes on, and the next gate or boundary waits again.
            order()
            if threading.get_ident() != self._trainer:
                self._look_for_trainer()
            if not self._may_end.is_set():
                self._compare()
                self._may_end.set()
            self._passed.set()
        finally:
            self.waited_s += time.monotonic() - began
            self._forget()

    def _forget(self) -> None:
        """Landed and passed: the handle that keeps this flight must keep neither a slot mapped nor a source alive."""
        if self.is_passed and self.has_landed:
            self._copying.let_go()
            self._watched = Watched([])
            self.__dict__.pop("_end", None)

    def _look_for_trainer(self) -> None:
        """Another thread's optimizer is about to step, and this is the last look: as long as the trainer stands in a call
        that he has begun before the copies ended, it would see nothing of what that writes. Not for long, because he may be
        waiting for the very step."""
        if self._let_operations_end(GATE_S, self._landed, may_wait=False):
            self._judge()
        elif not self.is_passed:
            self.failure = self.failure or UnseenWrites(
                "its optimizer stepped in another thread while the loop's own stood in a call that may have written"
            )

    def _let_operations_end(self, at_most_s: float, or_else: Once, *, may_wait: bool = True) -> bool:
        """A write that tore the copy may be under way still, and not be counted yet; whether none is any more. Nothing to
        wait for once the trainer has passed the gate: he has looked there himself, between two operations.

        Bounded by the pauses, not by a clock: that goes on while the process is stopped.
        """
        under_way, pause_s, left_s = UnderWay(self._trainer, may_wait=may_wait), LOOK_AFTER_S, at_most_s
        while not or_else.is_set():
            if under_way.has_ended():
                return True
            if left_s <= 0:
                return False
            or_else.wait(pause_s)
            left_s, pause_s = left_s - pause_s, min(2 * pause_s, LOOK_EVERY_S)
        return True

    def _judge(self) -> None:
        """Note what has moved. No lock: a handler in the trainer's thread may stop him anywhere, and wait for the others.

        Ordering: the gate is looked at last. Whoever passed it meanwhile has looked himself before he did, and what has
        moved since has moved by right.
        """
        found = None if self.is_passed else self._watched.moved() or self._copying.moved_away()
        if found is not None and not self.is_passed:
            self.torn = found

    def _compare(self) -> None:
        """Ordering: what is compared is taken before it is asked whether it may end: a handler in between may pass the
        gate himself, and the landing thread then lets all of it go."""
        pieces, slot = self._copying.gated, self._copying.slot
        self._copying.wait()
        if slot is None or self._may_end.is_set():
            return
        for piece, at_boundary in zip(pieces, self._digests, strict=True):
            copied = slot.bytes_at(piece.offset, piece.size_bytes)
            if digest_of(copied) != at_boundary or digest_of(flat_bytes(piece)) != at_boundary:
                self.torn = self.torn or piece.entry
                return
