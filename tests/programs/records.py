"""State as real loops keep it beside their tensors, and many small tensors on several ranks."""

from __future__ import annotations

import os
from collections import OrderedDict
from enum import Enum
from typing import Any

import numpy as np
import torch

import hinan
from hinan.host.rpc import AgentClient
from tests.programs.small import begin, error_of, tell


class Phase(Enum):
    """A class of the user's."""

    WARM_UP = 1
    TRAIN = 2


def bookkeeping(seed: int) -> dict[str, Any]:
    """What resumes of other tools have tripped over, one value of each kind."""
    generator = np.random.RandomState(seed)
    generator.normal()
    return {
        "numpy_rng": generator.get_state(),
        "best": np.float32(seed) / 3,
        "count": np.int64(2**62 + seed),
        "dtype": [torch.bfloat16, torch.float32][seed % 2],
        "shape": torch.Size([seed, 2]),
        "order": OrderedDict([("b", seed), ("a", 1)] if seed % 2 else [("a", 1)]),
        "phase": [Phase.WARM_UP, Phase.TRAIN][seed % 2],
        "nothing": None if seed % 2 else 1,
    }


def keep_records(target: str, out: str, rank: int, world_size: int, init_file: str, seed: int) -> None:
    """Start with the bookkeeping of one seed, restore, and say whether it is that of seed 1 bit for bit."""
    begin(rank, world_size, init_file)
    state = {"w": torch.zeros(4), "book": bookkeeping(seed)}
    evac = hinan.Evacuator(target, state, every=1, commit_every=1)
    step = evac.restore()
    found, wanted = state["book"], bookkeeping(1)
    same = {k: repr(found[k]) == repr(v) and type(found[k]) is type(v) for k, v in wanted.items()}
    tell(out, rank, step=step, different=[k for k, equal in same.items() if not equal], keys=sorted(found))
    evac.step()
    tell(out, rank, error=error_of(evac.close))


def many_ranks(target: str, out: str, rank: int, world_size: int, init_file: str, count: int, steps: int) -> None:
    """Evacuate many one-element tensors a rank: collectives, requests to the agent and bytes of each evacuation."""
    begin(rank, world_size, init_file)
    asked: list[str] = []
    ask = AgentClient.ask

    def counted(self: AgentClient, request: Any, timeout_s: float) -> Any:
        asked.append(type(request).__name__)
        return ask(self, request, timeout_s)

    AgentClient.ask = counted  # type: ignore[method-assign]
    state = {"many": {f"t{i}": torch.full((1,), float(rank * count + i)) for i in range(count)}}
    evac = hinan.Evacuator(target, state, every=1, commit_every=1000)
    step, saves = evac.restore(), []
    group = evac._ranks._group
    while step < steps:
        before = len(asked), group._get_sequence_number_for_group()
        torch._foreach_add_(list(state["many"].values()), 1.0)
        step = evac.step()
        handle = evac.evacuate(wait="held")
        saves.append({"asked": len(asked) - before[0], "collectives": group._get_sequence_number_for_group() - before[1],
                      "bytes": handle.image_bytes, "stall_s": handle.stall_s})  # fmt: skip
    tell(out, rank, saves=saves, started=group._get_sequence_number_for_group())
    os._exit(0)
