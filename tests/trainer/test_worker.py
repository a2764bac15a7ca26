"""One thread at a time does what is put, in order, whoever is interrupted while he puts it."""

from __future__ import annotations

import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

from hinan.trainer.ports.worker import Worker, end_log_thread, log_aside, say_the_rest
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


def in_a_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_who_logs_aside_waits_for_his_line_unless_its_lock_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    """In the ordinary case lines come in their order; where the lock of a handler is held, the thread goes on all the same,
    and nothing is lost."""

    def say(*texts: str) -> None:
        for text in texts:
            log_aside(logging.ERROR, "aside %s", text)
            said.append(text in caplog.text)

    said = list[bool]()
    in_a_thread(lambda: say("first", "second")).join(10)
    assert said == [True, True]
    caplog.handler.acquire()
    try:
        thread = in_a_thread(lambda: say("third", "fourth"))
        thread.join(10)
        assert not thread.is_alive()
        assert said == [True, True, False, False]
        end_log_thread()
    finally:
        caplog.handler.release()
    say_the_rest()
    assert [record.getMessage() for record in caplog.records] == [
        f"aside {n}" for n in ("first", "second", "third", "fourth")
    ]
    until(lambda: not names_of_threads("hinan-log"))


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_a_filter_that_fails_costs_its_line_alone(error: type[BaseException], caplog: pytest.LogCaptureFixture) -> None:
    def fails(record: logging.LogRecord) -> bool:
        if "first" in record.msg:
            raise error
        return True

    caplog.handler.addFilter(fails)
    in_a_thread(lambda: [log_aside(logging.ERROR, text) for text in ("first", "second")]).join(10)
    assert [record.msg for record in caplog.records] == ["second"]
    end_log_thread()


def test_a_forked_child_logs_aside(caplog: pytest.LogCaptureFixture) -> None:
    """The thread that logs is its parent's."""
    in_a_thread(lambda: log_aside(logging.ERROR, "parent")).join(10)
    child = os.fork()
    if child == 0:
        in_a_thread(lambda: log_aside(logging.ERROR, "child")).join(10)
        os._exit(0 if "child" in caplog.text else 1)
    assert os.waitpid(child, 0)[1] == 0
    end_log_thread()
