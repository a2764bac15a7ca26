"""One trainer that holds every kind of state at once, each trained a step in turn, under one Evacuator.

It writes what `loop` writes, so that `losses`, `resumes` and `assert_same_run` read it: a step's loss is a digest of all
losses, the final file a digest of everything that lives, read by `tests.exact.twins` and not by hinan.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import hinan
from tests.exact import test_in_backward, test_loader, test_models, test_optimizers, test_parts, test_scaler, test_schedules
from tests.exact.twins import Make, everything, look, seed
from tests.programs.lines import Lines
from tests.trainer.test_layout import ZOO


def zoo() -> tuple[dict[str, Any], Any]:
    """Tensors of all kinds, each rolled by one step after step, and generators of all makers."""
    state: dict[str, Any] = {"zoo": {k: make() for k, make in ZOO.items() if k != "expanded"}}
    state["more"] = {"torch": torch.Generator(), "numpy": np.random.default_rng(1), "python": random.Random(1)}

    def step() -> Any:
        for tensor in state["zoo"].values():
            if tensor.numel():
                words = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
                rolled = words.view(-1, tensor.element_size()).roll(1, 0).contiguous().view(tensor.dtype)
                tensor.copy_(rolled.reshape(tensor.shape))
        own = state["more"]
        return [torch.rand(2, generator=own["torch"]), own["numpy"].normal(), own["python"].gauss(0, 1)]

    return state, step


def makers(workers: int) -> dict[str, Make]:
    """All kinds, by name."""
    train = test_optimizers.training
    return {
        "backward": test_in_backward.in_backward,
        "scaler": test_scaler.scaled,
        "parts": test_parts.parts,
        "groups": test_parts.groups,
        "several": test_parts.several,
        "ema": test_schedules.averaged,
        "masters": test_models.masters,
        "tied": test_models.training(test_models.Tied, test_models.tokens),
        "tiles": test_models.training(test_models.Tiles, lambda: torch.randn(32)),
        "conv": test_models.training(test_models.convolution, lambda: torch.randn(2, 3, 6, 6), torch.optim.Adafactor),
        "sparse": train(torch.optim.SparseAdam, {}),
        "lbfgs": train(torch.optim.LBFGS, {}),
        "muon": train(torch.optim.Muon, {}),
        "fused": train(torch.optim.AdamW, {"fused": True}),
        "chain": lambda: test_schedules.scheduled(test_schedules.sequence, lambda: 0.1),
        "loader": test_loader.make(0, own=True),
        "workers": test_loader.make(workers),
        "zoo": zoo,
    }


def main(
    target: str, out: str, steps: int = 12, every: int = 2, commit_every: int = 4, die_at: int = 0, rank: int = 0,
    world_size: int = 1, init_file: str = "", workers: int = 0,
) -> None:  # fmt: skip
    """Train.

    Args:
        die_at: SIGKILL itself in the middle of the step after that one, with half of the kinds trained.
    """
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s %(message)s", force=True)
    seed(7)
    state: dict[str, Any] = {}
    trains: dict[str, Any] = {}
    for kind, make in makers(workers).items():
        part, trains[kind] = make()
        state |= {f"{kind}-{key}": value for key, value in part.items()}
    lines = Lines(Path(out) / f"rank-{rank}.jsonl")
    with hinan.Evacuator(target, state, every=every, commit_every=commit_every) as evac:
        step = evac.restore()
        while step < steps:
            found = []
            for kind, train in trains.items():
                found.append([kind, look(train())])
                if step == die_at > 0 and kind == "ema":
                    os.kill(os.getpid(), signal.SIGKILL)
            step = evac.step()
            loss = hashlib.sha256(repr(found).encode()).hexdigest()
            record = {"attempt": evac.attempt, "step": step, "loss": loss, "resumed": evac.resumed.step,
                      "source": evac.resumed.source}  # fmt: skip
            lines.write(record)
        digests = {
            k: hashlib.sha256(repr(v).encode()).hexdigest()
            for k, v in zip(state, everything(state)[0].values(), strict=True)
        }
        digests["generators"] = hashlib.sha256(repr(everything({})[1]).encode()).hexdigest()
        (Path(out) / f"rank-{rank}.final").write_text(json.dumps(digests, indent=1))
        evac.evacuate()
