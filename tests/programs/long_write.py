"""A loop that writes into its weights by hand while they are copied: one operation, which outlasts the copy."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import torch
from torch import nn

import hinan
from hinan.trainer.ports import hostport
from tests.programs.small import begin, tell

WEIGHT_BYTES = 64 << 20
DIE_AT = 6


def main(target: str, out: str, rank: int = 0, world_size: int = 1, init_file: str = "", **_: Any) -> None:
    """All elements of the one weight are equal at each boundary. First it trains, writes and is killed; then it resumes."""
    begin(rank, world_size, init_file)
    model = nn.Module()
    model.w = nn.Parameter(torch.ones(WEIGHT_BYTES // 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125)
    evac = hinan.Evacuator(target, {"m": model, "o": optimizer}, every=3, commit_every=999)
    step = evac.restore()
    if step:
        tell(out, rank, step=step, is_uniform=bool((model.w == model.w[0]).all()))
        evac.close()
        return
    wait = copies_wait_for_a_change(model.w)
    while step < DIE_AT:
        model.w.grad = torch.ones_like(model.w)
        optimizer.step()
        wait.append(step + 1 == DIE_AT)
        step = evac.step()
    with torch.no_grad():
        model.w.sin_()
    last, until = evac.last, time.monotonic() + 30
    assert last is not None
    while not (last.held or last.lost) and time.monotonic() < until:
        time.sleep(0.01)
    tell(out, rank, held=last.held, lost=last.lost, beside_bytes=last.image_bytes - last.ungated_bytes)
    os.kill(os.getpid(), signal.SIGKILL)


def copies_wait_for_a_change(weight: torch.Tensor) -> list[bool]:
    """Have a copy of the weight begin when its first element changes; as long as the last one of the list says so."""
    move, wanted = hostport.memmove, [False]
    before = weight.detach()[:1].clone()

    def memmove(destination: int, source: int, size_bytes: int) -> None:
        until = time.monotonic() + 10
        if wanted[-1] and size_bytes == WEIGHT_BYTES:
            before.copy_(weight.detach()[:1])
            while before.equal(weight.detach()[:1]) and time.monotonic() < until:
                time.sleep(0)
        move(destination, source, size_bytes)

    hostport.memmove = memmove  # type: ignore[assignment]
    return wanted
