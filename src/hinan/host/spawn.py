"""Starts a node agent if none runs: in a session of its own, with stdio that belongs to nobody else (rule B4)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from hinan.core.errors import AgentError
from hinan.host.rpc import AgentClient
from hinan.host.signals import ours

_LOOK_EVERY_S = 0.02
START_EVERY_S = 3.0
"""An agent that does not answer after this long is started once more; a slow one keeps its lock, and nothing happens."""


def start_agent(target: Path, arena: Path, node: str, attempt: int = 0) -> None:
    """Start an agent process and return at once. If one runs already, the new one sees its lock and ends.

    The agent decides by its lock, not this caller, so eight local ranks may call this at the same moment.

    Args:
        attempt: whose trainer starts it; an agent that comes too late for it ends by itself. 0: nobody's yet.
    Raises:
        AgentError: no process can be started, or the arena's directory cannot be made.
    """
    try:
        _spawn(target, arena, node, attempt)
    except ours(OSError, subprocess.SubprocessError) as error:
        raise AgentError(f"no node agent could be started for {arena}: {error}", arena=str(arena)) from error


def _spawn(target: Path, arena: Path, node: str, attempt: int) -> None:
    arena.mkdir(parents=True, exist_ok=True, mode=0o700)
    command = [sys.executable, "-m", "hinan.agent", "--target", str(target), "--arena", str(arena), "--node", node]
    command += ["--attempt", str(attempt)]
    with open(os.devnull, "rb") as nothing, (arena / "agent.log").open("ab") as log:
        # Why a middle process: the agent must not stay a child of a trainer, whose launcher may wait for all children
        # or kill its process group.
        subprocess.run(
            [sys.executable, "-c", _DETACH, *command],
            stdin=nothing, stdout=log, stderr=log, check=True, start_new_session=True, close_fds=True,
        )  # fmt: skip


_DETACH = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True)"


def connect(arena: Path, timeout_s: float, start: tuple[Path, Path, str] | None = None, attempt: int = 0) -> AgentClient:
    """Connect to the node's agent, starting one first if `start` (target, arena, node) is given and none answers.

    Raises:
        AgentError: none answered in `timeout_s`; the message has the last lines of its log.
    """
    path = arena / "agent.sock"
    deadline = time.monotonic() + timeout_s
    start_at = 0.0
    while True:
        try:
            return AgentClient(path, max(0.1, deadline - time.monotonic()))
        except AgentError as error:
            if start is None or time.monotonic() > deadline:
                raise AgentError(f"{error}{_tail(arena / 'agent.log')}", arena=str(arena)) from None
        if start is not None and time.monotonic() >= start_at:
            # Again and again: one that is just ending holds the lock, so that the new one sees it and ends.
            try:
                start_agent(*start, attempt)
            except AgentError:
                if time.monotonic() > deadline:
                    raise
            start_at = time.monotonic() + START_EVERY_S
        time.sleep(_LOOK_EVERY_S)  # the socket appears when the agent is ready; there is nothing to wait on before


def _tail(log: Path, lines: int = 5) -> str:
    try:
        last = log.read_text(errors="replace").splitlines()[-lines:]
    except ours(OSError):
        return ""
    return "; its log ends:\n  " + "\n  ".join(last) if last else ""
