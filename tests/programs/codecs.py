"""A trainer whose state needs a codec, in which one rank makes a mistake as it is started again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import torch

import hinan
from hinan.core.errors import FormatError
from tests.programs.small import begin, error_of, tell


class Coded:
    """What plain values cannot say."""

    def __init__(self, steps: int) -> None:
        self.steps = steps


def decode(values: dict[str, int]) -> Coded:
    return Coded(values["steps"])


def older(values: dict[str, int]) -> Coded:
    return Coded(values["step"])


def with_a_file(values: dict[str, int]) -> Coded:
    with open(f"/nowhere/{values['steps']}"):
        return decode(values)


def with_words_of_ours(values: dict[str, int]) -> Coded:
    raise FormatError(f"{values} are of another version")


DECODERS: dict[str, Callable[[dict[str, int]], Coded]] = {
    "": decode, "older": older, "file": with_a_file, "ours": with_words_of_ours,
}  # fmt: skip


def main(target: str, out: str, rank: int, world_size: int, init_file: str, mistake: str = "", steps: int = 2) -> None:
    """Say what a restore gives; train some steps, each committed, and die. The last rank makes the mistake."""
    begin(rank, world_size, init_file)
    mistake = mistake if rank == world_size - 1 else ""
    if mistake != "forgotten":
        hinan.register_codec(Coded, "tests.coded", vars, DECODERS[mistake])
    state: dict[str, Any] = {"w": torch.zeros(4), "inner": {"coded": [Coded(0)]}}
    evac = hinan.Evacuator(target, state, every=1, commit_every=1)
    began = time.monotonic()
    error = error_of(evac.restore)
    resumed = evac.resumed
    tell(out, rank, error=error, restore_s=time.monotonic() - began, step=resumed and resumed.step,
         source=resumed and resumed.source, steps=state["inner"]["coded"][0].steps, w=state["w"].tolist())  # fmt: skip
    while error is None and evac.finished_steps < steps:
        state["w"] += 1
        state["inner"]["coded"][0].steps = evac.finished_steps + 1
        evac.step()
        evac.evacuate(wait="committed", timeout_s=60)
    os._exit(0)
