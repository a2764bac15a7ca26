"""What another thread was doing when it was asked about: it goes on until the very call has come back."""

from __future__ import annotations

import operator
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hinan.trainer.ports.turns import turns
from hinan.trainer.ports.underway import UnderWay
from hinan.trainer.ports.waking import Once
from tests.trainer.flights import SOON_S, busy_until_free, ends, taken


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


def test_a_call_is_under_way_until_it_has_come_back() -> None:
    first, then = taken(), taken()

    def work() -> None:
        busy_until_free(first)()
        busy_until_free(then)()

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
        busy_until_free(inner)()

    def work() -> None:
        list(map(operator.call, [busy_until_free(first), back]))

    with asked_of(work) as call:
        first.release()
        assert has_called_back.wait(SOON_S)
        time.sleep(0.05)
        assert not call.has_ended()
        inner.release()
    assert ends(call, 0.3)  # and so has the thread


@pytest.mark.parametrize("wait", [threading.Event().wait, Once().wait])
def test_a_thread_that_waits_for_others_is_not_waited_for(wait: Callable[[float], Any]) -> None:
    """It may be waiting for the very one who asks."""
    with asked_of(lambda: wait(0.5)) as nothing:
        assert ends(nothing, 0.3)


def test_nothing_is_under_way_in_ones_own_thread_or_in_none() -> None:
    assert ends(UnderWay(threading.get_ident()), 0.3)
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    assert thread.ident is not None
    assert ends(UnderWay(thread.ident), 0.3)


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
        early.append(bool(turns() != before))
        over.release()

    before, over = turns(), taken()
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    busy_until_free(over)()
    assert not any(early)
    thread.join()
    assert turns() > before


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

    has_returned, thread, first = threading.Event(), threading.Thread(target=look, daemon=True), taken()
    thread.start()
    threading.Timer(0.1, first.release).start()
    list(map(operator.call, [busy_until_free(first), back, has_returned.set]))
    thread.join()
    assert len(told) > 10
    assert not any(told[:-1])
    assert told[-1]


class Mode(TorchDispatchMode):
    """Looks at what an operation gives, for long."""

    def __init__(self, until: Any) -> None:
        super().__init__()
        self._look, self.looks = busy_until_free(until), threading.Event()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.looks.set()
        self._look()
        return out


def added_under(mode: Mode, tensor: torch.Tensor, look: Callable[[], None]) -> None:
    """Write into a tensor under a mode, while another thread looks."""
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    with mode:
        tensor.add_(1)
    thread.join()


def test_what_a_dispatch_mode_does_behind_an_operation_belongs_to_it() -> None:
    """torch counts a write when `__torch_dispatch__` has returned."""
    until, tensor, told = taken(), torch.ones(8), list[object]()
    mode = Mode(until)

    def look() -> None:
        mode.looks.wait(SOON_S)
        call = UnderWay(main)
        time.sleep(0.05)
        told.extend([call.has_ended(), tensor._version])
        until.release()
        told.extend([ends(call), tensor._version])

    main = threading.get_ident()
    added_under(mode, tensor, look)
    assert told == [False, 0, True, 1]


def test_who_sleeps_in_a_dispatch_mode_has_not_ended_his_operation() -> None:
    """The write is done, and is counted when the mode returns."""
    tensor, told, wakes = torch.ones(8), list[object](), threading.Event()
    mode = Mode(taken())
    mode._look = lambda: wakes.wait(SOON_S)

    def look() -> None:
        mode.looks.wait(SOON_S)
        call = UnderWay(main)
        told.extend([ends(call, 0.2), tensor._version])
        wakes.set()
        told.extend([ends(call), tensor._version])

    main = threading.get_ident()
    added_under(mode, tensor, look)
    assert told == [False, 0, True, 1]


def test_a_trainer_that_works_is_not_asked_for_others() -> None:
    """They may do anything, for as long as they like; he does not wait for them."""
    until, first = taken(), taken()
    worker = threading.Thread(target=busy_until_free(until), daemon=True)
    worker.start()
    with asked_of(lambda: busy_until_free(first)()) as call:
        assert not call.has_ended()
        first.release()
        assert ends(call)
    until.release()
    worker.join()


def test_another_thread_that_works_is_waited_for_also_while_the_trainer_sleeps() -> None:
    """He may be waiting for it, and it may write."""
    until = taken()
    worker = threading.Thread(target=busy_until_free(until), daemon=True)
    worker.start()
    with asked_of(worker.join) as call:
        assert not ends(call, 0.2)
        until.release()
        assert ends(call)
