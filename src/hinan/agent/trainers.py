"""The trainer processes this agent has met, and their leases (rules B2, B3).

Owns:      pidfds of all processes that may still write into the arena, and who holds which lease.
Promises:  a process counts as ended only when its pidfd said so; never because a socket closed or time passed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from hinan.formats.messages import Hello
from hinan.formats.records import OwnerRecord
from hinan.host.process import Process, open_pidfd


@dataclass
class Trainer:
    """One process. `hello` is None for one known only by the slots it owns (its hello went to an earlier agent)."""

    process: Process
    attempt: int
    rank: int
    hello: Hello | None = None
    closed: bool = False
    device: str | None = None
    """PCI address of the device that writes its images; None: none, or not known."""
    leased: set[str] = field(default_factory=set)


class Trainers:
    """All living trainer processes, by pid and start time."""

    def __init__(self, on_exit: Callable[[Trainer], None]) -> None:
        self._on_exit = on_exit
        self._alive: dict[Process, tuple[Trainer, int]] = {}
        self._ended: set[Process] = set()
        self.ended_without_closing = False
        """Whether some trainer ended and had not said that it closes."""

    def meet(self, process: Process, attempt: int, rank: int) -> Trainer | None:
        """Start to watch a process; None if it has ended."""
        if process in self._alive:
            return self._alive[process][0]
        if process in self._ended:
            return None
        fd = open_pidfd(process)
        if fd is None:
            self._ended.add(process)
            return None
        trainer = Trainer(process, attempt, rank)
        self._alive[process] = (trainer, fd)
        asyncio.get_running_loop().add_reader(fd, self._exited, process)
        return trainer

    def owner_alive(self, owner: OwnerRecord) -> bool:
        """Whether the process that may write a slot still runs."""
        return self.meet(Process(owner.pid, owner.start_ticks), owner.attempt, owner.rank) is not None

    def owner(self, owner: OwnerRecord) -> Trainer | None:
        """The trainer behind an owner fact; None if it has ended."""
        return self.meet(Process(owner.pid, owner.start_ticks), owner.attempt, owner.rank)

    @property
    def alive(self) -> list[Trainer]:
        return [trainer for trainer, _ in self._alive.values()]

    def close(self) -> None:
        """Stop watching."""
        for _, fd in self._alive.values():
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)
        self._alive.clear()

    def _exited(self, process: Process) -> None:
        trainer, fd = self._alive.pop(process)
        asyncio.get_running_loop().remove_reader(fd)
        os.close(fd)
        self._ended.add(process)
        self.ended_without_closing |= not trainer.closed
        self._on_exit(trainer)
