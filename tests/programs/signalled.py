"""Trainers whose signals have handlers, which raise, or call the evacuator, while it is at work."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

import hinan
from hinan.core.errors import ConfigError, SavingError
from hinan.trainer.evacuating.overlap import HOST_SMALL_BYTES
from hinan.trainer.ports import hostport
from hinan.trainer.ports.waking import Once


class Preempted(Exception):
    """The user's own."""


def _raises(*_: object) -> None:
    raise Preempted


class _Held:
    """Holds the first copy of a chosen step until somebody lets it go; sends SIGALRM when it is reached."""

    def __init__(self) -> None:
        self.armed, self.reached, self.go = False, False, Once()
        move, main = hostport.memmove, threading.main_thread()
        assert main.ident is not None

        def memmove(*arguments: Any) -> None:
            if self.armed and not self.reached:
                self.reached = True
                signal.pthread_kill(main.ident, signal.SIGALRM)
                self.go.wait(30)
            move(*arguments)

        hostport.memmove = memmove  # type: ignore[assignment]


def _begin(target: str, **options: Any) -> tuple[hinan.Evacuator, torch.nn.Module, torch.optim.Optimizer]:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(name)s %(message)s", force=True)
    torch.manual_seed(0)
    model = torch.nn.Linear(300, 300)
    optimizer = torch.optim.AdamW(model.parameters())
    evac = hinan.Evacuator(target, {"model": model, "optim": optimizer}, **options)
    evac.restore()
    return evac, model, optimizer


def _iterate(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.ones(1, 300)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def during_the_copy(target: str, out: str, then: str, **_: Any) -> None:
    """The handler raises while a copy is waited for in evac.step(). It reaches the loop, which asks again, goes on, or
    closes while the copy still writes into its slot."""
    signal.signal(signal.SIGALRM, _raises)
    held = _Held()
    evac, model, optimizer = _begin(target, every=1, commit_every=1)
    _iterate(model, optimizer)
    evac.step()
    evac.evacuate("committed", 30)
    _iterate(model, optimizer)
    held.armed = True
    try:
        evac.step()
        raise AssertionError("the user's exception is gone")
    except Preempted:
        pass
    signal.signal(signal.SIGALRM, lambda *_: held.go.set())
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    if then == "again":
        assert evac.evacuate("committed", 30).step == 2
    elif then == "on":
        _iterate(model, optimizer)
        evac.step()
        evac.evacuate("committed", 30)
    evac.close()
    assert held.go.is_set(), "closed while a copy was writing"
    Path(out, "done").touch()


def _in_handler(evac: hinan.Evacuator, calls: list[Callable[[], object]]) -> list[str]:
    told = []
    for call in calls:
        try:
            call()
        except ConfigError as error:
            told.append(str(error))
    return told


def nested(target: str, out: str, **_: Any) -> None:
    """The handler evacuates, closes and waits, in the middle of evac.step(): all are refused, and the step is held."""
    held = _Held()
    evac, model, optimizer = _begin(target, every=1, commit_every=1)
    told: list[str] = []

    def handler(*_: object) -> None:
        told.extend(_in_handler(evac, [evac.evacuate, evac.close, first.wait]))
        held.go.set()

    signal.signal(signal.SIGALRM, handler)
    _iterate(model, optimizer)
    evac.step()
    first = evac.evacuate("committed", 30)
    _iterate(model, optimizer)
    held.armed = True
    evac.step()
    assert len(told) == 3 and all("in a signal's handler that interrupted a" in text for text in told), told
    assert evac.evacuate("committed", 30).held
    evac.close()
    Path(out, "done").touch()


def in_an_iteration(target: str, out: str, **_: Any) -> None:
    """evacuate() behind optimizer.step(), before evac.step(): refused, unless the last step was evacuated as it ended."""
    evac, model, optimizer = _begin(target, every=2, commit_every=2)
    for _ in range(3):
        _iterate(model, optimizer)
        evac.step()
    _iterate(model, optimizer)
    (text,) = _in_handler(evac, [evac.evacuate])
    assert "an optimizer has stepped since step 3 was counted" in text
    evac.step()
    _iterate(model, optimizer)
    assert evac.evacuate("committed", 30).step == 4  # as it was at its boundary
    evac.close()
    Path(out, "done").touch()


class _Interrupts(logging.StreamHandler[Any]):
    """Has the signal arrive while this thread holds the lock of a handler of `logging`: as it writes a line of the loop's,
    or in a flush of a user's who has taken the lock himself."""

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        if record.name == "loop":
            signal.raise_signal(signal.SIGALRM)

    def flush(self) -> None:
        super().flush()
        if sys._getframe(1).f_code is _say.__code__:
            signal.raise_signal(signal.SIGALRM)


def _say(where: str, handler: logging.Handler) -> None:
    if where == "emit":
        logging.getLogger("loop").info("a step")
    else:
        with handler.lock:  # type: ignore[union-attr]
            handler.flush()


def in_a_line_of_the_log(target: str, out: str, call: str, where: str, **_: Any) -> None:
    """The handler closes, evacuates or waits while this thread is in the middle of a call of `logging`, and a copy is on
    its way or about to be: the thread that lands it has something to log, too."""
    evac, model, optimizer = _begin(target, every=100 if call == "evacuate" else 1, commit_every=100)
    go, move, done = Once(), hostport.memmove, list[str]()
    logging.getLogger().handlers[:] = [writer := _Interrupts(sys.stderr)]

    def held(destination: int, source: int, size_bytes: int) -> None:
        if size_bytes >= HOST_SMALL_BYTES:  # what is copied before training goes on is small here
            go.wait(30)
            if call == "wait for a lost one":
                raise OSError("no copy today")
        move(destination, source, size_bytes)

    def handler(*_: object) -> None:
        go.set()
        if call == "close":
            evac.close()
        elif call == "evacuate":
            evac.evacuate()
        elif evac.last is not None:
            with suppress(SavingError):
                evac.last.wait("held")
        done.append(call)

    signal.signal(signal.SIGALRM, handler)
    for _step in range(5):
        _iterate(model, optimizer)
        evac.step()
    _iterate(model, optimizer)
    if call != "evacuate":
        hostport.memmove = held  # type: ignore[assignment]
    evac.step()
    assert call == "evacuate" or (evac.last is not None and not evac.last.held)
    _say(where, writer)
    assert done == [call]
    hostport.memmove = move
    evac.close()
    Path(out, "done").touch()
