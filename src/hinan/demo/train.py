"""The training loop of the demo, one process a rank under torchrun: an ordinary loop with five lines of hinan in it.

It knows nothing of kills. It writes a diary (`demo.diary`) with the loss of each step and digests of all state.

    python -m torch.distributed.run --standalone --nproc-per-node 2 -m hinan.demo.train plan.json
"""

from __future__ import annotations

from hinan.demo.diary import Diary, spawned_at

SPAWNED_AT = spawned_at()

import hashlib  # noqa: E402 - the imports below are what `imported` measures
import logging  # noqa: E402
import math  # noqa: E402
import os  # noqa: E402
import random  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import hinan  # noqa: E402
from hinan.demo.gpt import Gpt  # noqa: E402
from hinan.demo.settings import Plan, read_plan  # noqa: E402
from hinan.demo.text import Text, library_text  # noqa: E402

WARM_UP_STEPS = 4


def main(plan: Plan) -> None:
    """Train to the end, from wherever the run stands."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    diary = Diary(Path(plan.out), rank)
    # Both belong to the imports: the second loads torch's compiler, which making an optimizer would do otherwise.
    _ = hinan.Evacuator
    torch.use_deterministic_algorithms(True, warn_only=True)
    diary.write("imported", spawned_at=SPAWNED_AT, pid=os.getpid())
    device = start(plan, rank)
    diary.write("met")
    model, optimizer, schedule, data = build(plan, device, rank, world_size)
    # Why find_unused_parameters: otherwise DDP lays its buckets out anew after the first step of each process, and
    # with three or more ranks that changes the order in which gradients are summed, thus their last bits.
    ddp = DistributedDataParallel(model, find_unused_parameters=True)
    state = {"model": model, "optim": optimizer, "sched": schedule, "data": data}
    with hinan.Evacuator(plan.target, state, every=plan.every, commit_every=plan.commit_every) as evac:
        diary.write("built")
        step, notes = evac.restore(), Notes(diary)
        diary.write("resumed", **resumed(evac))
        if plan.forget == "optim" and evac.attempt > 1:
            optimizer.state.clear()
        while step < plan.steps:
            tokens, following = (part.to(device) for part in data.next_batch())
            loss = ddp(tokens, following)
            diary.write("forward", step=step + 1)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            step = evac.step()
            diary.write("step", step=step, attempt=evac.attempt, loss=loss.item().hex())
            notes.look(evac.last)
            if step % plan.commit_every == 0 or step == plan.steps:
                diary.write("state", step=step, attempt=evac.attempt, digests=digests(state))
        if evac.last is not None:
            evac.last.settle()
            notes.look(evac.last)
        if plan.compare_save:
            diary.write("saved", seconds=save_seconds(plan, state))
        diary.write("closing")
    diary.write("closed")
    dist.destroy_process_group()


def start(plan: Plan, rank: int) -> torch.device:
    """Meet the other ranks; settings that make the arithmetic repeatable; generators that differ by rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    device = torch.device(plan.device)
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    torch.manual_seed(plan.seed)  # the same start of the model on all ranks
    np.random.seed(plan.seed + rank)
    random.seed(plan.seed + rank)
    return device


def build(plan: Plan, device: torch.device, rank: int, world_size: int) -> tuple[Any, Any, Any, Text]:
    """Model, optimizer, schedule and data of this rank."""
    model = Gpt(plan).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=plan.lr, weight_decay=0.1)

    def share(done: int) -> float:
        warm = min(1.0, (done + 1) / WARM_UP_STEPS)
        return warm * (0.55 + 0.45 * math.cos(math.pi * done / plan.steps))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, share)
    data = Text(library_text(), plan.context, plan.batch, plan.seed, rank, world_size)
    torch.manual_seed(plan.seed + 1000 + rank)  # from here on each rank drops out differently
    return model, optimizer, schedule, data


def resumed(evac: hinan.Evacuator) -> dict[str, Any]:
    """What `restore()` did, for the diary."""
    done = evac.resumed
    assert done is not None
    return {
        "attempt": evac.attempt,
        "step": done.step,
        "source": done.source,
        "why": done.reason,
        "read_bytes": done.bytes_from,
        "seconds": done.seconds,
    }


class Notes:
    """Writes down each evacuation once it is held, which is while the next step runs."""

    def __init__(self, diary: Diary) -> None:
        self._diary = diary
        self._noted: hinan.Handle | None = None

    def look(self, handle: hinan.Handle | None) -> None:
        """Called after each step with the newest evacuation."""
        if handle is None or handle is self._noted or handle.held_at is None:
            return
        self._noted = handle
        self._diary.write(
            "held", step=handle.step, attempt=handle.attempt, held_at=handle.held_at, stall_s=handle.stall_s,
            copy_s=handle.held_at - handle.asked_at, bytes=handle.image_bytes,
        )  # fmt: skip


def digests(state: dict[str, Any]) -> dict[str, str]:
    """SHA-256 of every parameter, moment, generator and plain value, by name."""
    names = {id(p): name for name, p in state["model"].named_parameters()}
    found = {f"model.{name}": _sum(tensor) for name, tensor in state["model"].state_dict().items()}
    for parameter, moments in state["optim"].state.items():
        found |= {f"optim.{names[id(parameter)]}.{key}": _sum(value) for key, value in moments.items()}
    groups = [{k: v for k, v in group.items() if k != "params"} for group in state["optim"].param_groups]
    plain = {
        "optim.groups": groups,
        "sched": {k: v for k, v in state["sched"].state_dict().items() if k != "lr_lambdas"},
        "data": state["data"].state_dict(),
        "rng.python": random.getstate(),
        "rng.numpy": [str(part) if isinstance(part, str) else np.asarray(part).tolist() for part in np.random.get_state()],
    }
    found |= {name: hashlib.sha256(repr(value).encode()).hexdigest() for name, value in plain.items()}
    found["rng.torch"] = _sum(torch.get_rng_state())
    if torch.cuda.is_available():
        found["rng.cuda"] = _sum(torch.cuda.get_rng_state())
    return found


def _sum(tensor: torch.Tensor) -> str:
    data = tensor.detach().cpu().contiguous()
    head = f"{data.dtype} {tuple(data.shape)} ".encode()
    return hashlib.sha256(head + data.reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()


def save_seconds(plan: Plan, state: dict[str, Any]) -> list[float]:
    """How long a plain torch.save of the same state stops training: rank 0 writes, as DDP scripts do, the others wait."""
    seconds = []
    path = Path(plan.out) / "plain.pt"
    for _ in range(3):
        dist.barrier()
        began = time.monotonic()
        if dist.get_rank() == 0:
            kept = {"model": state["model"].state_dict(), "optim": state["optim"].state_dict()}
            torch.save(kept, path)
        dist.barrier()
        seconds.append(time.monotonic() - began)
    path.unlink(missing_ok=True)
    return seconds


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s %(message)s")
    main(read_plan(Path(sys.argv[1])))
