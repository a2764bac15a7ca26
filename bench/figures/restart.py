"""From the SIGKILL of a rank to the first new step, under torchrun, against the same loop that restores nothing.

Both loops are restarted by torchrun itself, which notices the death, ends the other rank and starts both again; that, the
imports and the rendezvous are the same on both sides and cancel out.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from bench.child import Settings, finished
from bench.row import Goal, Row, sampled

RESTART = Goal("restart", "SIGKILL of a rank to the first new step, over a restart without restore", 0.5, "s")
GOALS = (RESTART,)
PAIRS = 6
RANKS = 2
KILL_AT = 20
TIMEOUT_S = 300.0


def rows(settings: Settings) -> list[Row]:
    """Pairs, interleaved, each in an order of its own."""
    extra_s = []
    for pair in range(min(PAIRS, settings.evacuations)):
        took = {saving: launch(settings, saving=saving) for saving in ((True, False) if pair % 2 else (False, True))}
        extra_s.append(took[True] - took[False])
    return [sampled(RESTART, extra_s)]


def launch(settings: Settings, *, saving: bool) -> float:
    """One launch with one kill; seconds from the kill to the first new step of rank 0."""
    with settings.place() as (target, ram):
        arguments = ["--target", str(target), *(["--ram", str(ram)] if saving else [])]
        command = [
            sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}", "--max-restarts=1",
            "--monitor-interval=0.1", "--log-dir", str(target / "log"), "-m", __name__, *arguments,
        ]  # fmt: skip
        finished(command, {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1"}, TIMEOUT_S)
        at = {path.stem: json.loads(path.read_text()) for path in target.glob("*.json")}
        if saving and at["new"]["step"] != KILL_AT + 1:
            raise RuntimeError(f"the killed run went on with step {at['new']['step']}, not {KILL_AT + 1}")
        return float(at["new"]["at"] - at["killed"]["at"])


def loop(target: Path, ram: Path | None) -> None:
    """A rank: a small model, steps that all ranks take together; rank 1 kills itself once."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    again = os.environ["TORCHELASTIC_RESTART_COUNT"] != "0"
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Linear(256, 256))
    optimizer = torch.optim.AdamW(model.parameters())
    step, evac = 0, None
    if ram is not None:
        import hinan

        evac = hinan.Evacuator(target / "run", {"model": model, "optim": optimizer}, every=1, commit_every=1000, ram=ram)
        step = evac.restore()
    for _ in range(KILL_AT):
        model(torch.randn(16, 256)).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
        if again:
            say(target / f"{'new' if dist.get_rank() == 0 else 'other'}.json", step + 1)
            break
        step = evac.step() if evac is not None else step + 1
    dist.barrier()
    if not again:
        if evac is not None:
            assert evac.last is not None
            evac.last.wait("held", 60.0)  # on all ranks, so that this step is what is resumed from
        dist.barrier()
        if dist.get_rank() == 1:
            say(target / "killed.json", step)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)  # torchrun ends this rank
    if evac is not None:
        evac.close()
    dist.destroy_process_group()


def say(path: Path, step: int) -> None:
    path.write_text(json.dumps({"at": time.time(), "step": step}))


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser()
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--ram", type=Path)
    options = parser.parse_args()
    loop(options.target, options.ram)
