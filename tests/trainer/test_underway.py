"""What another thread was doing when it was asked about: it goes on until the very call has come back."""

from __future__ import annotations

import operator
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from hinan.trainer.ports import underway
from hinan.trainer.ports.underway import UnderWay
from hinan.trainer.ports.waking import Once

SOON_S = 10.0


def ends(what: UnderWay, within_s: float = SOON_S) -> bool:
    until = time.monotonic() + within_s
    while not what.has_ended() and time.monotonic() < until:
        time.sleep(0.001)
    return what.has_ended()


@contextmanager
def asked_of(work: Callable[[], object]) -> Iterator[UnderWay]:
    """What a thread that does this is doing a moment later."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    time.sleep(0.1)
    assert thread.ident is not None
    yield UnderWay(thread.ident)
    thread.join(SOON_S)
    assert not thread.is_alive()


def taken() -> threading.Lock:  # type: ignore[valid-type]
    lock = threading.Lock()
    lock.acquire()
    return lock


def test_a_call_is_under_way_until_it_has_come_back() -> None:
    first, then = taken(), taken()

    def work() -> None:
        first.acquire()
        then.acquire()

    with asked_of(work) as call:
        assert not call.has_ended()
        first.release()
        assert ends(call)
        then.release()


def test_python_that_is_called_back_does_not_end_the_call() -> None:
    """A hook, a finalizer: the thread stands elsewhere, and the call below goes on."""
    first, inner = taken(), taken()
    has_called_back = threading.Event()

    def back() -> None:
        has_called_back.set()
        inner.acquire()

    def work() -> None:
        list(map(operator.call, [first.acquire, back]))

    with asked_of(work) as call:
        first.release()
        assert has_called_back.wait(SOON_S)
        time.sleep(0.05)
        assert not call.has_ended()
        inner.release()
    assert call.has_ended()  # and so has the thread


@pytest.mark.parametrize("wait", [threading.Event().wait, Once().wait])
def test_a_thread_that_waits_for_others_is_not_waited_for(wait: Callable[[float], Any]) -> None:
    """It may be waiting for the very one who asks."""
    with asked_of(lambda: wait(0.5)) as nothing:
        assert nothing.has_ended()


def test_nothing_is_under_way_in_ones_own_thread_or_in_none() -> None:
    assert UnderWay(threading.get_ident()).has_ended()
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    assert thread.ident is not None
    assert UnderWay(thread.ident).has_ended()


def test_a_loop_around_one_call_is_passed_too() -> None:
    """The main thread is found in the same call at every look; the interpreter says that it has come round."""
    main, seen, is_over = threading.get_ident(), [], threading.Event()

    def look() -> None:
        time.sleep(0.02)
        seen.extend(ends(UnderWay(main), 5.0) for _ in range(5))
        is_over.set()

    threading.Thread(target=look, daemon=True).start()
    until = time.monotonic() + 60
    while not is_over.is_set() and time.monotonic() < until:
        time.sleep(0.01)
    assert seen == [True] * 5


def test_the_main_thread_says_so_only_after_its_call() -> None:
    main, early = threading.get_ident(), []

    def look() -> None:
        time.sleep(0.05)
        call, until = UnderWay(main), time.monotonic() + 0.1
        while time.monotonic() < until:
            early.append(call.has_ended())
            time.sleep(0.005)
        early.append(bool(underway._turns() != before))

    before = underway._turns()
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    time.sleep(1.0)
    assert not any(early)
    thread.join()
    assert underway._turns() > before


def test_what_the_main_thread_does_inside_its_call_is_no_end_of_it() -> None:
    """A dispatch mode runs Python behind the write, and the write is counted when the mode has returned."""
    main, told = threading.get_ident(), list[bool]()

    def look() -> None:
        time.sleep(0.05)
        call = UnderWay(main)
        while not has_returned.is_set():
            told.append(call.has_ended())
            time.sleep(0.002)
        told.append(ends(call))

    def back() -> None:
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            pass  # instructions of Python, between which the interpreter does what is pending

    has_returned, thread = threading.Event(), threading.Thread(target=look, daemon=True)
    thread.start()
    list(map(operator.call, [partial(time.sleep, 0.1), back, has_returned.set]))
    thread.join()
    assert len(told) > 10
    assert not any(told[:-1])
    assert told[-1]
