"""A thread that does one thing after another, started when there is something to do.

Why not `threading.Thread`: its `start` and `is_alive` are written in Python. A signal's handler that raises inside them can
leave a living thread marked as ended, and a second one beside it would run copies out of order. Here a thread is started by
one call into C, and a lock, not a question, says that only one works.
"""

from __future__ import annotations

import _thread
import ctypes
import logging
import os
import queue
import threading
import weakref
from collections.abc import Callable

log = logging.getLogger("hinan")

Work = Callable[[], object]

ours: set[int] = set()
"""The kernel's numbers of the threads that work here: `threading` does not know them."""

_PR_SET_NAME = 15
_prctl = ctypes.CDLL(None).prctl


class _Line:
    """What is to be done, in order, by one thread of one process."""

    def __init__(self, name: str) -> None:
        self.name, self.pid = name, os.getpid()
        self.work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self.has_thread = False
        self._at_work = _thread.allocate_lock()

    def start(self) -> None:
        """Have a thread. Whoever was interrupted before he could note that he has one may start another: it finds the work
        taken and ends."""
        if not self.has_thread:
            _thread.start_new_thread(self._run, ())
            self.has_thread = True

    def end(self) -> None:
        """The thread ends when all that was put is done."""
        self.work.put(None)

    def _run(self) -> None:
        if not self._at_work.acquire(blocking=False):
            return
        _prctl(_PR_SET_NAME, self.name.encode())  # in `top -H`, and wherever a debugger lists threads
        ours.add(me := threading.get_native_id())
        while (work := self.work.get()) is not None:
            try:
                work()
            except Exception:
                log.exception("bug in %s", self.name)
            del work  # it holds tensors, and the next one may be hours away
        ours.discard(me)


class Worker:
    """Runs what is put, in order, in one thread that ends with this object."""

    def __init__(self, name: str) -> None:
        """
        Args:
            name: of the thread; the system shows its first 15 characters.
        """
        self._name = name
        self._line: _Line | None = None

    def put(self, work: Work) -> None:
        """Have something done. What it raises is logged: nobody waits here for an answer."""
        line = self._line
        if line is None or line.pid != os.getpid():  # a forked child has no threads
            line = _Line(self._name)
            weakref.finalize(self, line.end)
            self._line = line
        line.start()
        line.work.put(work)

    def end(self) -> None:
        """The thread ends when all that was put is done; what is put later gets another one."""
        line, self._line = self._line, None
        if line is not None:
            line.end()
