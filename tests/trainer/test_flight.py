"""One flight alone: whose exceptions are whose, and memory that is taken from under a copy."""

from __future__ import annotations

import linecache
import multiprocessing
import operator
import os
import queue
import selectors
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
from hinan.trainer.evacuating import flight as flights
from hinan.trainer.evacuating.copying import Copying, SlotMap, enqueue, lanes
from hinan.trainer.evacuating.evacuation import Evacuation
from hinan.trainer.evacuating.flight import Flight, bits, moved, watch, watch_bits
from hinan.trainer.evacuating.handle import Handle
from hinan.trainer.ports import hostport
from hinan.trainer.ports.device import DevicePort
from hinan.trainer.ports.hostport import CpuPort
from hinan.trainer.state.capture import Capture
from hinan.trainer.state.layout import make_plan
from tests.trainer.fakedevice import FakeDriver, FakePort

TRAINER = os.path.dirname(hinan.trainer.__file__)


def started(tensor: torch.Tensor, port: DevicePort | None = None) -> Copying:
    plan = make_plan(Capture({"t": tensor}).take().tensors)
    port = port or CpuPort()
    slot = SlotMap("slot", memoryview(bytearray(plan.image_bytes)))
    copying = Copying(slot)
    enqueue(copying, plan, lanes(plan, lambda device: port, {"t"}), {"t": tensor}, lambda device: port)
    return copying


def interrupted() -> None:
    raise TimeoutError("the loop's own watchdog")


def test_an_exception_of_the_loop_passes_through_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal's handler may raise while the trainer waits. It reaches the loop, and the next boundary waits again."""
    ended: list[Flight] = []
    copying = started(torch.ones(8))
    flight = Flight(copying, frozenset({"o"}), [], ended.append, check_bits=False)

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
        flight = Flight(copying, frozenset({"o"}), watch([("t", tensor)]), lambda flight: None, check_bits=False)
        patch.setattr(copying, "hold_back", interrupted)
        with pytest.raises(TimeoutError, match="own watchdog"):
            flight.hold(["o"])
        tensor.zero_()
        go.set()
        flight.land()
    assert flight.torn == "t"


class Tripping:
    """A lock whose holder is interrupted as he lets go of it."""

    def __init__(self, lock: Any) -> None:
        self._lock, self.has_tripped = lock, False

    def __enter__(self) -> None:
        self._lock.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._lock.__exit__(*error)
        self.has_tripped = True
        interrupted()


@pytest.mark.parametrize("at", ["the look", "the end"])
def test_whoever_is_interrupted_as_the_gate_opens_keeps_nobody_waiting(at: str) -> None:
    """A-HANG-1: also where the gate itself compares, and the landing thread waits for that."""
    tensor, lock = torch.ones(8), threading.RLock()
    flight = Flight(started(tensor), frozenset({"o"}), [], lambda flight: None, check_bits=True)
    flight._lock = Tripping(lock)  # type: ignore[assignment]
    if at == "the end":
        flight._judge = lambda: None  # type: ignore[method-assign]
    with pytest.raises(TimeoutError, match="own watchdog"):
        flight.hold(["o"])
    assert flight._lock.has_tripped  # type: ignore[attr-defined]
    flight._lock = lock
    flight.finish()
    landing = threading.Thread(target=flight.land, daemon=True)
    landing.start()
    assert flight.wait(10)
    assert (flight.torn, flight.failure) == (None, None)


@contextmanager
def interrupted_at(line: int, flight: Flight) -> Iterator[list[str]]:
    """A handler raises at the n-th line of the trainer's that runs here, when the landing thread has done what it may."""
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
                interrupted()
        return trace

    sys.settrace(trace)
    try:
        yield where
    finally:
        sys.settrace(None)


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
            copying, frozenset({"o"}), watch([("t", tensor)]), lambda _, kept=copying: None, check_bits=check_bits
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
        assert slot() is None, where
        del ports
    assert line > 20


def watched(tensor: torch.Tensor, *, check_bits: bool = False, port: DevicePort | None = None) -> Flight:
    """A flight of this tensor, made by the calling thread."""
    copying, gates = started(tensor, port), frozenset({"o"})
    return Flight(copying, gates, watch([("t", tensor)]), lambda _: None, check_bits=check_bits)


def at_once(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


class Write:
    """An in-place write as torch does it: one call into C, at whose end it is counted. It ends when it is told to."""

    def __init__(self, tensor: torch.Tensor, beside: Callable[[], object]) -> None:
        """
        Args:
            beside: begun in a thread of its own when the write has begun.
        """
        self._tensor, self._begins, self._goes_on = tensor, threading.Lock(), threading.Lock()
        self._begins.acquire()
        self._goes_on.acquire()
        at_once(lambda: self._begins.acquire() and beside())

    def __call__(self) -> None:
        list(map(operator.call, [self._begins.release, self._goes_on.acquire, self._tensor.zero_]))

    def end(self) -> None:
        self._goes_on.release()


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

    at_once(others)
    began = time.monotonic()
    match wait:
        case "select":
            _selected(reader)
        case "queue":
            assert things.get()
        case "pipe":
            assert reader.recv()
    assert time.monotonic() - began < 4


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
    flight = Flight(started(torch.ones(8)), frozenset({"o"}), [], ended.append, check_bits=False)
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
    flight = Flight(copying, frozenset({"o"}), [], ended.append, check_bits=False)
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
    counted, exact = watch([("t", tensor)]), watch_bits([("t", tensor)])
    assert moved(counted) is moved(exact) is None
    tensor.data.add_(1)
    assert moved(counted) is None
    assert moved(exact) == "t"
    assert bits(torch.randn(3, 4).t()) != bits(torch.randn(3, 4).t())
    assert bits(torch.zeros(0)) == bits(torch.zeros(0))


def test_check_bits_holds_only_after_the_gate() -> None:
    """The landing thread waits for the comparison at the gate, and for nothing else."""
    landed = threading.Event()
    flight = Flight(started(torch.ones(8)), frozenset({"o"}), [], lambda _: landed.set(), check_bits=True)
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
    handle.flight = Flight(started(torch.ones(8)), frozenset(), [], end, check_bits=False)
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
