"""The processes of a demo: found by a mark in their environment, killed by pid and start time.

Promises:  every process that a demo has started, also one that nobody is the parent of any more, carries the mark; so
           killing "everything of the run" and leaving nothing behind are exact.
Relies on: a child inheriting its parent's environment from the moment of the fork on.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from hinan.host.process import Process, kill, process

MARK = "HINAN_DEMO_MARK"
_LOOK_EVERY_S = 0.02


def marked(mark: str) -> list[Process]:
    """The running processes that carry a mark."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - names alone, hundreds of them
        if name.isdigit() and wanted in _environment(name):
            who = process(int(name))
            if who.is_alive:
                found.append(who)
    return found


def _environment(pid: str) -> list[bytes]:
    try:
        return (Path("/proc") / pid / "environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or is somebody else's
        return []


def kill_at_once(victims: Iterable[Process]) -> int:
    """SIGKILL processes one right after the other; how many were alive."""
    return sum(kill(who, signal.SIGKILL) for who in victims)


def wait_for_ends(victims: Iterable[Process], timeout_s: float = 10.0) -> list[Process]:
    """Wait until processes have ended; those that have not."""
    deadline = time.monotonic() + timeout_s
    while left := [who for who in victims if who.is_alive]:
        if time.monotonic() > deadline:
            return left
        time.sleep(_LOOK_EVERY_S)  # bounded by the deadline; many foreign processes have no one event to wait for
    return []


def end_all(mark: str, timeout_s: float = 10.0) -> list[Process]:
    """SIGKILL whatever carries the mark until nothing does, also what is being forked meanwhile; what would not die."""
    deadline = time.monotonic() + timeout_s
    while victims := marked(mark):
        kill_at_once(victims)
        if time.monotonic() > deadline:
            return victims
        wait_for_ends(victims, 1.0)
    return []
