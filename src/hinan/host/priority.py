"""Background threads that give way to training: on the processor, and at the disk."""

from __future__ import annotations

import ctypes
import os
import platform
import threading

from hinan.host.signals import suppress_ours

NICE = 10
"""A tenth of a processor that training wants too. With 19 it would be a seventieth, and a thread that is kept waiting with
the interpreter's lock in hand keeps the agent's loop waiting too."""

_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
_WHO_PROCESS, _BEST_EFFORT_LOWEST = 1, (2 << 13) | 7


def yield_to_training() -> None:
    """Give the calling thread a low priority for good; whatever of it the system refuses stays as it was.

    Linux keeps both for each thread. Not the idle classes: on a busy host a drain would starve, and commits with it.
    """
    me = threading.get_native_id()
    with suppress_ours(OSError):
        os.setpriority(os.PRIO_PROCESS, me, max(NICE, os.getpriority(os.PRIO_PROCESS, me)))
    number = _IOPRIO_SET.get(platform.machine())
    if number is not None:
        ctypes.CDLL(None).syscall(number, _WHO_PROCESS, me, _BEST_EFFORT_LOWEST)
