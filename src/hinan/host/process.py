"""Who a process is, and when it has ended: pid and start time together, pidfd for the end (rules B2, B3)."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from hinan.host.signals import ours

_PRIVATE = ("RssAnon", "RssFile")
_STATE, _START_TICKS = 2, 21  # fields of /proc/<pid>/stat, counted from 0 (proc(5) counts from 1)


@dataclass(frozen=True)
class Process:
    """A process for ever: a pid alone is handed out again, pid and start time are not."""

    pid: int
    start_ticks: int

    @property
    def is_alive(self) -> bool:
        """Whether it still runs. A zombie has ended: it writes nothing any more."""
        fields = _stat(self.pid)
        return fields is not None and int(fields[_START_TICKS]) == self.start_ticks and fields[_STATE] not in "ZX"


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except ours(FileNotFoundError, ProcessLookupError):
        return None
    # The command name may hold spaces and parentheses; fields are counted after its last one.
    head, _, tail = text.rpartition(")")
    return [head, "", *tail.split()] if tail else None


def this_process() -> Process:
    """The calling process."""
    return process(os.getpid())


def process(pid: int) -> Process:
    """The process that has this pid now; start time 0 if there is none."""
    fields = _stat(pid)
    return Process(pid, int(fields[_START_TICKS]) if fields else 0)


def private_bytes(pid: int) -> int:
    """Resident memory of a process without the files in RAM that it maps; 0 if there is none."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except ours(FileNotFoundError, ProcessLookupError):
        return 0
    kib = {name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines) if name in _PRIVATE}
    return sum(kib.values()) * 1024


def open_pidfd(who: Process) -> int | None:
    """A descriptor that becomes readable when the process ends; None if it has ended already.

    The caller owns the descriptor.
    """
    try:
        fd = os.pidfd_open(who.pid)
    except ours(ProcessLookupError):
        return None
    # Ordering: the start time is read after pidfd_open, so that a recycled pid is noticed.
    if not who.is_alive:
        os.close(fd)
        return None
    return fd


def kill(who: Process, number: signal.Signals) -> bool:
    """Send a signal to exactly this process; False if it has ended."""
    fd = open_pidfd(who)
    if fd is None:
        return False
    try:
        signal.pidfd_send_signal(fd, number)
    except ours(ProcessLookupError):
        return False
    finally:
        os.close(fd)
    return True
