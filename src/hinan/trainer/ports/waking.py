"""What threads wait for here: safe from a signal's handler that raises in the training thread, at whatever line.

`threading.Event` and `Condition` are not. They are written in Python: an exception between the lines of their own
`with self._cond` (Ctrl-C, a time-out of the user's) leaves a lock taken for ever, and the next wait for it never ends. Here
every step that takes or gives a lock is one call into C, and whoever waits looks again at what has happened.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress

LOOK_AGAIN_S = 1.0
"""Who was interrupted between two calls may not have woken the next one; so often a thread that waits looks by itself."""


class Once:
    """Something that happens once. Any thread may wait for it, however often."""

    def __init__(self) -> None:
        self._has_happened = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """It has happened; a second word says the same."""
        self._has_happened = True
        with suppress(RuntimeError):  # released already
            self._lock.release()

    def is_set(self) -> bool:
        """Whether it has happened."""
        return self._has_happened

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for it, so long at most [s]; whether it has happened."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._has_happened:
            left = LOOK_AGAIN_S if deadline is None else min(LOOK_AGAIN_S, deadline - time.monotonic())
            if left <= 0:
                return False
            if self._lock.acquire(timeout=left):
                self.set()  # for the next one who waits
        return True


class Bell:
    """Wakes one thread that waits for what others change. What they change is the truth; a ring says only: look."""

    def __init__(self) -> None:
        self._rings: queue.SimpleQueue[None] = queue.SimpleQueue()

    def ring(self) -> None:
        """Call it after the change. Rings that nobody hears do not pile up."""
        if self._rings.empty():
            self._rings.put(None)

    def wait_for(self, is_so: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until something is so, so long at most [s]; whether it is."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not is_so():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            with suppress(queue.Empty):
                self._rings.get(timeout=left)
        return True
