"""What threads wait for: it wakes them, and a signal's handler that raises leaves nothing locked."""

from __future__ import annotations

import ast
import re
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import hinan
from hinan.trainer.ports.waking import Bell, Once

PYTHON_LOCKS = ("threading.Event", "threading.Condition", "threading.Semaphore", "threading.Barrier", "queue.Queue")
SOURCES = Path(hinan.__file__).parent


def interrupted(call: Callable[[], object], line: int) -> bool:
    """Whether the n-th line that runs of the tested file and of `threading` was reached, and a KeyboardInterrupt raised."""
    left = line

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in (threading.__file__, Once.wait.__code__.co_filename):
            return None
        left -= event == "line"
        if left == 0:
            left = -1
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        with suppress(KeyboardInterrupt):
            call()
    finally:
        sys.settrace(None)
    return left < 0


@pytest.mark.parametrize("by", ["set", "wait"])
def test_whoever_is_interrupted_keeps_nobody_waiting(by: str) -> None:
    """At each line of a wait or a set: the other thread is woken, and so is the next wait."""
    line = 0
    going = True
    while going:
        line += 1
        once, woken = Once(), threading.Event()
        other = threading.Thread(target=lambda once=once, woken=woken: once.wait(10) and woken.set())
        other.start()
        if by == "wait":
            once.set()
        going = interrupted(getattr(once, by), line)
        once.set()
        assert woken.wait(5), line
        assert once.wait(0)
        other.join()
    assert line > 2


def test_a_wait_ends_in_time_and_happens_for_all() -> None:
    once = Once()
    assert not once.wait(0)
    assert not once.is_set()
    assert not once.wait(0.01)
    threads = [threading.Thread(target=once.wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    once.set()
    once.set()
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()
    assert once.wait()


def test_a_bell_wakes_whoever_waits_and_rings_do_not_pile_up() -> None:
    """A ring for something else wakes nobody for good; one that nobody has heard is not lost."""
    bell, things = Bell(), list[int]()
    assert not bell.wait_for(lambda: bool(things), 0)
    for _ in range(1000):
        bell.ring()
    assert bell._rings.qsize() == 1
    began = time.monotonic()
    assert not bell.wait_for(lambda: bool(things), 0.01)
    assert time.monotonic() - began >= 0.01

    def change() -> None:
        bell.ring()
        things.append(1)
        bell.ring()

    thread = threading.Thread(target=change)
    thread.start()
    assert bell.wait_for(lambda: bool(things), 5)
    thread.join()


@pytest.mark.parametrize("package", ["trainer", "tiers"])
def test_no_lock_that_is_written_in_python(package: str) -> None:
    """The training thread runs this code, and a handler of its signals may raise anywhere in it."""
    uses = [
        f"{path.name}:{node.lineno}"
        for path in (SOURCES / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in PYTHON_LOCKS
    ]
    assert uses == []


FILE_ERRORS = re.compile(r"\b(Exception|OSError|\w+(Found|Exists|Timeout|Directory|Lookup|Connection|Permission)Error)\b")
BELOW_NO_HANDLER = {"worker.py:_run", "worker.py:_say", "reading.py:_work", "flight.py:land", "liaison.py:_live"}
"""What other threads do: the interpreter runs handlers of signals in the main thread."""


@pytest.mark.parametrize("package", ["trainer", "tiers", "host"])
def test_no_error_of_a_handler_is_taken_for_ours(package: str) -> None:
    """Whoever catches an error of the system's and does not pass it on says `ours`."""
    found = []
    for path in (SOURCES / package).rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef) and f"{path.name}:{function.name}" not in BELOW_NO_HANDLER:
                found += [f"{path.name}:{node.lineno}" for node in ast.walk(function) if _swallows(node)]
    assert found == []


def _swallows(node: ast.AST) -> bool:
    if isinstance(node, ast.ExceptHandler):
        caught = ast.unparse(node.type) if node.type is not None else "Exception"
        ends_so = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
        return bool(FILE_ERRORS.search(caught)) and not caught.startswith("ours(") and not ends_so
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("suppress", "contextlib.suppress"):
        return bool(FILE_ERRORS.search(", ".join(map(ast.unparse, node.args))))
    return False
