"""Whether what another thread was doing has ended. An operation of torch is one call into C, in one instruction of Python.

Why: torch counts an in-place write when it has been done (on a device: enqueued), not when it begins. Whoever looks at the
count while a write goes on sees nothing of it; he looks again, for good, when the call that was under way is over.

Two signs, each enough. The thread's stack no longer stands in that instruction: true of any thread, but a loop around one
long call is found in it again at every look. And for the main thread the interpreter itself: what is left to it as a
pending call is done between two instructions; but they may be some that the call itself has called back, so nothing of that
counts from before the last look at which it had.
"""

from __future__ import annotations

import ctypes
import queue
import selectors
import socket
import subprocess
import sys
import threading
from multiprocessing import connection
from types import FrameType

from hinan.trainer.ports import waking

_WAITING = frozenset(m.__file__ for m in (threading, waking, selectors, queue, socket, subprocess, connection))
"""Who stands here waits for another thread or process, and changes nothing. Not so autograd's engine: its hooks may."""


class UnderWay:
    """What a thread was doing when this was made.

    Keeps no frame: its locals are the trainer's tensors. The place of one that lives is given to no other; one that has
    ended may have a successor there, which can only be taken for it, and waited for.
    """

    def __init__(self, thread: int) -> None:
        """
        Args:
            thread: its ident. Of the calling thread nothing is under way, nor of one that has ended.
        """
        self._thread = thread
        frame = None if thread == threading.get_ident() else _top(thread)
        self._stand = None if frame is None or frame.f_code.co_filename in _WAITING else (id(frame), frame.f_lasti)
        self._turns = 0
        if self._stand is not None:
            self._ask()

    def has_ended(self) -> bool:
        """Whether it is over. Once true, whatever it has written was counted."""
        if self._stand is None:
            return True
        frame = top = _top(self._thread)
        # All of the stack: what was called may have called Python back (a hook, a finalizer), and goes on afterwards.
        while frame is not None and (id(frame), frame.f_lasti) != self._stand:
            frame = frame.f_back
        if frame is None:
            return True
        if frame is not top:
            self._ask()  # what the interpreter does meanwhile it does inside the call
            return False
        return _is_main(self._thread) and _turns() != self._turns

    def _ask(self) -> None:
        self._turns = _turns()
        if _is_main(self._thread):
            # Should the queue be full, those in it are posts of ours as well, or the stack has to do.
            _add_pending_call(_sem_post, _semaphore)


def _top(thread: int) -> FrameType | None:
    return sys._current_frames().get(thread)


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
