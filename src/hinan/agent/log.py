"""The agent's log: it lies in RAM, so it must not grow, and it is no place to fail.

Owns:      descriptors 1 and 2 of the agent, and the names `agent.log` and `agent.log.1` of its arena.
Promises:  the two files together stay below twice LOG_BYTES and a line; no error of the file system reaches the agent.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

from hinan.tiers.arena import LOG, OLD_LOG

LOG_BYTES = 1 << 20
"""Some ten thousand lines. A full file becomes the old one, which is then overwritten by the next."""


class CappedLog(logging.Handler):
    """Writes lines to standard output; where that is the arena's log, begins a new file when it is full."""

    def __init__(self, arena: Path, log_bytes: int = LOG_BYTES) -> None:
        super().__init__()
        self._path, self._old, self._log_bytes = arena / LOG, arena / OLD_LOG, log_bytes
        self.setFormatter(logging.Formatter("%(asctime)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        # Why not a stream: what a full tmpfs refuses would stay in its buffer, which then grows line by line.
        with contextlib.suppress(OSError):
            self._begin_anew_if_full()
        with contextlib.suppress(OSError):
            os.write(1, self.format(record).encode(errors="replace") + b"\n")

    def _begin_anew_if_full(self) -> None:
        now = os.fstat(1)
        if now.st_size < self._log_bytes:
            return
        named = self._path.stat()
        if (named.st_dev, named.st_ino) != (now.st_dev, now.st_ino):
            return  # somebody else's file, whose size is not ours to bound
        self._path.replace(self._old)
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        for standard in (1, 2):  # a traceback that Python prints goes to the same file
            os.dup2(fd, standard)
        os.close(fd)
