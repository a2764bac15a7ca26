"""Trainers of which one rank is unlike the others: it reads slowly, sees the store late, has another clock, cannot join."""

from __future__ import annotations

import itertools
import os
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import hinan
from hinan.host import mounts
from hinan.tiers.reading import Reading
from hinan.trainer.attempt import liaison
from hinan.trainer.restoring import restore
from tests.programs import stale
from tests.programs.agent import wait_while
from tests.programs.small import begin, error_of, tell


def once(out: str, target: str, rank: int, **options: Any) -> None:
    """Construct, restore, evacuate one step, close: what was raised, and after how long."""
    began = time.monotonic()

    def work() -> None:
        evac = hinan.Evacuator(target, state, every=1, commit_every=1, **options)
        tell(out, rank, step=evac.restore(), source=evac.resumed.source, w=state["w"].tolist())
        state["w"] += 1
        evac.step()
        evac.close()

    state = {"w": torch.zeros(4)}
    tell(out, rank, error=error_of(work), s=time.monotonic() - began)


def slow_reader(
    target: str, out: str, rank: int, world_size: int, init_file: str, stall_file: str, slow_rank: int, limit_s: float,
) -> None:  # fmt: skip
    """One rank's read of its image stands still as long as a file exists."""
    begin(rank, world_size, init_file)
    if rank == slow_rank:
        read = Reading._read

        def stalled(self: Reading, at: int, end: int) -> None:
            wait_while(stall_file)
            read(self, at, end)

        Reading._read = stalled  # type: ignore[method-assign]
    once(out, target, rank, restore_timeout_s=limit_s)


def cannot_join(target: str, out: str, rank: int, world_size: int, init_file: str, interface: str, limit_s: float) -> None:
    """The job's own group stands; then rank 1 is told to use an interface on which it cannot be reached."""
    begin(rank, world_size, init_file)
    if rank == 1:
        os.environ["GLOO_SOCKET_IFNAME"] = interface
    once(out, target, rank, restore_timeout_s=limit_s)


def without_agent(target: str, out: str, rank: int, world_size: int, init_file: str, wait_s: float) -> None:
    """No agent can be reached; the waits for one are shortened to `wait_s`."""
    begin(rank, world_size, init_file)
    restore.VIEWS_TIMEOUT_S = wait_s
    liaison.Place.connect.__defaults__ = (wait_s,)
    once(out, target, rank, timeout_s=wait_s)


def sees_late(
    target: str, out: str, rank: int, world_size: int, init_file: str, late_ranks: list[int], names: list[str],
    late_s: float, visibility_s: float = 10.0,
) -> None:  # fmt: skip
    """The target lies on a shared store; some ranks see some names below it only after a while."""
    begin(rank, world_size, init_file)
    mounts.AT_ONCE, mounts.VISIBILITY_S = frozenset(), visibility_s  # type: ignore[misc]
    if rank in late_ranks:
        stale.hide([Path(target) / name for name in names], late_s)
    once(out, target, rank, restore_timeout_s=30)


def odd_clock(target: str, out: str, rank: int, world_size: int, init_file: str, steps: int = 100) -> None:
    """Cadences in seconds. Rank 1's clocks are 7 s ahead and drift; its wall clock steps back again and again."""
    begin(rank, world_size, init_file)
    if rank == 1:
        wall, monotonic, looks = time.time, time.monotonic, itertools.count()
        time.time = lambda: wall() * 1.001 + 7 - 20 * (next(looks) % 3)
        time.monotonic = lambda: monotonic() * 3 + 7
    state = {"w": torch.zeros(4)}
    evac = hinan.Evacuator(target, state, every="0.05s", commit_every="0.2s")
    step, evacuated, total = evac.restore(), [], torch.zeros(1)
    while step < steps:
        threading.Event().wait(0.01)  # the length of a step, by a clock that nobody has changed
        state["w"] += 1
        dist.all_reduce(total.fill_(1.0))
        step = evac.step()
        if evac.last is not None and evac.last.step == step:
            evacuated.append(step)
    evac.close()
    tell(out, rank, evacuated=evacuated, every=evac.cadence.every_steps, from_step=evac.cadence.from_step)


def counted(target: str, out: str, rank: int, world_size: int, init_file: str, steps: int) -> None:
    """How many collectives the trainer's own group has seen, and hinan's; meanwhile tensors are made on no real device."""
    begin(rank, world_size, init_file)
    dist.all_reduce(torch.ones(1))
    state = {"w": torch.zeros(4)}
    seen = [_collectives(dist.group.WORLD)]
    torch.set_default_device("meta")
    evac = hinan.Evacuator(target, state, every=1, commit_every=1)
    step = evac.restore()
    resumed, own = step, [_collectives(evac._ranks._group)]
    while step < steps:
        state["w"] += 1
        step = evac.step()
        evac.evacuate(wait="committed", timeout_s=30)
    own.append(_collectives(evac._ranks._group))
    evac.close()
    torch.set_default_device("cpu")
    seen.append(_collectives(dist.group.WORLD))
    dist.all_reduce(torch.ones(1))
    seen.append(_collectives(dist.group.WORLD))
    tell(out, rank, seen=seen, own=own, resumed=resumed, w=state["w"].tolist())


def _collectives(group: Any) -> int:
    """How many collectives a group has carried out."""
    return int(group._get_sequence_number_for_group())
