"""Whether what other threads were doing has ended. An operation of torch is one call into C, in one instruction of Python.

Why: torch counts an in-place write when it has been done (on a device: enqueued), not when it begins. Whoever looks at the
count while a write goes on sees nothing of it; he looks again, for good, when the calls that were under way are over.

The thread that matters is the trainer's; but he may be waiting for another one that writes. What a thread was doing is over

- when its stack no longer stands in that instruction (`stacks`). For the main thread, found there at every look because a
  loop goes around one long call, the interpreter itself says so (`turns`): what is left to it as a pending call is done
  between two instructions. (They may be some that the call has called back: nothing counts from before the last look at
  which it had.)
- when nobody does anything (`idleness`): neither those whose call is not over, nor the threads that are not Python's, some
  of which may work for them.
- if it is another's: when the trainer's is over, and he has been at work for a while since. He waits for nobody.
"""

from __future__ import annotations

import sys
import threading
import time

from hinan.host.tasks import task_ids
from hinan.trainer.ports.idleness import AtWork, Look, did_nothing, look_at, sleeps
from hinan.trainer.ports.stacks import Stack, Stand, stacks_of
from hinan.trainer.ports.turns import ask, turns
from hinan.trainer.ports.worker import ours


class UnderWay:
    """What the other threads were doing when this was made."""

    def __init__(self, trainer: int, *, may_wait: bool = True) -> None:
        """
        Args:
            trainer: ident of the thread whose operations count. The calling thread is asked about nothing.
            may_wait: where the trainer sleeps, if only now and then, he may be waiting for others: theirs count as well.
        """
        self._trainer = trainer
        stacks = stacks_of()
        stacks.pop(threading.get_ident(), None)
        self._stands = {ident: stack.stand for ident, stack in stacks.items() if not stack.is_ours}
        known = _native_ids()
        self._trainer_task = known.get(trainer, 0)
        self._natives = task_ids() - {threading.get_native_id()} - set(known.values())
        if trainer in self._stands and not (may_wait and sleeps(self._trainer_task)):
            self._stands = {trainer: self._stands[trainer]}
        self._last = self._look()
        self._goes_on: AtWork | None = None
        self._turns = 0
        if trainer in self._stands:
            self._ask()

    def has_ended(self) -> bool:
        """Whether all of it is over. Once true, whatever it has written was counted."""
        stacks = stacks_of(self._stands)
        self._stands = {
            ident: stand
            for ident, stand in self._stands.items()
            if ident in stacks and self._stands_still(ident, stand, stacks[ident])
        }
        if self._stands and (self._trainer_waits_for_nobody() or self._nobody_does_anything(stacks)):
            self._stands = {}
        return not self._stands

    def _stands_still(self, ident: int, stand: Stand, stack: Stack) -> bool:
        # All of the stack: what was called may have called Python back (a hook, a finalizer), and goes on afterwards.
        if stand not in stack.stands:
            return False
        if ident != self._trainer or not _is_main(ident):
            return True
        if stand != stack.stands[0]:
            self._ask()  # what the interpreter does meanwhile it does inside the call
            return True
        return turns() == self._turns

    def _trainer_waits_for_nobody(self) -> bool:
        if self._trainer in self._stands:
            return False
        if self._goes_on is None:
            self._goes_on = AtWork(self._trainer_task)
        return self._goes_on.for_a_while()

    def _nobody_does_anything(self, stacks: dict[int, Stack]) -> bool:
        if time.monotonic_ns() - self._last.at_ns < _shortest_sleep_ns():
            return False
        before, now = self._last, self._look()
        self._last = now
        # Who sleeps in what the call has called back may have written already, and torch counts it when that returns.
        if any(stand != stacks[ident].stands[0] for ident, stand in self._stands.items()):
            return False
        return did_nothing(before, now, *self._concerned())

    def _look(self) -> Look:
        pythons, natives = self._concerned()
        return look_at(pythons | natives)

    def _concerned(self) -> tuple[frozenset[int], frozenset[int]]:
        """Threads, by the kernel's numbers, that may be at work on what is not over: Python's, and others, which may be a
        team that works for them. Python's that were started without `threading` are among these others."""
        known = _native_ids()
        pythons = frozenset(known[ident] for ident in self._stands if ident in known)
        return pythons, (self._natives - ours) & task_ids()

    def _ask(self) -> None:
        self._turns = turns()
        if _is_main(self._trainer):
            ask()


def _native_ids() -> dict[int, int]:
    """The kernel's numbers of Python's threads, by ident. Not by `threading.enumerate`: its lock may be held by a trainer
    whom a signal's handler has interrupted there, and who waits for us."""
    active: dict[int, threading.Thread] = threading._active  # type: ignore[attr-defined]
    return {ident: thread.native_id for ident, thread in active.copy().items() if thread.native_id is not None}


def _shortest_sleep_ns() -> float:
    """Who waits for the interpreter, perhaps inside an operation, wakes up in each of its switching intervals."""
    return 2.5e9 * sys.getswitchinterval()


def _is_main(thread: int) -> bool:
    """Whether it is the one that does pending calls, also in a forked child."""
    return threading.main_thread().ident == thread
