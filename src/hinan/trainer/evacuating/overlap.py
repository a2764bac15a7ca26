"""Which parts of an image may still be read while training goes on, and what is said about those that may not.

Told once for each reason: overlap that was not earned, with what to write; and a large share of ungated bytes (rule D1),
which are copied before training goes on in any case.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

import torch

from hinan.core.units import format_bytes
from hinan.trainer.evacuating.copying import Lanes, lanes
from hinan.trainer.evacuating.gate import Gate
from hinan.trainer.ports.device import DevicePort
from hinan.trainer.state.capture import BY_HAND, Captured
from hinan.trainer.state.layout import Part, Plan

log = logging.getLogger("hinan")

HOST_SMALL_BYTES = 64 << 10
"""Host tensors below this size are copied at once: handing each to a thread would cost more than its bytes."""

NOTICE_AFTER = 3
"""Iterations; earlier, overlap may merely not have been earned yet."""

UNGATED_BYTES, UNGATED_RATIO = 64 << 20, 0.01
"""Ungated bytes, and those of averages, above either are reported."""


_MAY_BE_AVERAGES = (
    "are copied before training goes on: trainable parameters without gradients that belong to no torch optimizer of the "
    "state. Averages of weights always are, and nothing is to be done. If the loop updates some by hand, call evac.gate() "
    "right before they change"
)


class Overlap:
    """Splits plans. Remembers the last split, and what was said."""

    def __init__(self, gate: Gate, port: Callable[[torch.device], DevicePort]) -> None:
        self._gate, self._port = gate, port
        self._key: tuple[frozenset[str], frozenset[str], dict[str, str]] | None = None
        self._plan: Plan | None = None
        self._gates: dict[str, tuple[str, ...]] = {}
        self._split: tuple[Lanes, frozenset[str]] = ({}, frozenset())
        self._said: set[str] = set()

    def split(self, plan: Plan, captured: Captured) -> tuple[Lanes, frozenset[str]]:
        """(the plan's parts by device and time, the gates that some of them wait for)."""
        earned = self._gate.earned()
        reasons = self._reasons(captured)
        key = earned, self._gate.distrusted, reasons
        if plan is not self._plan or key != self._key or captured.gates != self._gates:
            gates = {part.entry: gates_of(part, captured) for part in plan.parts}
            gated = frozenset(
                p.entry for p in plan.parts if gates[p.entry] <= earned and self._may_overlap(p, gates[p.entry])
            )
            self._split = lanes(plan, self._port, gated), frozenset(name for entry in gated for name in gates[entry])
            self._plan, self._key, self._gates = plan, key, captured.gates
            self._report(plan, captured, gates, reasons)
        return self._split

    def _may_overlap(self, part: Part, gates: frozenset[str]) -> bool:
        small = part.device.type == "cpu" and part.size_bytes < HOST_SMALL_BYTES
        return bool(gates) and not small and not part.is_lazy and self._port(part.device).overlaps

    def _reasons(self, captured: Captured) -> dict[str, str]:
        """Why gates have not earned overlap, of those of which it can be told already."""
        names = (*captured.optimizers, BY_HAND) if self._gate.ended >= NOTICE_AFTER else ()
        return {name: why for name in names if (why := self._gate.why_not(name))}

    def _report(self, plan: Plan, captured: Captured, gates: dict[str, frozenset[str]], reasons: dict[str, str]) -> None:
        enough_bytes = min(UNGATED_BYTES, UNGATED_RATIO * plan.image_bytes)
        ungated_bytes = sum(part.size_bytes for part in plan.parts if not gates[part.entry])
        if ungated_bytes > enough_bytes:
            largest = max((part for part in plan.parts if not gates[part.entry]), key=lambda part: part.size_bytes)
            self._say(
                logging.INFO,
                "ungated",
                f"{format_bytes(ungated_bytes)} of {format_bytes(plan.image_bytes)} belong to no optimizer and are copied "
                f"before training goes on; the largest is {largest.entry} ({format_bytes(largest.size_bytes)})",
            )
        waited: Counter[str] = Counter()
        for part in plan.parts:
            for name in gates[part.entry]:
                waited[name] += part.size_bytes
        for name, size_bytes in waited.items():
            if name == BY_HAND and name in reasons and may_be_averages(captured):
                if size_bytes > enough_bytes:
                    self._say(logging.INFO, "averages", f"{format_bytes(size_bytes)} {_MAY_BE_AVERAGES}")
            elif name in reasons:
                text = f"{format_bytes(size_bytes)} are copied before training goes on: {reasons[name]}"
                self._say(logging.WARNING, "unearned", text)

    def _say(self, level: int, kind: str, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            log.log(level, "overlap.%s %s", kind, text)


def gates_of(part: Part, captured: Captured) -> frozenset[str]:
    """The gates of all tensors that share a part's bytes; none if one of them may change at any time."""
    found = [captured.gates.get(name, ()) for name in part.members]
    return frozenset(name for names in found for name in names) if all(found) else frozenset()


def may_be_averages(captured: Captured) -> bool:
    """Whether what no torch optimizer owns looks like copies that only follow others (an average, a target network):
    torch's optimizers train here, and of all the others none has a gradient. Nothing tells them from parameters that the
    loop updates by hand and clears at once."""
    others = [captured.tensors[name] for name, gates in captured.gates.items() if gates == (BY_HAND,)]
    return bool(captured.optimizers) and all(t.requires_grad and t.is_leaf and t.grad is None for t in others)
