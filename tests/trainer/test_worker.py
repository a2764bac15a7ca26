"""One thread at a time does what is put, in order, whoever is interrupted while he puts it."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

from hinan.trainer.ports.worker import Worker
from tests.harness.job import until
from tests.harness.threads import names_of_threads


def put_interrupted(worker: Worker, line: int) -> bool:
    """Whether the n-th line of a `put`, and of what it calls, was reached, and a KeyboardInterrupt raised there."""
    left = line

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in (Worker.put.__code__.co_filename, weakref.__file__):
            return None
        left -= event == "line"
        if left == 0:
            left = -1
            raise KeyboardInterrupt
        return trace if left > 0 else None

    sys.settrace(trace)
    try:
        with suppress(KeyboardInterrupt):
            worker.put(lambda: None)
    finally:
        sys.settrace(None)
    return left < 0


def test_there_is_never_a_second_one_at_work() -> None:
    """At each line of the first `put`: a thread that was started unseen works alone, and so does what comes later."""
    line, going = 0, True
    while going:
        line += 1
        worker, alone, done = Worker("hinan-tried"), threading.Lock(), list[int]()
        going = put_interrupted(worker, line)
        finished = threading.Event()

        def work(number: int, alone: threading.Lock = alone, done: list[int] = done) -> None:
            assert alone.acquire(blocking=False)
            for _ in range(100):
                os.sched_yield()
            done.append(number)
            alone.release()

        for number in range(20):
            worker.put(lambda number=number, work=work: work(number))  # type: ignore[misc]
        worker.put(finished.set)
        assert finished.wait(10)
        assert done == list(range(20)), line
        until(lambda: len(names_of_threads("hinan-tried")) == 1)
        worker.end()
        until(lambda: not names_of_threads("hinan-tried"))
    assert line > 10


def test_what_fails_is_logged_and_the_next_is_done(caplog: pytest.LogCaptureFixture) -> None:
    worker, finished = Worker("hinan-tried"), threading.Event()
    worker.put(lambda: 1 // 0)
    worker.put(finished.set)
    assert finished.wait(10)
    assert "bug in hinan-tried" in caplog.text
    worker.end()


def test_its_thread_ends_with_it() -> None:
    worker, finished = Worker("hinan-tried"), threading.Event()
    worker.put(finished.set)
    assert finished.wait(10)
    del worker
    until(lambda: not names_of_threads("hinan-tried"))
