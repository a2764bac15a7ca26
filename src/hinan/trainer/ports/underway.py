"""Whether what other threads were doing has ended. An operation of torch is one call into C, in one instruction of Python.

Why: torch counts an in-place write when it has been done (on a device: enqueued), not when it begins. Whoever looks at the
count while a write goes on sees nothing of it; he looks again, for good, when the calls that were under way are over.

The thread that matters is the trainer's; but he may be waiting for another one that writes. What a thread was doing is over

- when its stack no longer stands in that instruction. For the main thread, found there at every look because a loop goes
  around one long call, the interpreter itself says so: what is left to it as a pending call is done between two
  instructions. (They may be some that the call has called back: nothing counts from before the last look at which it had.)
- when nobody does anything: it has slept from one look to another, and so have all other threads whose call is not over,
  and those that are not Python's: some of them may work for it.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import time
from collections.abc import Container
from types import FrameType
from typing import NamedTuple

from hinan.host.tasks import asleep, task_ids
from hinan.trainer.ports.worker import ours

_CALLED_BACK = frozenset({"__torch_dispatch__", "__torch_function__"})
"""Python that torch runs inside an operation, before it counts that."""

_OURS = "hinan.trainer."


class Stand(NamedTuple):
    """Where a frame is. Not the frame itself: its locals are the trainer's tensors. The place of one that lives is given to
    no other; one that has ended may have a successor there, which can only be taken for it, and waited for."""

    frame: int
    instruction: int


class UnderWay:
    """What the other threads were doing when this was made."""

    def __init__(self, trainer: int, *, may_wait: bool = True) -> None:
        """
        Args:
            trainer: ident of the thread whose operations count. The calling thread is asked about nothing.
            may_wait: where the trainer sleeps, if only now and then, he may be waiting for others: theirs count as well.
        """
        self._trainer = trainer
        stacks = _stacks()
        stacks.pop(threading.get_ident(), None)
        self._stands = {ident: stack.stand for ident, stack in stacks.items() if not stack.is_ours}
        known = _native_ids()
        self._natives = task_ids() - {threading.get_native_id()} - set(known.values())
        if trainer in self._stands and not (may_wait and _sleeps(known.get(trainer, 0))):
            self._stands = {trainer: self._stands[trainer]}
        self._asleep = asleep(self._concerned)
        self._looked_at = time.monotonic()
        self._turns = 0
        if trainer in self._stands:
            self._ask()

    def has_ended(self) -> bool:
        """Whether all of it is over. Once true, whatever it has written was counted."""
        stacks = _stacks(self._stands)
        self._stands = {
            ident: stand
            for ident, stand in self._stands.items()
            if ident in stacks and self._stands_still(ident, stand, stacks[ident])
        }
        # Who sleeps in what the call has called back may have written already, and torch counts it when that returns.
        called_back = any(stand != stacks[ident].stands[0] for ident, stand in self._stands.items())
        if self._stands and not called_back and self._all_have_slept():
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
        return _turns() == self._turns

    def _all_have_slept(self) -> bool:
        """At one moment between this look and the last one all of them slept, and nobody was left to work for another."""
        if time.monotonic() - self._looked_at < _shortest_sleep_s():
            return False
        now = asleep(self._concerned)
        have_slept = all(task in now and now[task] == self._asleep.get(task) for task in self._concerned)
        self._asleep, self._looked_at = now, time.monotonic()
        return have_slept

    @property
    def _concerned(self) -> frozenset[int]:
        """Threads, by the kernel's numbers, that may be at work on what is not over. One that was started without
        `threading` is among those that seem not to be Python's, and those may be a team that works for one that is."""
        known = _native_ids()
        return frozenset(known[ident] for ident in self._stands if ident in known) | ((self._natives - ours) & task_ids())

    def _ask(self) -> None:
        self._turns = _turns()
        if _is_main(self._trainer):
            # Should the queue be full, those in it are posts of ours as well, or the stack has to do.
            _add_pending_call(_sem_post, _semaphore)


class Stack:
    """A thread's frames as they are now, the innermost first.

    Attributes:
        stand: the outermost call into C that may be an operation: below Python that torch has called back, else the top.
        is_ours: whether the thread was started by this package, or stands in it: it changes nothing of the trainer's.
    """

    def __init__(self, top: FrameType) -> None:
        self.stands: list[Stand] = []
        below_called_back, bottom = 0, top
        frame: FrameType | None = top
        while frame is not None:
            self.stands.append(Stand(id(frame), frame.f_lasti))
            if frame.f_code.co_name in _CALLED_BACK:
                below_called_back = len(self.stands)
            bottom, frame = frame, frame.f_back
        self.stand = self.stands[min(below_called_back, len(self.stands) - 1)]
        self.is_ours = _is_ours(bottom) or (_is_ours(top) and not below_called_back)


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith(_OURS)


def _stacks(idents: Container[int] | None = None) -> dict[int, Stack]:
    """The stacks of some threads, or of all.

    Ordering: no collection meanwhile. Python 3.11 makes the objects of another thread's frames as they are asked for; if it
    collects garbage for that, lets that thread run, and it leaves the frame, it writes into memory that is somebody else's.
    """
    with _walking:  # or one walk would switch it on in the middle of another
        collects = sys.version_info < (3, 12) and gc.isenabled()
        try:
            if collects:
                gc.disable()
            return {ident: Stack(top) for ident, top in sys._current_frames().items() if idents is None or ident in idents}
        finally:
            if collects:
                gc.enable()


_walking = threading.Lock()


def _native_ids() -> dict[int, int]:
    """The kernel's numbers of Python's threads, by ident. Not by `threading.enumerate`: its lock may be held by a trainer
    whom a signal's handler has interrupted there, and who waits for us."""
    active: dict[int, threading.Thread] = threading._active  # type: ignore[attr-defined]
    return {ident: thread.native_id for ident, thread in active.copy().items() if thread.native_id is not None}


def _sleeps(task: int) -> bool:
    """Whether a thread sleeps at one of a few moments, as one that polls does."""
    for _ in range(5):
        if asleep([task]):
            return True
        time.sleep(0.001)  # the kernel tells nobody that a thread falls asleep
    return False


def _shortest_sleep_s() -> float:
    """Who waits for the interpreter, perhaps inside an operation, wakes up in each of its switching intervals."""
    return 2.5 * sys.getswitchinterval()


def _is_main(thread: int) -> bool:
    """Whether it is the one that does pending calls, also in a forked child."""
    return threading.main_thread().ident == thread


# How often the main thread has been between two instructions when it was asked to say so. What it does for that is one
# call into C, `sem_post`: in a function of Python a signal's handler might raise, and nobody would hear of it.
_libc = ctypes.CDLL(None)
_semaphore = ctypes.create_string_buffer(64)  # a sem_t, and never freed: a call may be pending until the interpreter ends
_libc.sem_init(_semaphore, 0, 0)
_sem_post = ctypes.cast(_libc.sem_post, ctypes.c_void_p)
_add_pending_call = ctypes.pythonapi.Py_AddPendingCall
_add_pending_call.argtypes, _add_pending_call.restype = (ctypes.c_void_p, ctypes.c_void_p), ctypes.c_int


def _turns() -> int:
    value = ctypes.c_int()
    _libc.sem_getvalue(_semaphore, ctypes.byref(value))
    return value.value
