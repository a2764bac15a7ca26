"""Who is waited for before an image is sealed: a trainer that writes, waits or hangs."""

from __future__ import annotations

import multiprocessing
import queue
import selectors
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hinan.trainer.evacuating import flight as flights
from hinan.trainer.evacuating.flight import UnseenWrites
from hinan.trainer.ports.device import DevicePort
from hinan.trainer.ports.hostport import CpuPort
from tests.trainer.fakedevice import FakeDriver, FakePort
from tests.trainer.flights import Write, at_once, taken, watched


@pytest.mark.parametrize("port", [CpuPort, lambda: FakePort(FakeDriver())], ids=["host", "device"])
def test_a_write_that_outlasts_the_copy_tears_it(port: Callable[[], DevicePort]) -> None:
    """D3: it is counted when it has ended. The look that decides comes after that."""
    tensor, landed = torch.ones(8), list[bool]()
    flight = watched(tensor, port=port())

    def others() -> None:
        at_once(flight.land).join(0.2)
        landed.append(flight.has_landed)
        write.end()

    write = Write(tensor, others)
    write()
    assert flight.wait(10)
    assert (landed, flight.torn) == ([False], "t")


def test_another_thread_that_waits_for_it_does_not_pass_the_gate_of_a_trainer_that_writes() -> None:
    """`handle.wait()` beside training: what it would see is not the trainer's last word."""
    tensor = torch.ones(8)
    flight = watched(tensor)

    def others() -> None:
        at_once(flight.land)
        at_once(flight.settle).join(0.2)
        write.end()

    write = Write(tensor, others)
    write()
    assert flight.wait(10)
    assert flight.torn == "t"


@pytest.mark.parametrize("check_bits", [False, True])
def test_a_trainer_that_waits_for_the_thread_that_waits_for_it_is_not_waited_for(check_bits: bool) -> None:
    flight = watched(torch.ones(8), check_bits=check_bits)
    at_once(flight.land)
    other = at_once(flight.settle)
    other.join(10)
    assert not other.is_alive()
    assert (flight.torn, flight.failure) == (None, None)


@pytest.mark.parametrize("wait", ["select", "queue", "pipe"])
def test_a_trainer_that_waits_for_a_file_or_a_queue_is_not_waited_for(wait: str) -> None:
    """asyncio's loop, whose executor has the thread that waits; a process that works for the loop."""
    flight, (reader, writer), things = watched(torch.ones(8)), multiprocessing.Pipe(), queue.Queue[bool]()

    def others() -> None:
        time.sleep(0.1)
        flight.land()
        told = flight.settle(5)
        things.put(told)
        writer.send(told)

    other, began = at_once(others), time.monotonic()
    match wait:
        case "select":
            _selected(reader)
        case "queue":
            assert things.get()
        case "pipe":
            assert reader.recv()
    assert time.monotonic() - began < 4
    other.join(10)  # before its pipe is closed


def _selected(reader: Any) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(reader, selectors.EVENT_READ)
        assert selector.select(30)


def test_who_waits_beside_a_trainer_in_one_long_call_gives_up_in_time() -> None:
    """What he waits for may take as long as that call."""
    flight, told = watched(torch.ones(8)), list[bool]()

    def others() -> None:
        at_once(flight.land)
        told.append(flight.settle(0.1))
        call.end()

    call = Write(torch.ones(1), others)
    call()
    assert told == [False]
    assert flight.wait(10)


def test_a_trainer_that_hangs_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a collective whose peer is dead, say: the step that was copied before must be found."""
    monkeypatch.setattr(flights, "UNDER_WAY_S", 0.05)
    flight = watched(torch.ones(8))
    landed: list[bool] = []

    def others() -> None:
        at_once(flight.land).join(10)
        landed.append(flight.has_landed)
        hung.end()

    hung = Write(torch.ones(1), others)
    hung()
    flight.wait(10)
    assert (landed, flight.torn) == ([True], None)


def test_another_threads_optimizer_waits_for_a_write_of_the_trainer() -> None:
    """Its gate is the last look: what the trainer writes meanwhile is counted by then, and seen."""
    tensor, passed = torch.ones(8), list[str | None]()
    flight = watched(tensor)

    def others() -> None:
        flight._copying.join()
        stepping = at_once(lambda: (flight.hold(["o"]), passed.append(flight.torn)))
        stepping.join(0.1)
        assert not passed
        write.end()
        stepping.join(10)
        flight.land()

    write = Write(tensor, others)
    write()
    assert flight.wait(10)
    assert (passed, flight.torn, flight.failure) == (["t"], "t", None)


def test_an_optimizer_of_another_thread_does_not_wait_long_for_the_trainers_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """What that writes cannot be known any more, and nothing is sealed."""
    monkeypatch.setattr(flights, "GATE_S", 0.05)
    flight = watched(torch.ones(8))

    def others() -> None:
        at_once(lambda: flight.hold(["o"])).join(10)
        flight.land()
        call.end()

    call = Write(torch.ones(1), others)
    call()
    assert flight.wait(10)
    assert flight.is_passed
    assert isinstance(flight.failure, UnseenWrites)


def test_a_trainer_who_waits_for_another_threads_optimizer_is_not_waited_for() -> None:
    flight = watched(torch.ones(8))
    began = time.monotonic()
    at_once(lambda: flight.hold(["o"])).join(10)
    flight.land()
    assert (flight.is_passed, flight.torn, flight.failure) == (True, None, None)
    assert time.monotonic() - began < flights.GATE_S


def test_a_write_of_another_thread_that_the_trainer_waits_for_tears_the_copy() -> None:
    tensor = torch.ones(8)
    flight = watched(tensor)
    begun = taken()
    write = Write(tensor, begun.release)
    writing = at_once(write)
    begun.acquire()
    landing = at_once(flight.land)

    def end() -> None:
        landing.join(0.1)
        assert not flight.has_landed
        write.end()

    at_once(end)
    writing.join(10)
    landing.join(10)
    assert (flight.has_landed, flight.torn) == (True, "t")


def test_time_in_which_the_process_was_stopped_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A debugger, a frozen cgroup: the clock goes on, and the write does not."""
    tensor, clock = torch.ones(8), iter(range(0, 1 << 30, 1000))
    flight = watched(tensor)

    def others() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(flights, "time", SimpleNamespace(monotonic=lambda: next(clock)))
            landing = at_once(flight.land)
            landing.join(0.2)
            landed.append(flight.has_landed)
            write.end()
            landing.join(10)

    landed, write = list[bool](), Write(tensor, others)
    write()
    assert flight.wait(10)
    assert (landed, flight.torn) == ([False], "t")
