"""A process that has imported torch and hinan once and forks trainers from there: a fresh trainer in 20 ms, not in 5 s.

Every child leads a session of its own, runs one function of `tests.programs` with JSON arguments, and ends as a normal
interpreter does (atexit handlers run). Its output goes to a file. The zygote runs no torch operation itself, so that no
thread of a pool is lost in the fork.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


@dataclass
class Child:
    """A forked trainer. `pid` leads its session."""

    pid: int
    log: Path
    zygote: Zygote = field(repr=False)

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal this process alone."""
        os.kill(self.pid, number)

    def wait(self, timeout_s: float = 60.0) -> int:
        """Exit status, negative for a signal; fails with the child's output if it does not end in time."""
        return self.zygote.wait(self, timeout_s)

    def ok(self, timeout_s: float = 60.0) -> Child:
        """Wait for a good end."""
        status = self.wait(timeout_s)
        assert status == 0, f"exit status {status}:\n{self.output}"
        return self


class Zygote:
    """The parent's side. One per test session."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._socket, self._buffer = ours, b""
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.harness.zygote", str(theirs.fileno())],
            pass_fds=[theirs.fileno()], cwd=ROOT, env=environment,
        )  # fmt: skip
        theirs.close()
        self._ended: dict[int, int] = {}

    def spawn(self, program: str, log: Path, env: dict[str, str] | None = None, **arguments: Any) -> Child:
        """Fork a child that runs `tests.programs.<module>:<function>(**arguments)`."""
        request = {"program": program, "log": str(log), "env": env or {}, "arguments": arguments}
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        message = self._receive(60.0, lambda m: "pid" in m)
        return Child(int(message["pid"]), log, self)

    def wait(self, child: Child, timeout_s: float) -> int:
        if child.pid not in self._ended:
            try:
                self._receive(timeout_s, lambda m: m.get("exit") == child.pid)
            except TimeoutError:
                child.kill(signal.SIGKILL)
                raise AssertionError(f"still running after {timeout_s} s:\n{child.output}") from None
        return self._ended[child.pid]

    def close(self) -> None:
        self._socket.close()
        self._process.wait(30)

    def _receive(self, timeout_s: float, wanted: Any) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while True:
            while b"\n" in self._buffer:
                line, self._buffer = self._buffer.split(b"\n", 1)
                message = json.loads(line)
                if "exit" in message:
                    self._ended[message["exit"]] = message["status"]
                if wanted(message):
                    return dict(message)
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
            try:
                got = self._socket.recv(1 << 16)
            except TimeoutError:
                continue
            assert got, "the zygote is gone"
            self._buffer += got


def _child(request: dict[str, Any]) -> None:
    os.setsid()
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.update(request["env"])
    module, function = request["program"].split(":")
    status: object = 0
    try:
        getattr(importlib.import_module(f"tests.programs.{module}"), function)(**request["arguments"])
    except SystemExit as error:
        status = error.code or 0
    except BaseException:
        traceback.print_exc()
        status = 1
    # What an interpreter does at its end, in its order, but for taking torch's modules apart, which takes a second.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else 1)


def _serve(connection: socket.socket) -> dict[str, Any] | None:
    """Serve until the parent is gone (None) or, in a child, until there is a request to run."""
    watched = selectors.DefaultSelector()
    watched.register(connection, selectors.EVENT_READ)
    buffer = b""
    while True:
        for key, _ in watched.select():
            if key.fileobj is not connection:
                watched.unregister(key.fileobj)
                os.close(key.fd)
                _, status = os.waitpid(key.data, 0)
                text = json.dumps({"exit": key.data, "status": os.waitstatus_to_exitcode(status)})
                connection.sendall(text.encode() + b"\n")
                continue
            try:
                got = connection.recv(1 << 16)
            except ConnectionResetError:  # the parent has gone with messages of ours unread
                return None
            if not got:
                return None
            buffer += got
            while b"\n" in buffer:
                line, buffer = buffer.split(b"\n", 1)
                pid = os.fork()
                if pid == 0:
                    watched.close()
                    connection.close()
                    return dict(json.loads(line))
                watched.register(os.pidfd_open(pid), selectors.EVENT_READ, pid)
                connection.sendall(json.dumps({"pid": pid}).encode() + b"\n")


def main() -> None:
    import torch.distributed
    from torch.nn.parallel import DistributedDataParallel  # noqa: F401 - imported once, for all children

    import hinan.trainer.evacuator  # noqa: F401

    torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])  # pulls in what optimizers import on first use
    torch.set_num_threads(1)
    request = _serve(socket.socket(fileno=int(sys.argv[1])))
    if request is not None:
        _child(request)


if __name__ == "__main__":
    main()
