"""The agent's threads that block, one a lane, and what is going on in them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
Ended = Callable[[str, BaseException | None], None]

LANES = ("reserve", "prove", "drain", "target")
"""To reserve slots, to prove, to drain, and to read and tidy the target."""


class Lanes:
    """Runs coroutines beside the loop, and what blocks in a thread that does nothing else at that moment."""

    def __init__(self, ended: Ended) -> None:
        """
        Args:
            ended: called with the name of what was begun, and the error that it must not have raised.
        """
        self._ended = ended
        self._threads = {lane: ThreadPoolExecutor(1, f"hinan-{lane}") for lane in LANES}
        self._running: dict[asyncio.Task[None], str] = {}
        self.ending = threading.Event()
        """Set when the agent ends: what takes long should stop."""

    @property
    def busy(self) -> set[str]:
        """Names of what was begun and has not ended."""
        return set(self._running.values())

    def begin(self, name: str, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Have something done beside the loop."""
        task = asyncio.create_task(work)
        self._running[task] = name
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._ended(self._running.pop(task), None if task.cancelled() else task.exception())

    async def call(self, lane: str, work: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R:
        """Run a function in the thread of a lane; its value."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads[lane], lambda: work(*arguments, **named))

    async def all_done(self) -> None:
        """Wait until nothing is going on."""
        while self._running:
            await asyncio.wait(self._running)

    async def finish(self, name: str, patience_s: float) -> None:
        """Wait for one of them up to some time; then stop the threads."""
        last = {task for task, begun in self._running.items() if begun == name}
        if last:
            await asyncio.wait(last, timeout=patience_s)
        self.ending.set()
        for pool in self._threads.values():
            pool.shutdown(wait=False, cancel_futures=True)
