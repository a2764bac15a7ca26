"""What /proc says: memory, descriptors, threads, waits, and which process is the agent of a run."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any


def status(pid: int | str) -> dict[str, int]:
    """The numbers of /proc/<pid>/status; sizes in KiB."""
    fields = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) for words in fields if len(words) > 1 and words[1].isdecimal()}


def own_kib(pid: int | str) -> int:
    """Resident memory without what lies in a tmpfs, where the arena is."""
    found = status(pid)
    return found["RssAnon"] + found["RssFile"]


def descriptors(pid: int | str) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def names_below(root: Path) -> int:
    """Files and directories below one."""
    return sum(len(directories) + len(files) for _, directories, files in os.walk(root))


def processes(root: Path) -> dict[int, list[bytes]]:
    """Command lines, by process id, of those that were given a path below a directory."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if any(w.startswith(f"{root}/".encode()) for w in words):
                    found[int(entry.name)] = words
    return found


def agents(root: Path) -> list[int]:
    """Process ids of node agents whose target lies below a directory."""
    return [pid for pid, words in processes(root).items() if b"hinan.agent" in words]


def wait_for_agent(ram: Path) -> None:
    """Wait until an agent listens in an arena below `ram`."""
    _wait(lambda: any(ram.glob("hinan-*/*/*/agent.sock")), f"no agent listens below {ram}")


def wait_for_no_arena(ram: Path) -> None:
    """Wait until no image and no agent is left below `ram`."""
    _wait(lambda: not any(p.name.endswith((".img", ".sock")) for p in ram.rglob("*")), f"an arena stays below {ram}")


def wait_for_slot(evac: Any) -> None:
    """Wait until the slot of the next evacuation is there, mapped and touched in this process."""
    _wait(lambda: evac._liaison._lease is not None, "no slot is there", 120.0)


def _wait(reached: Callable[[], bool], complaint: str, timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError(complaint)
        time.sleep(0.01)


def end_all(root: Path) -> None:
    """End what a figure has left behind: agents, and ranks whose launcher was killed."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in processes(root):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + 2.0
        while processes(root) and time.monotonic() < deadline:
            time.sleep(0.02)


class Peak:
    """The most own memory of a process since the last `take`, sampled every few milliseconds in a thread."""

    def __init__(self, pid: int | str, field: str | None = None, every_s: float = 0.004) -> None:
        self._pid, self._field, self._every_s, self._most_kib = pid, field, every_s, 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(self._every_s):
            self._look()

    def _look(self) -> None:
        with suppress(OSError, KeyError):
            kib = status(self._pid)[self._field] if self._field else own_kib(self._pid)
            self._most_kib = max(self._most_kib, kib)

    def take(self) -> float:
        """MiB."""
        self._look()
        most, self._most_kib = self._most_kib, 0
        return most / 1024

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
