"""Background threads give way, and only they."""

from __future__ import annotations

import os
import threading

from hinan.host.priority import NICE, yield_to_training


def test_only_the_calling_thread_gives_way() -> None:
    """Its own niceness rises, a second call changes nothing, and the other threads of the process stay as they are."""
    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    found: list[int] = []

    def work() -> None:
        for _ in range(2):
            yield_to_training()
            found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [max(NICE, before)] * 2
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == before
