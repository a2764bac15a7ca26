"""Flights of a tensor, and writes that tests begin and end."""

from __future__ import annotations

import hashlib
import operator
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import Any

import torch

from hinan.trainer.evacuating.copying import Copying, SlotMap, enqueue, lanes
from hinan.trainer.evacuating.flight import Flight
from hinan.trainer.evacuating.watching import Watched
from hinan.trainer.ports.device import DevicePort
from hinan.trainer.ports.hostport import CpuPort
from hinan.trainer.ports.underway import UnderWay
from hinan.trainer.state.capture import Capture
from hinan.trainer.state.layout import make_plan

SOON_S = 10.0


def ends(what: UnderWay, within_s: float = SOON_S) -> bool:
    """Asks again and again, as a landing does: whether it is over in time."""
    until = time.monotonic() + within_s
    while not what.has_ended() and time.monotonic() < until:
        time.sleep(0.001)
    return what.has_ended()


def started(tensor: torch.Tensor, port: DevicePort | None = None) -> Copying:
    plan = make_plan(Capture({"t": tensor}).take().tensors)
    port = port or CpuPort()
    slot = SlotMap("slot", memoryview(bytearray(plan.image_bytes)))
    copying = Copying(slot)
    enqueue(copying, plan, lanes(plan, lambda device: port, {"t"}), {"t": tensor}, lambda device: port)
    return copying


def interrupted() -> None:
    raise TimeoutError("the loop's own watchdog")


def watched(tensor: torch.Tensor, *, check_bits: bool = False, port: DevicePort | None = None) -> Flight:
    """A flight of this tensor, made by the calling thread."""
    copying, gates = started(tensor, port), frozenset({"o"})
    return Flight(copying, gates, Watched([("t", tensor)]), lambda _: None, check_bits=check_bits)


def at_once(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def taken() -> Any:
    """A lock that is taken."""
    lock = threading.Lock()
    lock.acquire()
    return lock


def busy_until_free(lock: Any) -> Callable[[], object]:
    """One call into C that works, and lets other threads run, until a lock is free."""
    rounds = zip(iter(lock.locked, False), map(hashlib.sha256, repeat(bytes(1 << 20))), strict=False)
    return partial(deque, rounds, 0)


class Write:
    """An in-place write as torch does it: one call into C, at whose end it is counted. It ends when it is told to."""

    def __init__(self, tensor: torch.Tensor, beside: Callable[[], object]) -> None:
        """
        Args:
            beside: begun in a thread of its own when the write has begun.
        """
        self._tensor, self._begins, self._goes_on = tensor, taken(), taken()
        at_once(lambda: self._begins.acquire() and beside())

    def __call__(self) -> None:
        list(map(operator.call, [self._begins.release, busy_until_free(self._goes_on), self._tensor.zero_]))

    def end(self) -> None:
        self._goes_on.release()
