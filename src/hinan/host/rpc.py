"""The blocking end of the agent's unix socket: one request, one answer, each with a deadline."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from hinan.core.errors import AgentError
from hinan.formats import messages
from hinan.host.signals import ours, suppress_ours

_READ_BYTES = 1 << 16
_SOCKET_PATH_BYTES = 107


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """A name for a socket that the kernel takes: at most 107 bytes, through a descriptor of its directory if need be."""
    if len(os.fsencode(path)) <= _SOCKET_PATH_BYTES:
        yield str(path)
        return
    fd = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{path.name}"
    finally:
        os.close(fd)


class AgentClient:
    """A connection to a node agent. Not for use by several threads at once."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        """Connect.

        Raises:
            AgentError: nobody listens there, or not in time.
        """
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._socket.settimeout(timeout_s)
        self._numbers = itertools.count(1)
        self._received = b""
        self.news: list[str] = []
        """Failures in the background that answers brought along; whoever reads them clears them."""
        self.last: messages.Reply | None = None
        """The last reply, for what every reply brings along."""
        try:
            with short_path(path) as name:
                self._socket.connect(name)
        except ours(OSError) as error:
            self._socket.close()
            raise AgentError(f"no node agent answers at {path} ({error.strerror or error})", socket=str(path)) from None

    def ask(self, request: messages.Request, timeout_s: float) -> messages.Answer:
        """Send a request and wait for its answer.

        Raises:
            AgentError: no answer in time, or the agent is gone. The connection is closed then: a late answer to this
                request must not be taken for the next one's.
        """
        number = next(self._numbers)
        deadline = time.monotonic() + timeout_s
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(messages.line(messages.Ask(number, request)))
            while True:
                reply = messages.reply_decoder.decode(self._line(deadline))
                self.news += reply.news
                self.last = reply
                if reply.number == number:
                    return reply.body
        except ours(OSError, msgspec.DecodeError) as error:
            self.close()
            what = type(request).__name__.lower()
            if isinstance(error, TimeoutError):
                raise AgentError(
                    f"the node agent did not answer {what!r} in {timeout_s:g} s", request=what, timed_out=True
                ) from None
            raise AgentError(f"the node agent went away during {what!r} ({error})", request=what) from None
        except BaseException:
            self.close()  # in the middle of an answer, perhaps
            raise

    def close(self) -> None:
        """Close the connection; read leases taken over it end. Safe to call twice, and from another thread."""
        with suppress_ours(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for an answer; close alone does not
        self._socket.close()

    def abandon(self) -> None:
        """In a forked child: let go of the descriptor; the connection is the parent's and goes on."""
        self._socket.close()

    def _line(self, deadline: float) -> bytes:
        while b"\n" not in self._received:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
            got = self._socket.recv(_READ_BYTES)
            if not got:
                raise ConnectionResetError("closed by the agent")
            self._received += got
        line, self._received = self._received.split(b"\n", 1)
        return line
