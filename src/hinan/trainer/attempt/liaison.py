"""The trainer's side of the agent: a thread that keeps one lease in hand, so that no evacuation waits for a message.

Owns:      the connection, the lease for the next evacuation, and what the agent has reported.
Promises:  the training thread never blocks on the agent except in `take`, up to the time it states. A dead agent is
           started again here, off the critical path (rule B7); a frozen one costs `take` its time-out once.
"""

from __future__ import annotations

import logging
import os
import subprocess
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hinan.core.errors import AgentError, ArenaFull, BudgetError, Fenced, HinanError, SavingError
from hinan.formats import messages as m
from hinan.host.rpc import AgentClient
from hinan.host.spawn import connect
from hinan.trainer.ports.waking import Bell, Once
from hinan.trainer.ports.worker import log_aside

LEASE_WAIT_S = 3600.0
AGENT_START_S = 20.0
RETRY_S = 0.5
FENCED = "fenced"


@dataclass(frozen=True)
class Place:
    """Where the agent of this run and node is, and how to start it."""

    target: Path
    arena: Path
    node: str
    attempt: int = 0

    def connect(self, timeout_s: float = AGENT_START_S) -> AgentClient:
        """A new connection; the agent is started if none runs."""
        return connect(self.arena, timeout_s, (self.target, self.arena, self.node), self.attempt)


class Liaison:
    """One thread, one connection, one lease ahead."""

    def __init__(
        self, place: Place, hello: Callable[[list[str]], m.Hello], prepare: Callable[[str], None], timeout_s: float
    ) -> None:
        """
        Args:
            hello: the greeting of this process, given the slots it holds.
            prepare: called in this thread with the name of each slot that was granted, before it is taken.
            timeout_s: how long `take` waits at most.
        """
        self._place, self._hello, self._prepare, self._timeout_s = place, hello, prepare, timeout_s
        self._lock = threading.RLock()  # a signal's handler may close the run while its thread stands here
        self._asked, self._answered = Bell(), Bell()
        self._wanted_bytes: int | None = None
        self._lease: m.Granted | None = None
        self._filling: set[str] = set()
        self._refused: m.Refused | None = None
        """Not the error itself: one that was raised has the frames it went through, and they have what the loop has."""
        self._patience_s = timeout_s
        self._stopping = Once()
        self._client: AgentClient | None = None
        self._connections = 0
        self._lost_in_a_row = 0
        self.news: list[str] = []
        self.failed_in_a_row = 0
        self.drain_s: float | None = None
        self.device: str | None = None
        """PCI address of the device that writes the images, when that is known; the agent makes slots near it."""
        self.attention = False
        """Something has happened that the next `evac.step()` must look at. A plain flag: reading it costs nothing."""
        self._thread = threading.Thread(target=self._live, name="hinan-liaison", daemon=True)
        self._thread.start()
        _close_in_children(self)

    @property
    def agent_restarts(self) -> int:
        """How often the agent had to be started or found again."""
        return max(0, self._connections - 1)

    @property
    def why_none(self) -> str:
        """Why `take` has found no slot."""
        if not self._lost_in_a_row:
            return "no slot was free in time (the agent is slow or every slot is needed)"
        times, log_file = self._lost_in_a_row, self._place.arena / "agent.log"
        return (
            f"no slot was free in time (since the last one the agent has died, or not started, {times} time(s); {log_file} "
            "may say why, or the kernel's log if it was killed)"
        )

    def want(self, image_bytes: int) -> None:
        """Ask, in the background, for a slot of this size."""
        with self._lock:
            if self._lease is not None and self._lease.image_bytes != image_bytes:
                self._lease = None
            self._wanted_bytes = image_bytes
        self._asked.ring()

    def take(self, image_bytes: int) -> str | None:
        """The leased slot; None if none came in time (then the next call does not wait until the agent has answered).

        Raises:
            BudgetError, Fenced, SavingError: the agent refused.
        """
        self.want(image_bytes)
        self._answered.wait_for(lambda: self._lease is not None or self._refused is not None, self._patience_s)
        with self._lock:
            self._raise_refusal()
            if self._lease is None:
                self._patience_s = 0.0
                return None
            slot, self._lease, self._wanted_bytes = self._lease.slot, None, None
            self._filling.add(slot)
            return slot

    def give_back(self, slot: str) -> None:
        """The slot is sealed, or nothing will come into it: this process does not write into it any more."""
        with self._lock:
            self._filling.discard(slot)

    def give_back_all(self) -> None:
        """No copy is under way: whatever was taken was taken for nothing."""
        with self._lock:
            self._filling.clear()

    def check(self) -> None:
        """Raise what the agent has refused since the last call."""
        with self._lock:
            self._raise_refusal()

    def take_news(self) -> list[str]:
        """Failures in the background since the last call."""
        with self._lock:
            news, self.news = self.news, []
            self.attention = self._refused is not None
            return news

    def close(self) -> None:
        """End the thread and the connection. Leases end with the process, not with the connection."""
        self._stopping.set()
        self._asked.ring()
        self._drop()
        self._thread.join(self._timeout_s)

    # -- the thread ----------------------------------------------------------------------------------------------

    def _live(self) -> None:
        while not self._stopping.is_set():
            try:
                client = self._connected()
                self._serve(client)
            except (HinanError, OSError, ValueError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
                # Whatever went wrong (no process could be started, an answer of another version), the thread lives on:
                # without it no evacuation would ever find a slot again.
                if self._stopping.is_set():
                    return  # it was this process that hung up
                self._lost_in_a_row += 1
                log_aside(logging.WARNING, "agent.lost %s", error)
                self._drop()
                self._asked.wait_for(self._stopping.is_set, RETRY_S)

    def _connected(self) -> AgentClient:
        if self._client is None:
            client = self._place.connect()
            self._hear(client, client.ask(self._hello(self._holding()), AGENT_START_S))
            self._connections += 1
            self._client = client
        return self._client

    def _serve(self, client: AgentClient) -> None:
        self._asked.wait_for(lambda: self._stopping.is_set() or self._needs_lease)
        wanted = self._wanted_bytes
        if self._stopping.is_set() or wanted is None:
            return
        answer = client.ask(m.Lease(wanted, self._holding(), self.device), LEASE_WAIT_S)
        self._hear(client, answer)
        if isinstance(answer, m.Granted):
            self._prepare(answer.slot)
        with self._lock:
            self._patience_s, self._lost_in_a_row = self._timeout_s, 0
            if isinstance(answer, m.Granted) and answer.image_bytes == self._wanted_bytes:
                self._lease = answer
        self._answered.ring()

    def _holding(self) -> list[str]:
        """Slots that this process may write into."""
        with self._lock:
            return sorted(self._filling | ({self._lease.slot} if self._lease is not None else set()))

    @property
    def _needs_lease(self) -> bool:
        return self._wanted_bytes is not None and self._lease is None and self._refused is None

    def _hear(self, client: AgentClient, answer: m.Answer) -> None:
        with self._lock:
            if isinstance(answer, m.Refused):
                self._refused = answer
            if client.last is not None:
                self.failed_in_a_row = client.last.failed_in_a_row
                self.drain_s = client.last.drain_s
            self.news += client.news
            client.news = []
            self.attention = self.attention or bool(self.news) or self._refused is not None
        self._answered.ring()

    def _raise_refusal(self) -> None:
        refused = self._refused
        if refused is not None:
            if refused.kind != FENCED:
                self._refused = None  # a budget or a full tmpfs may be mended; the next evacuation asks again
            raise refusal(refused)

    def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


def refusal(answer: m.Refused) -> HinanError:
    """The error a refusal stands for."""
    kinds: dict[str, type[HinanError]] = {FENCED: Fenced, "budget": BudgetError, "unknown": AgentError, "full": ArenaFull}
    return kinds.get(answer.kind, SavingError)(answer.reason)


def _close_in_children(liaison: Liaison) -> None:
    """A forked child (a DataLoader worker) must not keep the connection open."""
    weak = weakref.ref(liaison)

    def in_child() -> None:
        alive = weak()
        if alive is not None and alive._client is not None:
            alive._client.abandon()

    os.register_at_fork(after_in_child=in_child)
