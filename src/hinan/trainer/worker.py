"""A thread that does one thing after another, started when there is something to do."""

from __future__ import annotations

import logging
import queue
import threading
import weakref
from collections.abc import Callable

log = logging.getLogger("hinan")

Work = Callable[[], object]
_Queue = queue.SimpleQueue[Work | None]


class Worker:
    """Runs what is put, in order, in one daemon thread that ends with this object."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: _Queue = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, work: Work) -> None:
        """Have something done. What it raises is logged: nobody waits here for an answer."""
        if self._thread is None or not self._thread.is_alive():  # also in a forked child, which has no threads
            self._thread = threading.Thread(target=_run, args=(self._work,), name=self._name, daemon=True)
            self._thread.start()
            weakref.finalize(self, self._work.put, None)
        self._work.put(work)

    def end(self) -> None:
        """The thread ends when all that was put is done."""
        if self._thread is not None and self._thread.is_alive():
            self._thread = None
            self._work.put(None)


def _run(queued: _Queue) -> None:
    while (work := queued.get()) is not None:
        try:
            work()
        except Exception:
            log.exception("bug in %s", threading.current_thread().name)
        del work  # it holds tensors, and the next one may be hours away
