"""Makes slots on the NUMA node of the device that will write them.

Owns:      the order (policy first, then pages, then a look where they are) and what is told of it.
Promises:  nothing is done on a machine with one node, for a rank without a device, or where no source tells the node. A
           kernel that refuses costs speed, never the slot: it is logged once and shown by `hinan agent status`.
Relies on: `wire.placement` for the decision.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hinan.host.numa import KernelMemory, NumaMemory

if TYPE_CHECKING:
    from hinan.wire.facts.model import Machine

log = logging.getLogger("hinan.agent")

LOOKS = 8
"""Pages of a new slot whose node is looked at, from the first to the last."""


@dataclass(frozen=True)
class Placed:
    """Where the newest slot of a rank was made.

    Attributes:
        device: PCI address of the device that writes it; None: none, or not known.
        node: the node it belongs on; None: nothing was asked of the kernel, and `why` says why.
        lies_on: nodes its pages were found on; empty: not looked at, or the kernel does not say.
        how: "mbind", or "cpus" where that was refused and a thread on the node's CPUs made the pages; None: neither.
        problem: what went wrong; None: nothing.
    """

    device: str | None
    node: int | None
    why: str
    how: str | None = None
    lies_on: tuple[int, ...] = ()
    problem: str | None = None


def _this_machine() -> Machine:
    from hinan.wire.machine import sources

    return sources.read_live()


class Placer:
    """Remembers the machine, which does not change while an agent lives, and what was done for each rank."""

    def __init__(self, memory: NumaMemory | None = None, read: Callable[[], Machine] = _this_machine) -> None:
        self._memory = memory or KernelMemory()
        self._machine = functools.cache(read)
        self.placed: dict[int, Placed] = {}
        """The newest slot of each rank."""

    @contextlib.contextmanager
    def around(self, rank: int, device: str | None, fd: int, size_bytes: int) -> Iterator[None]:
        """Wraps the moment in which a slot gets its pages. Raises nothing of its own.

        Args:
            fd: the slot's file, without pages yet.
        """
        found = self._wanted(device)
        with contextlib.ExitStack() as until_made:
            if found.node is not None:
                found = self._prepare(found, found.node, fd, size_bytes, until_made)
            yield
        if found.how is not None:
            found = self._look(found, fd, size_bytes)
        self._tell(rank, found)

    def _wanted(self, device: str | None) -> Placed:
        if device is None:
            return Placed(None, None, "the rank's state is on no single device with a known PCI address")
        from hinan.wire.facts.placement import node_for_slots  # only where there is a device: an agent must start fast

        try:
            wanted = node_for_slots(self._machine(), device)
        except (OSError, ValueError) as error:
            return Placed(device, None, f"this machine could not be read: {error}")
        return Placed(device, wanted.node, wanted.why)

    def _prepare(self, found: Placed, node: int, fd: int, size_bytes: int, until_made: contextlib.ExitStack) -> Placed:
        try:
            self._memory.prefer(fd, size_bytes, node)
        except OSError as error:
            refused = f"mbind: {error.strerror}"
        else:
            return replace(found, how="mbind")
        cpus = next((n.cpus for n in self._machine().nodes if n.index == node), None) or ()
        try:
            until_made.enter_context(self._memory.near(cpus))
        except OSError as error:
            return replace(found, problem=f"{refused}; running on its CPUs: {error.strerror}")
        return replace(found, how="cpus")

    def _look(self, found: Placed, fd: int, size_bytes: int) -> Placed:
        offsets = {max(0, size_bytes - 1) * part // (LOOKS - 1) for part in range(LOOKS)}
        nodes = {self._memory.node_of(fd, offset) for offset in offsets} - {None}
        lies_on = tuple(sorted(node for node in nodes if node is not None))
        stray = [n for n in lies_on if n != found.node]
        problem = f"pages lie on node {stray[0]}: is node {found.node} full?" if stray else None
        return replace(found, lies_on=lies_on, problem=problem)

    def _tell(self, rank: int, found: Placed) -> None:
        known, self.placed[rank] = self.placed.get(rank), found
        if known == found or found.device is None:
            return
        level, why = (logging.INFO, found.why) if found.problem is None else (logging.WARNING, found.problem)
        log.log(
            level, "slots.placed rank=%d device=%s node=%s how=%s why=%r", rank, found.device, found.node, found.how, why
        )
