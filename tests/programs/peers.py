"""Trainers of which one rank is unlike the others: it reads slowly, sees the store late, has another clock, cannot join."""

from __future__ import annotations

import os
import time
from typing import Any

import torch

import hinan
from hinan.tiers.reading import Reading
from hinan.trainer import liaison, restore
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
