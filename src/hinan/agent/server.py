"""Answers trainers and the command over the agent's unix socket (docs/formats/messages.md).

Owns:      the connections, and the requests that wait for something to become true.
Promises:  every request is answered or its connection is closed; only processes of the same user are heard.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
from collections import Counter
from collections.abc import Callable

import msgspec

from hinan.agent.loop import Node
from hinan.agent.status import status
from hinan.agent.trainers import Trainer
from hinan.core.agenda import stays
from hinan.core.errors import BudgetError
from hinan.core.ids import StepId
from hinan.core.retention import Keep
from hinan.core.slot import Phase
from hinan.core.watermark import held_everywhere
from hinan.formats import messages as m
from hinan.host.process import Process
from hinan.host.rpc import short_path

log = logging.getLogger("hinan.agent")

_LINE_BYTES = 1 << 20
REFRESH_S = 1.0
"""How long an answer waits for a fresh look at the target; after that the last one must do."""
Ready = Callable[[], m.Answer | None]


class Server:
    """The agent's ears and mouth."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._waiting: dict[asyncio.Future[m.Answer], Ready] = {}
        node.on_change.append(self._look)
        self.connections = 0

    async def listen(self) -> asyncio.AbstractServer:
        """Start to listen. The socket is made under a mask that leaves it to the owner alone."""
        path = self._node.arena.root / "agent.sock"
        path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        mask = os.umask(0o177)
        try:
            with short_path(path) as name:
                listening.bind(name)
        finally:
            os.umask(mask)
        return await asyncio.start_unix_server(self._serve, sock=listening, limit=_LINE_BYTES)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("socket")
        if not _is_same_user(peer):
            writer.close()
            return
        self.connections += 1
        session = _Session(self._node, self)
        pending: set[asyncio.Task[None]] = set()
        try:
            while line := await reader.readline():
                ask = m.ask_decoder.decode(line)
                task = asyncio.create_task(self._reply(session, ask, writer))
                pending.add(task)
                task.add_done_callback(lambda done: self._replied(done, pending, writer))
        except (ConnectionError, msgspec.DecodeError, ValueError, asyncio.LimitOverrunError) as error:
            log.info("connection.lost error=%r", str(error))
        finally:
            for task in pending:
                task.cancel()
            session.end()
            self.connections -= 1
            writer.close()

    def _replied(self, done: asyncio.Task[None], pending: set[asyncio.Task[None]], writer: asyncio.StreamWriter) -> None:
        """A request that met a bug must not leave its asker waiting: the connection is closed."""
        pending.discard(done)
        if not done.cancelled() and (error := done.exception()) is not None:
            if not isinstance(error, ConnectionError):
                log.error("bug in an answer", exc_info=error)
            writer.close()

    async def _reply(self, session: _Session, ask: m.Ask, writer: asyncio.StreamWriter) -> None:
        answer = await session.answer(ask.body)
        node = self._node
        reply = m.Reply(
            ask.number,
            answer,
            news=session.news(),
            failed_in_a_row=node.failed_in_a_row,
            committed=node.snapshot.committed,
            drain_s=node.drain_s,
        )
        with contextlib.suppress(ConnectionError):
            writer.write(m.line(reply))
            await writer.drain()

    async def until(self, ready: Ready) -> m.Answer:
        """Wait until `ready` has an answer; it is asked after every look of the node."""
        if (now := ready()) is not None:
            return now
        future: asyncio.Future[m.Answer] = asyncio.get_running_loop().create_future()
        self._waiting[future] = ready
        self._node.look()
        try:
            return await future
        finally:
            self._waiting.pop(future, None)

    def _look(self) -> None:
        for future, ready in list(self._waiting.items()):
            if future.done():
                continue
            try:
                if (answer := ready()) is not None:
                    future.set_result(answer)
            except Exception as error:  # one request that fails must not take the agent, and everybody's, with it
                log.exception("bug in a waiting request")
                future.set_exception(error)


def _is_same_user(peer: socket.socket) -> bool:
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    return bool(uid == os.getuid())


class _Session:
    """One connection: a trainer after its hello, or a visitor."""

    def __init__(self, node: Node, server: Server) -> None:
        self._node, self._server = node, server
        self._trainer: Trainer | None = None
        self._hello: m.Hello | None = None
        self._reads: list[str] = []
        self._told = node.told

    def news(self) -> list[str]:
        """Failures since this connection was last told."""
        new, self._told = self._node.told - self._told, self._node.told
        return list(self._node.news)[-new:] if new else []

    def end(self) -> None:
        """The connection closed: its read leases end; its process may well live on."""
        self._node.keeper.unread(self._reads)
        self._node.look()

    async def answer(self, request: m.Request) -> m.Answer:  # noqa: PLR0911 - one return a message
        """The answer to any request."""
        match request:
            case m.Hello():
                return await self._meet(request)
            case m.Lease():
                return await self._lease(request)
            case m.Sealed():
                self._node.look()
                return m.Done()
            case m.Settle():
                await self._node.refresh_within(REFRESH_S)
                return await self._server.until(self._settled)
            case m.Read():
                return self._read(request)
            case m.Release():
                self._node.keeper.unread(self._reads)
                self._reads = []
                self._node.look()
                return m.Done()
            case m.Watch():
                return await self._watch(request)
            case m.Status():
                return m.Done(status(self._node))
            case m.Close():
                return await self._close(request)
            case m.Stop():
                self._node.grace_s = request.grace_s
                self._node.stop_reason = f"asked to stop (grace {request.grace_s:g} s)"
                self._node.look()
                return m.Done()

    def _fenced(self) -> m.Refused | None:
        newest = self._node.snapshot.history.newest_claim
        if self._hello is not None and self._hello.attempt < newest:
            return m.Refused("fenced", f"attempt {newest} of this run has started; attempt {self._hello.attempt} must end")
        return None

    async def _meet(self, hello: m.Hello) -> m.Answer:
        if hello.run_id != self._node.run_id:
            return m.Refused("unknown", f"this agent keeps run {self._node.run_id}, not {hello.run_id}")
        await self._node.refresh_within(REFRESH_S)
        trainer = self._node.trainers.meet(Process(hello.pid, hello.start_ticks), hello.attempt, hello.rank)
        if trainer is None:
            return m.Refused("unknown", f"there is no process {hello.pid} here (another PID namespace?)")
        trainer.hello = self._hello = hello
        self._node.met(hello.attempt)
        if self._fenced() is None:
            self._node.keep = Keep(hello.keep_last, hello.keep_every)
            self._node.ram_cap_bytes = hello.ram_bytes
        trainer.leased = set(hello.holding)
        self._trainer = trainer
        log.info("trainer.met rank=%d attempt=%d pid=%d", hello.rank, hello.attempt, hello.pid)
        return self._fenced() or m.Done({"held_bytes": sum(f.image_bytes for f in self._node.keeper.files.values())})

    async def _lease(self, request: m.Lease) -> m.Answer:
        if self._trainer is None or self._hello is None:
            return m.Refused("unknown", "say hello first")
        trainer, ranks = self._trainer, self._hello.local_ranks
        if request.holding is not None:
            trainer.leased = set(request.holding)
        trainer.device = request.device
        if self._hello.attempt not in self._node.snapshot.history.resumes:
            self._node.refresh_soon()  # it resumed a moment ago; until that is read, its slots all stay

        def ready() -> m.Answer | None:
            if (fenced := self._fenced()) is not None:
                return fenced
            try:
                state = self._node.state()
                slot = self._node.keeper.lease(trainer, request.image_bytes, ranks, state.slots, stays(state))
            except BudgetError as error:
                return m.Refused("budget", str(error))
            except OSError as error:
                return m.Refused("full", f"no room for a slot in {self._node.arena.root}: {error.strerror}")
            return m.Granted(slot, request.image_bytes) if slot else None

        return await self._server.until(ready)

    def _settled(self) -> m.Answer | None:
        # Looked at now: before this agent's first look, or since its last one, there may be seals it has not seen.
        state = self._node.state()
        waiting = [s for s in state.slots if s.phase is Phase.SEALED and s.name not in state.unprovable]
        return None if waiting else m.Done()

    def _read(self, request: m.Read) -> m.Answer:
        self._node.state()  # looked at now: an agent that has just been started knows no slot before its first look
        missing = [slot for slot in request.slots if slot not in self._node.keeper.files]
        if missing:
            return m.Refused("unknown", f"there is no slot {missing[0]}")
        self._node.keeper.read(request.slots)
        self._reads += request.slots
        return m.Done()

    async def _watch(self, request: m.Watch) -> m.Answer:
        node, step_id = self._node, StepId(request.attempt, request.step)
        if request.moment == "committed":
            node.wanted[step_id] += 1

        def ready() -> m.Answer | None:
            if (fenced := self._fenced()) is not None:
                return fenced
            state = node.state()
            if step_id in state.committed:
                return m.Done()
            newest = state.history.newest_claim
            if request.attempt < newest:
                return m.Refused("fenced", f"attempt {newest} of this run has started; attempt {request.attempt} must end")
            if step_id in state.lost:
                return m.Refused("failed", f"{step_id} is lost: {node.arena.why_lost(step_id)}")
            if request.moment == "held":
                w = state.w
                return m.Done() if step_id in held_everywhere(node.slots) or (w is not None and w >= step_id) else None
            if node.target_lost:
                return m.Refused("failed", node.where_it_stays(str(step_id)))
            if (why := node.why_not_committed(step_id)) is not None:
                return m.Refused("failed", why)
            if state.reachable and step_id != state.round and not any(s.holds == step_id for s in state.slots):
                return m.Refused("failed", f"{step_id} was replaced in RAM by a newer step before it was committed")
            return None

        try:
            return await self._server.until(ready)
        finally:
            if request.moment == "committed":
                node.wanted[step_id] -= 1  # nobody waits any more, also when the caller has gone: nothing is kept for it
                node.wanted += Counter()
                node.look()

    async def _close(self, request: m.Close) -> m.Answer:
        node = self._node
        if self._trainer is None:
            return m.Refused("unknown", "say hello first")
        self._trainer.closed = True
        log.info("trainer.closing rank=%d step=%d", self._trainer.rank, request.step)
        await node.refresh_within(REFRESH_S)

        def ready() -> m.Answer | None:
            if (fenced := self._fenced()) is not None:
                return fenced
            attempt = node.snapshot.history.newest_claim  # older attempts are fenced; nobody waits for what is left of them
            if not all(t.closed for t in node.trainers.alive if t.hello is not None and t.attempt >= attempt):
                return None
            if not node.closing:
                node.closing = True
                node.look()
            state = node.state()
            if node.target_lost:
                return m.Refused("failed", node.where_it_stays("the newest step"))
            w, line = state.w, state.line
            if w is None or any(s >= w and s in line for s in state.committed):
                return m.Done({"committed": node.snapshot.committed})
            why = node.why_not_committed(w)
            return None if why is None else m.Refused("failed", why)

        answer = await self._server.until(ready)
        if isinstance(answer, m.Done) and not request.keep_ram:
            node.ram_is_spare = True
        return answer
