"""The thread that keeps a lease in hand: it outlives what goes wrong around it, and forks do not cut its connection."""

from __future__ import annotations

import os
import re
import socket
import threading
from pathlib import Path

import pytest

from hinan.core.errors import AgentError
from hinan.formats import messages as m
from hinan.host.rpc import AgentClient
from hinan.trainer.attempt import liaison as liaison_module
from hinan.trainer.attempt.liaison import Liaison, Place


def hello(holding: list[str]) -> m.Hello:
    return m.Hello("run", 1, 0, 1, 1, os.getpid(), 0, holding)


class Agent:
    """Answers on a socket as an agent would; notes what it was asked."""

    def __init__(self, path: Path) -> None:
        self.asked: list[m.Request] = []
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen()
        self._thread = threading.Thread(target=self._live)
        self._thread.start()

    def _live(self) -> None:
        connection, _ = self._listening.accept()
        with connection, connection.makefile("rb") as lines:
            for line in lines:
                ask = m.ask_decoder.decode(line)
                self.asked.append(ask.body)
                body = (
                    m.Granted(f"slot-{len(self.asked)}", ask.body.image_bytes)
                    if isinstance(ask.body, m.Lease)
                    else m.Done()
                )
                connection.sendall(m.line(m.Reply(ask.number, body)))

    def end(self) -> None:
        self._thread.join(5)
        self._listening.close()


class Stubborn(Place):
    """An agent that cannot be started at first: no memory for a process, then no answer."""

    failures = (OSError(12, "Cannot allocate memory"), AgentError("no answer"), ValueError("a word of another version"))
    tries = 0

    def connect(self, timeout_s: float = 1.0) -> AgentClient:
        type(self).tries += 1
        if self.tries <= len(self.failures):
            raise self.failures[self.tries - 1]
        return AgentClient(self.arena / "agent.sock", timeout_s)


def test_it_outlives_a_failed_start(tmp_path: Path) -> None:
    agent = Agent(tmp_path / "agent.sock")
    liaison = Liaison(Stubborn(tmp_path, tmp_path, "here"), hello, lambda slot: None, 10.0)
    try:
        assert liaison.take(100) == "slot-2"
        liaison.give_back("slot-2")
        assert liaison.take(100) == "slot-3"
    finally:
        liaison.close()
        agent.end()
    assert agent.asked[1:] == [m.Lease(100, []), m.Lease(100, [])]


class Dying(Stubborn):
    """An agent that dies again and again before it gives a slot."""

    failures = (AgentError("the connection ended"),) * 1000


def test_no_slot_says_whether_the_agent_dies_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liaison_module, "RETRY_S", 0.01)
    liaison = Liaison(Dying(tmp_path, tmp_path, "here"), hello, lambda slot: None, 1.0)
    try:
        assert liaison.take(100) is None
        assert re.search(r"died, or not started, \d{1,3} time\(s\); .*/agent.log may say why", liaison.why_none)
    finally:
        liaison.close()
    agent = Agent(tmp_path / "agent.sock")
    liaison = Liaison(Place(tmp_path, tmp_path, "here"), hello, lambda slot: None, 10.0)
    try:
        assert liaison.take(100) is not None
        assert "slow or every slot is needed" in liaison.why_none
    finally:
        liaison.close()
        agent.end()


def test_a_slot_in_filling_is_named_until_it_is_given_back(tmp_path: Path) -> None:
    agent = Agent(tmp_path / "agent.sock")
    liaison = Liaison(Place(tmp_path, tmp_path, "here"), hello, lambda slot: None, 10.0)
    try:
        first = liaison.take(100)
        second = liaison.take(100)
        assert first is not None
        assert second is not None
    finally:
        liaison.close()
        agent.end()
    assert agent.asked[-1] == m.Lease(100, [first])


def test_the_agent_hears_which_device_writes(tmp_path: Path) -> None:
    agent = Agent(tmp_path / "agent.sock")
    liaison = Liaison(Place(tmp_path, tmp_path, "here"), hello, lambda slot: None, 10.0)
    liaison.device = "0000:19:00.0"
    try:
        assert liaison.take(100) is not None
    finally:
        liaison.close()
        agent.end()
    assert agent.asked[-1] == m.Lease(100, [], "0000:19:00.0")


def test_a_forked_child_leaves_the_connection_alone(tmp_path: Path) -> None:
    """As a DataLoader's worker does: it begins, closes what it must not keep, and ends."""
    agent = Agent(tmp_path / "agent.sock")
    liaison = Liaison(Place(tmp_path, tmp_path, "here"), hello, lambda slot: None, 10.0)
    try:
        assert liaison.take(100) is not None
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        assert liaison.take(100) is not None
        assert liaison.agent_restarts == 0
    finally:
        liaison.close()
        agent.end()
