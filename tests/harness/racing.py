"""Threads that start at the same moment, for what several do at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


def together(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Run threads that start at the same moment; what each returned or raised."""
    barrier, found = threading.Barrier(count), [None] * count

    def run(i: int) -> None:
        barrier.wait()
        try:
            found[i] = work(i)
        except Exception as error:
            found[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found
