"""A small training loop whose every step depends on weights, moments, generators, data position and schedule.

It writes one line a step (`<out>/rank-<r>.jsonl`: attempt, step, loss as hex, what the newest evacuation has cost by then)
and, at the end, a digest of all state (`<out>/rank-<r>.final`). Two runs are the same run exactly if the last line of each
step and the digests are equal.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import hinan
from tests.programs.lines import Lines, read_lines


class Model(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = torch.nn.Linear(width, width)
        self.norm = torch.nn.BatchNorm1d(width)
        self.drop = torch.nn.Dropout(0.2)
        self.last = torch.nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.drop(torch.relu(self.norm(self.first(x)))))


def main(
    target: str,
    out: str,
    steps: int = 20,
    every: int | str = 3,
    commit_every: int | str = 6,
    rank: int = 0,
    world_size: int = 1,
    init_file: str = "",
    width: int = 32,
    die_at: int = 0,
    close: bool = True,
    pause_file: str = "",
    pause_at: list[int] | None = None,
    touch_at: dict[str, str] | None = None,
    wait_committed: list[int] | None = None,
    ending: str = "return",
    keep_last: int = 3,
    options: dict[str, Any] | None = None,
) -> None:
    """Train.

    Args:
        die_at: SIGKILL itself after that step.
        pause_file: before each step wait while this file exists.
        pause_at: after each of these steps make `<pause_file>.<step>` and wait until somebody removes it.
        touch_at: after a step, make a file.
        wait_committed: steps at which training waits for the commit.
        ending: without `close`, how the process ends: return, exit (status 1), destroy (the process group), _exit.
    """
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s %(message)s", force=True)
    if world_size > 1:
        os.environ |= {"WORLD_SIZE": str(world_size), "RANK": str(rank), "LOCAL_WORLD_SIZE": str(world_size)}
        dist.init_process_group(
            "gloo", init_method=f"file://{init_file}" if init_file else None, rank=rank, world_size=world_size
        )
    torch.manual_seed(100 + rank)
    np.random.seed(rank)
    model = Model(width)
    if world_size > 1:
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, 0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 4, gamma=0.7)
    data = {"position": 0, "seen": []}
    state = {"model": model, "optim": optimizer, "sched": schedule, "data": data}
    evac = hinan.Evacuator(target, state, every=every, commit_every=commit_every,
                           keep=hinan.Keep(last=keep_last), **(options or {}))  # fmt: skip
    step = evac.restore()
    lines = Lines(Path(out) / f"rank-{rank}.jsonl")
    while step < steps:
        while pause_file and os.path.exists(pause_file):
            os.sched_yield()
        x = torch.randn(8, width) + float(np.random.rand()) + data["position"] * 0.01
        loss = model(x).square().mean()
        loss.backward()
        if world_size > 1:
            for p in model.parameters():
                dist.all_reduce(p.grad)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        data["position"] += 8
        data["seen"] = [*data["seen"][-3:], step]
        step = evac.step()
        record = {"attempt": evac.attempt, "step": step, "loss": loss.item().hex(), "resumed": evac.resumed.step,
                  "source": evac.resumed.source, "stall_s": evac.last.stall_s if evac.last else None}  # fmt: skip
        lines.write(record)
        if step in (wait_committed or ()):
            evac.evacuate(wait="committed", timeout_s=60)
        if touch_at and str(step) in touch_at:
            Path(touch_at[str(step)]).write_text("1")
        if step in (pause_at or ()):
            Path(f"{pause_file}.{step}").touch()
            while os.path.exists(f"{pause_file}.{step}"):
                time.sleep(0.002)
        if step == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
    (Path(out) / f"rank-{rank}.final").write_text(digest(state))
    if close:
        evac.close()
    elif ending == "exit":
        sys.exit(1)
    elif ending == "destroy":
        dist.destroy_process_group()
    elif ending == "_exit":
        os._exit(0)


def digest(state: dict[str, Any]) -> str:
    """One digest over all parameters, buffers, moments, generators and plain values."""
    found = hashlib.sha256()
    for name, tensor in state["model"].state_dict().items():
        found.update(name.encode() + tensor.numpy().tobytes())
    for entry in state["optim"].state.values():
        for name in sorted(entry):
            found.update(name.encode() + entry[name].numpy().tobytes())
    found.update(torch.get_rng_state().numpy().tobytes())
    found.update(np.random.get_state()[1].tobytes())
    found.update(json.dumps([state["sched"].state_dict()["_last_lr"], state["data"]]).encode())
    return found.hexdigest()


def losses(out: Path, rank: int = 0) -> dict[int, str]:
    """The last loss written for each step."""
    return {line["step"]: line["loss"] for line in read_lines(out / f"rank-{rank}.jsonl")}


def resumes(out: Path, rank: int = 0) -> list[tuple[int, int, str]]:
    """(attempt, resumed step, source) of each attempt that made a step, in order."""
    lines = read_lines(out / f"rank-{rank}.jsonl")
    return sorted({(line["attempt"], line["resumed"], line["source"]) for line in lines})
