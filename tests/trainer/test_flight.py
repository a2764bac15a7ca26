"""One flight alone: whose exceptions are whose, and memory that is taken from under a copy."""

from __future__ import annotations

import gc
import linecache
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
import torch

import hinan.trainer
from hinan.core.errors import SavingError
from hinan.core.ids import StepId
from hinan.trainer.evacuating.evacuation import Evacuation
from hinan.trainer.evacuating.flight import Flight
from hinan.trainer.evacuating.handle import Handle
from hinan.trainer.evacuating.watching import Watched, bits
from hinan.trainer.ports import hostport
from tests.trainer.flights import interrupted, started, watched

TRAINER = os.path.dirname(hinan.trainer.__file__)


def test_an_exception_of_the_loop_passes_through_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal's handler may raise while the trainer waits. It reaches the loop, and the next boundary waits again."""
    ended: list[Flight] = []
    copying = started(torch.ones(8))
    flight = Flight(copying, frozenset({"o"}), Watched([]), ended.append, check_bits=False)

    with monkeypatch.context() as patch:
        patch.setattr(copying, "hold_back", interrupted)
        with pytest.raises(TimeoutError, match="own watchdog"):
            flight.hold(["o"])
    assert not flight.is_passed
    flight.finish()
    assert flight.is_passed
    flight.land()
    assert ended == [flight]
    assert (flight.torn, flight.failure) == (None, None)


def test_after_an_interrupted_gate_the_watch_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """D3: the gate was not passed, so nobody may write; who does before the copies have ended is seen."""
    tensor, go, move = torch.ones(8), threading.Event(), hostport.memmove
    with monkeypatch.context() as patch:
        patch.setattr(hostport, "memmove", lambda *arguments: (go.wait(10), move(*arguments)))
        copying = started(tensor)
        flight = Flight(copying, frozenset({"o"}), Watched([("t", tensor)]), lambda flight: None, check_bits=False)
        patch.setattr(copying, "hold_back", interrupted)
        with pytest.raises(TimeoutError, match="own watchdog"):
            flight.hold(["o"])
        tensor.zero_()
        go.set()
        flight.land()
    assert flight.torn == "t"


@contextmanager
def interrupted_at(line: int, flight: Flight, handler: Callable[[], None] = interrupted) -> Iterator[list[str]]:
    """A handler runs at the n-th line of the trainer's that runs here, when the landing thread has done what it may."""
    left, where = line, list[str]()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        path = frame.f_code.co_filename
        if where or not path.startswith(TRAINER):
            return None
        # Not where a `with` statement is left: Python lets no signal's handler in between body and `__exit__`.
        if event == "line" and not linecache.getline(path, frame.f_lineno).lstrip().startswith("with "):
            left -= 1
            if left == 0:
                where.append(f"{path}:{frame.f_lineno}")
                until = time.monotonic() + 0.02
                while not flight.has_landed and time.monotonic() < until:
                    time.sleep(0.001)
                handler()
        return trace

    gc.disable()  # what is raised in a finalizer is nobody's
    sys.settrace(trace)
    try:
        yield where
    finally:
        sys.settrace(None)
        gc.enable()


@pytest.mark.parametrize("check_bits", [True, False])
@pytest.mark.parametrize("how", ["hold", "finish"])
def test_a_gate_may_be_interrupted_at_every_line(how: str, check_bits: bool) -> None:
    """What the second pass needs is there, however far the landing thread has come; and nothing stays mapped."""
    line, passes = 0, []
    while len(passes) == line:
        line += 1
        tensor = torch.ones(8)
        copying = started(tensor)
        slot, ports = weakref.ref(copying.slot), [port for port, _ in copying.waits]  # an evacuator keeps them
        flight = Flight(
            copying, frozenset({"o"}), Watched([("t", tensor)]), lambda _, kept=copying: None, check_bits=check_bits
        )
        del copying
        landing = threading.Thread(target=flight.land, daemon=True)
        landing.start()

        def go(flight: Flight = flight) -> None:
            flight.hold(["o"]) if how == "hold" else flight.finish()

        with interrupted_at(line, flight) as where, suppress(TimeoutError):
            go()
        passes += where
        go()
        assert flight.is_passed, where
        assert flight.wait(10), where
        landing.join(10)
        assert (flight.torn, flight.failure) == (None, None), where
        flight.finish()  # the next boundary
        del go
        if slot() is not None:
            gc.collect()  # the frames of what was traced
        assert slot() is None, where
        del ports
    assert line > 20


@pytest.mark.parametrize("check_bits", [True, False])
def test_a_handler_may_wait_for_the_flight_at_every_line_of_the_gate(check_bits: bool) -> None:
    """A notice of preemption whose handler closes the run: what the landing thread needs is not in the trainer's hands."""
    line, stood = 0, []
    while len(stood) == line:
        line += 1
        tensor = torch.ones(8)
        flight = watched(tensor, check_bits=check_bits)
        threading.Thread(target=flight.land, daemon=True).start()

        def handler(flight: Flight = flight) -> None:
            assert flight.settle(10)

        with interrupted_at(line, flight, handler) as where:
            flight.hold(["o"])
        stood += where
        assert flight.wait(10), where
        assert (flight.torn, flight.failure) == (None, None), where
    assert line > 10


def test_memory_that_is_freed_after_the_gate_is_no_tear() -> None:
    """Weights go to another place behind the optimizer's step, before the landing thread has come to look."""
    tensor = torch.ones(8)
    flight = watched(tensor)
    flight.hold(["o"])
    tensor.untyped_storage().resize_(0)
    flight.land()
    assert (flight.torn, flight.failure) == (None, None)


def test_a_copy_that_failed_is_given_up_whoever_waits_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainer reaches a boundary before the landing thread has looked: the failure is for that one to find."""

    def break_off(*_: object) -> None:
        raise OSError("lost on its way")

    monkeypatch.setattr(hostport, "memmove", break_off)
    ended: list[Flight] = []
    flight = Flight(started(torch.ones(8)), frozenset({"o"}), Watched([]), ended.append, check_bits=False)
    flight.finish()
    flight.land()
    assert ended == [flight]
    assert str(flight.failure) == "lost on its way"


def test_memory_that_is_taken_from_under_a_copy_is_noticed() -> None:
    """Sharing a tensor moves its memory, also under aliases. What was read meanwhile is not sealed."""
    tensor = torch.ones(1 << 10)
    copying = started(tensor)
    copying.join()
    assert copying.moved_away() is None
    tensor.share_memory_()
    assert copying.moved_away() == "t"
    ended: list[Flight] = []
    flight = Flight(copying, frozenset({"o"}), Watched([]), ended.append, check_bits=False)
    flight.finish()
    flight.land()
    assert flight.torn == "t"


def test_a_parameter_with_another_storage_is_not_torn() -> None:
    """Its old memory was kept for the copy."""
    parameter = torch.nn.Parameter(torch.ones(1 << 10))
    copying = started(parameter)
    parameter.data = torch.zeros(1 << 10)
    copying.join()
    assert copying.moved_away() is None


def test_bits_show_what_versions_do_not() -> None:
    tensor = torch.nn.Parameter(torch.randn(8, 8))
    counted, exact = Watched([("t", tensor)]), Watched([("t", tensor)], exactly=True)
    assert counted.moved() is exact.moved() is None
    tensor.data.add_(1)
    assert counted.moved() is None
    assert exact.moved() == "t"
    assert bits(torch.randn(3, 4).t()) != bits(torch.randn(3, 4).t())
    assert bits(torch.zeros(0)) == bits(torch.zeros(0))


def test_check_bits_holds_only_after_the_gate() -> None:
    """The landing thread waits for the comparison at the gate, and for nothing else."""
    landed = threading.Event()
    flight = Flight(started(torch.ones(8)), frozenset({"o"}), Watched([]), lambda _: landed.set(), check_bits=True)
    thread = threading.Thread(target=flight.land)
    thread.start()
    assert not landed.is_set()
    flight.hold(["o"])
    thread.join(10)
    assert landed.is_set()
    assert flight.torn is None


def test_a_flight_that_could_not_end_is_no_success() -> None:
    """A bug on the way to the seal leaves a handle that was neither held nor lost; whoever waits for it is told."""

    def end(_: Flight) -> None:
        raise ZeroDivisionError("bug")

    handle = Handle(StepId(1, 1), lambda *_: None)
    handle.flight = Flight(started(torch.ones(8)), frozenset(), Watched([]), end, check_bits=False)
    with pytest.raises(ZeroDivisionError):
        handle.flight.land()
    with pytest.raises(SavingError, match="could not be sealed"):
        handle.settle()


def test_an_interrupt_while_the_last_flight_is_waited_for_leaves_it_its_slot() -> None:
    """B2: nothing was taken for the new step yet; the slot that is being written is not said to be free."""
    evacuation = object.__new__(Evacuation)
    given_back: list[str] = []
    on_its_way = SimpleNamespace(finish=interrupted)
    evacuation._start = None
    evacuation._gate = SimpleNamespace(flight=on_its_way)  # type: ignore[assignment]
    evacuation._liaison = SimpleNamespace(give_back_all=lambda: given_back.append("all"))  # type: ignore[assignment]
    handle = Handle(StepId(1, 2), lambda step_id, moment, timeout_s: None)
    with pytest.raises(TimeoutError, match="own watchdog"):
        evacuation.run(handle, 0)
    assert given_back == []
    assert evacuation._start is not None and evacuation._start.handle is handle
