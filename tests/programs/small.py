"""Small trainers for single faults: state of a few numbers, results as JSON in `<out>/result-<rank>.json`."""

from __future__ import annotations

import json
import logging
import os
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import hinan
from hinan.trainer.attempt import start
from tests.programs.lines import Lines


def begin(rank: int, world_size: int, init_file: str) -> None:
    """Logging and, for more than one rank, the process group."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s %(message)s", force=True)
    if world_size > 1:
        os.environ |= {"WORLD_SIZE": str(world_size), "RANK": str(rank), "LOCAL_WORLD_SIZE": str(world_size)}
        dist.init_process_group("gloo", init_method=f"file://{init_file}", rank=rank, world_size=world_size)


def tell(out: str, rank: int, **found: Any) -> None:
    """What the test wants to know."""
    path = Path(out) / f"result-{rank}.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(known | found))


def error_of(work: Any) -> dict[str, Any] | None:
    """The error a call raises, as values; None if it works."""
    try:
        work()
    except Exception as error:
        return {"type": type(error).__name__, "text": str(error)}
    return None


def start_once(
    target: str, out: str, rank: int = 0, world_size: int = 1, init_file: str = "", dying_s: float = 0.2,
    targets: list[str] | None = None, plain: bool = False, options: dict[str, Any] | None = None,
    each: list[dict[str, Any]] | None = None,
) -> None:  # fmt: skip
    """Construct, restore, evacuate one step, close; the first error is the result. `targets`, `each`: another target, and
    other arguments, for each rank."""
    start.DYING_S = dying_s
    begin(rank, world_size if not plain else 1, init_file)
    if plain:
        os.environ["WORLD_SIZE"] = str(world_size)
    state = {"w": torch.arange(4.0)}

    def work() -> None:
        began = time.monotonic()
        arguments = {"every": 1, "commit_every": 1} | (options or {}) | (each[rank] if each else {})
        evac = hinan.Evacuator(targets[rank] if targets else target, state, **arguments)
        tell(out, rank, constructed_s=time.monotonic() - began)
        step = evac.restore()
        tell(out, rank, step=step, w=state["w"].tolist(), source=evac.resumed.source)
        state["w"] += 1
        evac.step()
        evac.close()

    tell(out, rank, error=error_of(work))


def hold_state(
    target: str, out: str, kind: str, rank: int = 0, world_size: int = 1, init_file: str = "", steps: int = 4,
    options: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    """Evacuate a state that cannot be kept, or one that changes between evacuations."""
    begin(rank, world_size, init_file)
    state: dict[str, Any] = {"w": torch.zeros(4)}
    if kind == "grows":
        state["more"] = {}
    else:
        state["bad"] = {"inner": [1, bad_value(kind)]}
    evac = hinan.Evacuator(target, state, every=1, commit_every=1, **(options or {}))
    tell(out, rank, resumed=evac.restore(), w=state["w"].tolist(), more=sorted(state.get("more", {})))
    errors = []
    for step in range(evac.resumed.step, steps):
        state["w"] += 1
        if kind == "grows":
            state["more"][f"t{step}"] = torch.full((3000 * (step + 1),), float(step))
        errors.append(error_of(evac.step))
    if any(errors):
        tell(out, rank, errors=errors)
    else:
        evac.close()


def bad_value(kind: str) -> object:
    """Something that cannot be stored."""
    if kind == "loader":
        return torch.utils.data.DataLoader([1, 2, 3])
    if kind == "lambda":
        return lambda: None
    if kind == "sparse":
        return torch.eye(3).to_sparse()
    if kind == "meta":
        return torch.empty(3, device="meta")
    if kind == "dtensor":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor

        if not dist.is_initialized():
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        return distribute_tensor(torch.zeros(4), init_device_mesh("cpu", (1,)), [Shard(0)])
    if kind == "raises":
        return Raises()
    assert kind == "object"
    return threading_lock()


class Raises:
    """Does not answer when it is asked for the second time."""

    asked = 0

    def state_dict(self) -> dict[str, int]:
        self.asked += 1
        if self.asked == 2:
            raise KeyError("not ready")
        return {"asked": self.asked}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.asked = state["asked"]


def threading_lock() -> object:
    import threading

    return threading.Lock()


def no_restore(target: str, out: str, rank: int = 0, world_size: int = 1, init_file: str = "") -> None:
    """`step()` and `evacuate()` without `restore()`."""
    begin(rank, world_size, init_file)
    evac = hinan.Evacuator(target, {"w": torch.zeros(2)})
    tell(out, rank, step=error_of(evac.step), evacuate=error_of(evac.evacuate))


def many_tensors(
    target: str, out: str, count: int, files: int = 256, steps: int = 3, rank: int = 0, world_size: int = 1,
    init_file: str = "",
) -> None:  # fmt: skip
    """Evacuate many tensors with few descriptors; writes the number of open descriptors after each evacuation."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    begin(rank, world_size, init_file)
    state = {"many": {f"t{i}": torch.full((1,), float(i)) for i in range(count)}}
    evac = hinan.Evacuator(target, state, every=1, commit_every=1000)
    step = evac.restore()
    right = all(float(t) == i + step for i, t in enumerate(state["many"].values()))
    descriptors = []
    while step < steps:
        torch._foreach_add_(list(state["many"].values()), 1.0)
        step = evac.step()
        descriptors.append(len(os.listdir("/proc/self/fd")))
    tell(out, rank, descriptors=descriptors, right=right, resumed=evac.resumed.step)
    os._exit(0)


def many_evacuations(
    target: str, out: str, steps: int = 50, numel: int = 1 << 20, rank: int = 0, world_size: int = 1, init_file: str = "",
) -> None:  # fmt: skip
    """Evacuate and commit again and again; writes this process's memory and the agent's after each."""
    begin(rank, world_size, init_file)
    state = {"w": torch.zeros(numel), "log": {"n": 0}}
    evac = hinan.Evacuator(target, state, every=1, commit_every=1)
    step = evac.restore()
    agent = evac._place.connect()
    from hinan.formats.messages import Status

    pid = agent.ask(Status(), 10.0).detail["pid"]
    sizes = []
    while step < steps:
        state["w"] += 1
        state["log"]["n"] += 1
        step = evac.step()
        evac.evacuate(wait="committed", timeout_s=60)
        sizes.append((anonymous_kib(os.getpid()), anonymous_kib(pid), len(os.listdir(evac._arena.root)),
                      len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir("/proc/self/fd"))))  # fmt: skip
    agent.close()
    evac.close()
    tell(out, rank, sizes=sizes)


def sized(
    target: str, out: str, numel: list[int], optimizer: str = "", steps: int = 1, rank: int = 0, world_size: int = 1,
    init_file: str = "", options: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    """A model of `numel[rank]` numbers: what restore() says, and, if it lets training begin, some steps; no close."""
    begin(rank, world_size, init_file)
    model = torch.nn.Linear(numel[rank], 1, bias=False)
    state: dict[str, Any] = {"model": model}
    if optimizer:
        state["optim"] = getattr(torch.optim, optimizer)(model.parameters(), lr=1e-3)
    evac = hinan.Evacuator(target, state, every=1, commit_every=1000, **(options or {}))
    began = time.monotonic()
    error = error_of(evac.restore)
    tell(out, rank, error=error, restore_s=time.monotonic() - began, slots=evac._arena.held_bytes(),
         source=evac.resumed.source if evac.resumed else None)  # fmt: skip
    while error is None and evac._step < steps:
        model(torch.ones(numel[rank])).sum().backward()
        if optimizer:
            state["optim"].step()
        evac.step()
        evac.evacuate()
    os._exit(0)


def steady(
    target: str, out: str, samples: list[int], saving: bool = True, rank: int = 0, world_size: int = 1, init_file: str = "",
    options: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    """Evacuate a tiny state at every step; at the steps in `samples`, when nothing is under way, write down what is held.

    `saving=False` is the control: the same loop and the same looks, without an evacuation.
    """
    begin(rank, world_size, init_file)
    state = {"w": torch.zeros(64), "log": {"n": 0}}
    every = 1 if saving else 10**9
    evac = hinan.Evacuator(target, state, every=every, commit_every=10 * every, **(options or {}))
    step = evac.restore()
    from hinan.formats.messages import Status

    agent = evac._place.connect()
    found = []
    while step < max(samples):
        state["w"] += 1
        state["log"]["n"] += 1
        step = evac.step()
        if step in samples:
            if saving:
                evac.evacuate(wait="committed", timeout_s=60)
            while agent.ask(Status(), 10.0).detail["draining"] is not None:
                time.sleep(0.002)  # the agent's work has no event for us; the test has a time-out
            pids = {"trainer": os.getpid(), "agent": agent.ask(Status(), 10.0).detail["pid"]}
            found.append({
                "names": sorted(set.intersection(*(set(os.listdir(evac._arena.root)) for _ in looks()))),
                **{f"{who} {what}": fewest(f"/proc/{pid}/{where}") for who, pid in pids.items()
                   for what, where in (("descriptors", "fd"), ("threads", "task"))},
                **{f"{who} kib": anonymous_kib(pid) for who, pid in pids.items()},
            })  # fmt: skip
    agent.close()
    if saving:
        evac.close()
    tell(out, rank, found=found)
    os._exit(0)


def looks() -> Iterator[int]:
    """Some looks in a row: what is there at one of them only (a heartbeat's files, a fact being written) is no growth."""
    for i in range(20):
        yield i
        time.sleep(0.002)


def fewest(directory: str) -> int:
    """The fewest names seen in some looks."""
    return min(len(os.listdir(directory)) for _ in looks())


def anonymous_kib(pid: int) -> int:
    """Private memory of a process, without the slots it maps."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    raise AssertionError(pid)


def absent_rank(
    target: str, out: str, rank: int = 0, world_size: int = 1, init_file: str = "", timeout_s: float = 0.5, steps: int = 8
) -> None:
    """Rank 1 trains but never evacuates; both go on with collectives of their own."""
    begin(rank, world_size, init_file)
    state = {"w": torch.zeros(4)}
    evac = hinan.Evacuator(target, state, every=1, commit_every=1, timeout_s=timeout_s)
    evac.restore()
    total, longest = torch.zeros(1), 0.0
    spent = 0.0
    for _ in range(steps):
        dist.all_reduce(total.fill_(1.0))
        began = time.monotonic()
        if rank == 0:
            evac.step()
        longest = max(longest, time.monotonic() - began)
        spent += time.monotonic() - began
    found: dict[str, Any] = {"total": float(total), "longest_s": longest, "spent_s": spent}
    if rank == 0:
        found["wait"] = error_of(lambda: evac.last.wait("committed", 1.0)) if evac.last.lost is None else None
        first = hinan.trainer.evacuating.handle.Handle(hinan.core.ids.StepId(evac.attempt, 1), evac.last._watch)
        found["first"] = error_of(lambda: first.wait("committed", 1.0))
    dist.barrier()
    tell(out, rank, **found)
    os._exit(0)


def mismatch(
    target: str, out: str, change: str = "", rank: int = 0, world_size: int = 1, init_file: str = "", steps: int = 2
) -> None:
    """Save with one structure, load with another: live state must stay as it was."""
    begin(rank, world_size, init_file)
    w: torch.Tensor = torch.full((4,), 7.0)
    if change in ("bfloat16", "float16", "float64", "int64"):
        w = w.to(getattr(torch, change))
    elif change == "shape":
        w = torch.full((5,), 7.0)
    state: dict[str, Any] = {"first": torch.full((3,), float(os.getpid())), "w": w, "note": {"a": 1}}
    if change == "missing":
        state["new"] = torch.zeros(1)
    before = {k: v.tolist() for k, v in state.items() if isinstance(v, torch.Tensor)}
    evac = hinan.Evacuator(target, state, every=1, commit_every=1)
    error = error_of(evac.restore)
    after = {k: v.tolist() for k, v in state.items() if isinstance(v, torch.Tensor)}
    tell(out, rank, error=error, same=before == after, resumed=evac.resumed.step if evac.resumed else None, w=after["w"])
    if error is None:
        while evac._step < steps:
            state["w"] += 1
            evac.step()
            evac.evacuate(wait="committed", timeout_s=60)
        evac.close()


def audited(target: str, out: str, rank: int = 0, world_size: int = 1, init_file: str = "") -> None:
    """Restore, and write down which files below the target were opened, and the bytes that came from them."""
    begin(rank, world_size, init_file)
    opened: list[str] = []

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]).startswith(target):
            opened.append(str(arguments[0]))

    state = {"w": torch.zeros(1 << 20)}
    evac = hinan.Evacuator(target, state, every=1, commit_every=1)
    sys.addaudithook(watch)
    step = evac.restore()
    tell(out, rank, step=step, source=evac.resumed.source, bytes_from=evac.resumed.bytes_from, opened=opened,
         w=float(state["w"].sum()) / (1 << 20))  # fmt: skip
    while evac._step < 2:
        state["w"] += 1
        evac.step()
        evac.evacuate(wait="committed", timeout_s=60)
    os._exit(0)


def hung(
    target: str, out: str, rank: int = 0, world_size: int = 1, init_file: str = "", timeout_s: float = 1.0,
    stop_file: str = "", close: bool = False, tolerate: int = 3,
) -> None:  # fmt: skip
    """Evacuate each step until a file says stop; what each step cost, what was lost, what was raised."""
    begin(rank, world_size, init_file)
    state = {"w": torch.zeros(4)}
    evac = hinan.Evacuator(target, state, every=1, commit_every=1, timeout_s=timeout_s, tolerate=tolerate)
    evac.restore()
    lines = Lines(Path(out) / "steps.jsonl")
    while not os.path.exists(stop_file):
        state["w"] += 1
        began = time.monotonic()
        error = error_of(evac.step)
        cost_s = time.monotonic() - began
        lines.write({"step": evac._step, "cost_s": cost_s, "lost": evac.last.lost if evac.last else None,
                                "error": error, "restarts": evac._liaison.agent_restarts})  # fmt: skip
        time.sleep(0.01)  # a step of training
    began = time.monotonic()
    tell(out, rank, closed=error_of(evac.close) if close else None, close_s=time.monotonic() - began)
    if not close:
        os._exit(0)


def committing(
    target: str, out: str, rank: int = 0, world_size: int = 1, init_file: str = "", steps: int = 2, timeout_s: float = 20.0,
) -> None:  # fmt: skip
    """Wait for the commit of each step; what was raised, and how long it took."""
    begin(rank, world_size, init_file)
    state = {"w": torch.zeros(4)}
    evac = hinan.Evacuator(target, state, every=1, commit_every=1000)
    step, waits = evac.restore(), []
    while step < steps:
        state["w"] += 1
        step = evac.step()
        began = time.monotonic()
        error = error_of(lambda: evac.evacuate(wait="committed", timeout_s=timeout_s))
        waits.append({"step": step, "error": error, "waited_s": time.monotonic() - began})
        if world_size > 1:
            dist.barrier()
    tell(out, rank, waits=waits, closed=error_of(evac.close))
