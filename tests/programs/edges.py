"""Trainers that go where loops seldom go: a structure that grows, misuse after the end, waits on all ranks."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import hinan
from hinan.core.errors import ConfigError
from tests.programs.torture import start_held_agents


def _begin(rank: int, world_size: int, init_file: str) -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s %(message)s", force=True)
    start_held_agents()
    if world_size > 1:
        os.environ |= {"WORLD_SIZE": str(world_size), "RANK": str(rank), "LOCAL_WORLD_SIZE": str(world_size)}
        dist.init_process_group("gloo", init_method=f"file://{init_file}", rank=rank, world_size=world_size)


def grows(target: str, out: str, rank: int, world_size: int, init_file: str) -> None:
    """The state holds one tensor that is longer after every third step; all of it is evacuated at every step."""
    _begin(rank, world_size, init_file)
    state: dict[str, Any] = {"rows": torch.zeros(1000)}
    evac = hinan.Evacuator(target, state, every=1, commit_every=1)
    step = evac.restore()
    while step < 12:
        if step % 3 == 2:
            state["rows"] = torch.cat([state["rows"], torch.full((1000,), float(step))])
        state["rows"] += 1
        step = evac.step()
        assert evac.last is not None
        evac.last.wait("committed", 20)
    evac.close()
    Path(out, "done").touch()


def misused(target: str, out: str, rank: int, world_size: int, init_file: str) -> None:
    """restore() twice, and step() and evacuate() after close(): each says what is wrong, and costs no time-out."""
    _begin(rank, world_size, init_file)
    evac = hinan.Evacuator(target, {"x": torch.zeros(8)}, every=1)
    evac.restore()
    refused = _refused(evac.restore)
    evac.step()
    evac.close()
    assert refused + _refused(evac.restore) + _refused(evac.step) + _refused(evac.evacuate) == 4
    evac.close()
    Path(out, "done").touch()


def _refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except ConfigError:
        return True
    return False


def waits(target: str, out: str, rank: int, world_size: int, init_file: str, steps: int = 6) -> None:
    """Every rank waits for every step to be committed; one that was committed stays so."""
    _begin(rank, world_size, init_file)
    state = {"x": torch.zeros(1000)}
    evac = hinan.Evacuator(target, state, every=1, commit_every=1000)
    step = evac.restore()
    while step < steps:
        state["x"] += 1
        step = evac.step()
        evac.evacuate(wait="committed", timeout_s=30)
        assert _is_committed(target, step)
    early = evac.last
    assert early is not None
    for _ in range(6):
        state["x"] += 1
        evac.step()
    evac.close()
    Path(out, f"done-{rank}").touch()


def _is_committed(target: str, step: int) -> bool:
    return any(Path(target, "steps").glob(f"{step:010d}-*/COMMIT"))


def many(target: str, out: str, rank: int, world_size: int, init_file: str, steps: int = 400) -> None:
    """Evacuates at every step, commits often, and writes down descriptors, threads and resident bytes as it goes."""
    _begin(rank, world_size, init_file)
    state = {"x": torch.zeros(20_000)}
    evac = hinan.Evacuator(target, state, every=1, commit_every=4)
    step = evac.restore()
    with Path(out, "counts").open("a") as lines:
        while step < steps:
            state["x"] += 1
            step = evac.step()
            assert evac.last is not None
            if step % 8 == 0:
                evac.last.wait("held", 30)
            if step % 20 == 0:
                evac.evacuate(wait="committed", timeout_s=60)
                lines.write(f"{step} {_counts('self')}\n")
                lines.flush()
        evac.close()


def _counts(pid: str) -> str:
    threads = len(os.listdir(f"/proc/{pid}/task"))
    return f"{len(os.listdir(f'/proc/{pid}/fd'))} {threads}"
