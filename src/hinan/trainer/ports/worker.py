"""A thread that does one thing after another, started when there is something to do.

Why not `threading.Thread`: its `start` and `is_alive` are written in Python. A signal's handler that raises inside them can
leave a living thread marked as ended, and a second one beside it would run copies out of order. Here a thread is started by
one call into C, and a lock, not a question, says that only one works.

What such a thread has to say it says aside (`log_aside`): a signal's handler that has interrupted the main thread inside a
call of `logging` may be waiting for the thread, which would wait for the lock of that call.
"""

from __future__ import annotations

import _thread
import atexit
import ctypes
import logging
import os
import queue
import threading
import traceback
import weakref
from collections.abc import Callable

from hinan.trainer.ports.waking import Once

log = logging.getLogger("hinan")

Work = Callable[[], object]

ours: set[int] = set()
"""The kernel's numbers of the threads that work here: `threading` does not know them."""

LOG_S = 1.0
"""How long a thread waits for its line of the log: longer than handlers of `logging` take that nobody holds up, so lines
come in their order; and shorter than whoever waits for that thread, with the lock of `logging` in his hands, would mind."""

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
            except BaseException as error:  # noqa: BLE001 - nobody waits here for an answer, and others' work comes next
                log_aside(logging.ERROR, "bug in %s", self.name, error=error)
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
            weakref.finalize(self, line.end).atexit = False  # as the interpreter ends there may still be something to put
            self._line = line
        line.start()
        line.work.put(work)

    def end(self) -> None:
        """The thread ends when all that was put is done; what is put later gets another one."""
        line, self._line = self._line, None
        if line is not None:
            line.end()


def log_aside(level: int, text: str, *args: object, error: BaseException | None = None) -> None:
    """Log a line from whatever thread. The main thread does it itself; of any other the line is handed over, and waited for
    only so long (`LOG_S`): then it comes later.

    Args:
        error: whose traceback is logged with it.
    """
    if threading.get_ident() == threading.main_thread().ident:
        log.log(level, text, *args, exc_info=error)
        return
    said = Once()
    _unsaid.add(said)
    _speaker.put(lambda: _say(said, level, text, args, error))
    said.wait(LOG_S)


def _say(said: Once, level: int, text: str, args: tuple[object, ...], error: BaseException | None) -> None:
    try:
        log.log(level, text, *args, exc_info=error)
    except BaseException:  # noqa: BLE001 - by a filter or handler of the user's, SystemExit too: later lines come all the same
        traceback.print_exc()
    finally:
        said.set()
        _unsaid.discard(said)


def end_log_thread() -> None:
    """The thread that logs ends when all lines are said; one that comes later gets another one."""
    _speaker.end()


def say_the_rest() -> None:
    """Wait until all lines that were handed over are said, so long for each one; then the interpreter may end."""
    for said in tuple(_unsaid):
        if not said.wait(LOG_S):
            return


_speaker = Worker("hinan-log")
_unsaid: set[Once] = set()
atexit.register(say_the_rest)
