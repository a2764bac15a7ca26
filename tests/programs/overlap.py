"""Loops whose copies are held open until the trainer stands at the gate; then the image must be that of the boundary.

Each of `overlap_loops.KINDS` is a training loop. Copies that outlive `evac.step()` do not begin before the gate is reached
(or the next boundary), so whatever a loop changes before its gate, and nobody ordered, is in the image and is found.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import hinan
from hinan.tiers.mapping import read_header
from hinan.trainer.evacuating import evacuation, flight
from hinan.trainer.evacuating.copying import Copying, Lanes, SlotMap
from hinan.trainer.ports import hostport
from hinan.trainer.restoring.saved import SavedTensors
from hinan.trainer.state.capture import Capture
from hinan.trainer.state.layout import Plan
from tests.programs.loops_of_optimizers import Loop
from tests.programs.overlap_loops import KINDS


class SlowCopy:
    """Holds the copies that outlive `evac.step()` until the trainer has come to the gate, or to the next boundary."""

    def __init__(self) -> None:
        self._at_gate = threading.Event()
        self._held: set[int] = set()
        self.slot: SlotMap
        move, enqueue, arrive = hostport.memmove, evacuation.enqueue, flight.Flight._pass

        def memmove(destination: int, source: int, size_bytes: int) -> None:
            if destination in self._held:
                assert self._at_gate.wait(30), "the trainer never came to the gate"
            move(destination, source, size_bytes)

        def enqueued(copying: Copying, plan: Plan, lanes: Lanes, tensors: Any, ports: Any) -> None:
            self._at_gate.clear()
            self.slot = slot = copying.slot
            self._held = {slot.address + part.offset for lane in lanes.values() for part in lane.later}
            enqueue(copying, plan, lanes, tensors, ports)

        def passed(this: flight.Flight, order: Callable[[], None]) -> None:
            self._at_gate.set()
            arrive(this, order)

        hostport.memmove = memmove  # type: ignore[assignment]
        evacuation.enqueue = enqueued
        flight.Flight._pass = passed  # type: ignore[method-assign]


def main(target: str, out: str, kind: str, steps: int = 10, every: int = 1, check: str = "off", **_: Any) -> None:
    """Train one kind; for each evacuation write what became of it, and which tensors are not those of the boundary."""
    logging.basicConfig(level=logging.INFO, format="%(name)s %(levelname)s %(message)s", force=True)
    slow, loop = SlowCopy(), Loop()
    iteration = KINDS[kind](loop)
    loop.evac = hinan.Evacuator(target, loop.state, every=every, commit_every=1000, check=check)
    loop.step = loop.evac.restore()
    lines: list[str] = []
    open_one: tuple[hinan.Handle, SlotMap, dict[str, torch.Tensor]] | None = None
    while loop.step < steps:
        iteration()
        boundary = {name: t.detach().clone() for name, t in Capture(loop.state).take().tensors.items()}
        last = loop.evac.last
        if open_one is not None and open_one[0].flight is not None and open_one[0].flight.is_passed:
            lines.append(_judged(*open_one))
            open_one = None
        loop.step = loop.evac.step()
        if open_one is not None:  # no gate in that iteration: the boundary has waited for it
            lines.append(_judged(*open_one))
        handle = loop.evac.last
        open_one = (handle, slow.slot, boundary) if handle is not None and handle is not last else None
    loop.evac.close()
    Path(out, "evacuations").write_text("\n".join(lines))


def _judged(handle: hinan.Handle, slot: SlotMap, boundary: dict[str, torch.Tensor]) -> str:
    """`step overlapped|waited held|lost [names that differ]`"""
    assert handle.flight is not None
    assert handle.flight.is_passed
    assert handle.flight.wait(10)
    how = "overlapped" if handle.flight.gates else "waited"
    differ = [] if handle.lost else list(_different(slot, boundary))
    return f"{handle.step} {how} {'lost' if handle.lost else 'held'} {' '.join(differ)}".strip()


def _different(slot: SlotMap, boundary: dict[str, torch.Tensor]) -> Iterator[str]:
    """Names of tensors whose bits in the slot are not those of the boundary. The slot is not written again so soon."""
    saved = SavedTensors(slot.view, read_header(slot.view, "slot")[1])
    for name, wanted in boundary.items():
        if not torch.equal(saved[name].copy(), wanted):
            yield name
