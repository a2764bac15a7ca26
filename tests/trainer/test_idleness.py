"""Threads that only seem to be at work, because they poll, and those that seem to sleep while they write."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import repeat
from typing import Any

import pytest
import torch
import torch.distributed as dist

from hinan.trainer.ports.idleness import IDLE_SHARE, Look, did_nothing
from hinan.trainer.ports.underway import UnderWay
from tests.trainer.flights import SOON_S, at_once, busy_until_free, ends, taken


@contextmanager
def beside(work: Callable[[Any], object]) -> Iterator[None]:
    """A thread that does this until a lock is free."""
    until = taken()
    thread = at_once(partial(work, until))
    try:
        yield
    finally:
        until.release()
        thread.join(SOON_S)


def computes(until: Any) -> None:
    while until.locked():
        pass


def polls(until: Any) -> None:
    while until.locked():  # in one frame: called anew, it would stand elsewhere
        time.sleep(0.005)


@pytest.fixture
def gloo() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def trainer_that(works: Callable[[], object], *, may_wait: bool = True) -> UnderWay:
    """What a thread that does this is doing a moment later."""
    trainer = at_once(works)
    time.sleep(0.05)
    assert trainer.ident is not None
    return UnderWay(trainer.ident, may_wait=may_wait)


@pytest.mark.usefixtures("gloo")
@pytest.mark.parametrize("may_wait", [True, False], ids=["landing", "gate of another thread"])
def test_a_native_thread_that_polls_is_not_waited_for(may_wait: bool) -> None:
    """gloo's wakes up a hundred times a second; and somebody else works, for whom the trainer does not wait."""
    until = taken()
    with beside(computes):
        assert ends(trainer_that(until.acquire, may_wait=may_wait))
    until.release()


@pytest.mark.usefixtures("gloo")
def test_a_sampler_that_polls_is_not_waited_for_while_the_trainer_sleeps() -> None:
    until = taken()
    with beside(polls):
        assert ends(trainer_that(until.acquire))
    until.release()


def test_a_sampler_is_not_waited_for_when_the_trainer_has_gone_on_to_work() -> None:
    """He slept as the copies ended: he may have been waiting for it. Now he does not."""
    wakes, is_over = taken(), taken()

    def works() -> None:
        wakes.acquire()
        computes(is_over)

    with beside(polls):
        call = trainer_that(works)
        wakes.release()
        assert ends(call, 3.0)
    is_over.release()


def test_a_thread_that_writes_is_waited_for_while_the_trainer_polls_for_it() -> None:
    until = taken()
    at_once(busy_until_free(until))

    def nap() -> None:
        time.sleep(0.005)

    def waits() -> None:
        while until.locked():
            nap()  # each time elsewhere: what he was doing is over, and he goes on to wait

    call = trainer_that(waits)
    assert not ends(call, 0.5)
    until.release()
    assert ends(call)


def test_who_waits_for_the_interpreter_inside_an_operation_is_not_asleep() -> None:
    """What it has written is counted when it has had it. It hardly needs a processor: somebody else has the interpreter."""
    until = taken()
    call_back = map(time.sleep, repeat(0))  # each lets the interpreter go, and waits for it
    operation = partial(deque, zip(iter(until.locked, False), call_back, strict=False), 0)
    with beside(computes):
        call = trainer_that(operation)
        assert not ends(call, 0.5)
        until.release()
        assert ends(call)


def test_a_native_thread_that_writes_for_one_that_sleeps_is_waited_for() -> None:
    """The other pool of torch: a forked task of TorchScript's."""
    tensor, write = torch.zeros(1 << 20), _forked_write()
    write(tensor, 1)  # it makes the pool
    version = tensor._version
    writer = trainer_that(lambda: write(tensor, 400))
    told = list[tuple[bool, bool]]()
    while not (told and told[-1][0]):
        told.append((writer.has_ended(), tensor._version == version + 400))
        time.sleep(0.01)
    assert len(told) > 5
    assert told[-1] == (True, True)


def _forked_write() -> Any:
    unit = torch.jit.CompilationUnit(
        """
        def write(x: Tensor, times: int) -> int:
            for i in range(times):
                x.sin_()
            return 0

        def forked(x: Tensor, times: int) -> int:
            return torch.jit.wait(torch.jit.fork(write, x, times))
        """
    )
    return unit.forked


def look(at_ms: int, asleep: dict[int, int], used_ms: dict[int, float]) -> Look:
    used_ns = {task: int(ms * 1e6) for task, ms in used_ms.items()}
    return Look(asleep, frozenset({1, 2, 3, 4}), used_ns, at_ms * 1_000_000)


def test_threads_did_nothing_if_together_they_had_a_processor_for_a_small_share_of_the_time() -> None:
    before = look(0, {1: 5, 2: 5, 3: 5}, {1: 0, 2: 0, 3: 0, 4: 0})
    a_share_ms = IDLE_SHARE * 20

    def after(used_ms: dict[int, float], asleep: dict[int, int]) -> bool:
        return did_nothing(before, look(20, asleep, used_ms), [1], [2, 3])

    natives_woke = {1: 5, 2: 9, 3: 9}
    assert after({1: 0, 2: 0.1, 3: 0.1, 4: 20}, natives_woke)
    assert not after({1: 0, 2: 0.6 * a_share_ms, 3: 0.6 * a_share_ms, 4: 20}, natives_woke)  # in turns
    assert not after({1: 0, 2: 0.1, 4: 20}, natives_woke)  # one has ended, and may have worked until then
    assert not after({1: 0, 2: 0.1, 3: 0.1, 4: 20}, {1: 5, 2: 9})  # one waits for a processor
    all_woke = {1: 9, 2: 9, 3: 9}
    assert not after({1: 0.1, 2: 0.1, 3: 0.1, 4: 20}, all_woke)  # it may have waited for 4, which had the interpreter
    assert after({1: 0.1, 2: 0.1, 3: 0.1, 4: 0.1}, all_woke)
