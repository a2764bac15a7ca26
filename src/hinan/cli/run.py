"""`hinan run`: torchrun with what a resuming job on one host needs, and an end when the run was taken over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from hinan.core.errors import ConfigError, Fenced
from hinan.host.node import node_name
from hinan.host.spawn import start_agent
from hinan.tiers.target import Target

EPILOG = "Example:  hinan run --nproc-per-node 2 --max-restarts 3 train.py --lr 3e-4"
STORE_VARIABLE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
STOP_FILE_VARIABLE = "HINAN_RUN_STOP_FILE"
LOOK_EVERY_S = 0.2


def run_verb(
    context: typer.Context,
    script: Annotated[
        Path, typer.Argument(metavar="SCRIPT", help="The training script; what follows it are its arguments.")
    ],
    nproc_per_node: Annotated[str, typer.Option(help="Ranks on this host, as torchrun understands it.")] = "1",
    max_restarts: Annotated[int, typer.Option(min=0, help="How often torchrun restarts all ranks after one failed.")] = 3,
    target: Annotated[Path | None, typer.Option(help="Start the agent of this target first, outside the launcher.")] = None,
) -> None:
    """Run a training script under torchrun so that it survives its ranks.

    It is torchrun, with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 (without it, ranks that restart on one host can meet the
    addresses of killed ones and hang), and an end instead of a restart when another attempt has taken the run over (exit
    code 93). Exit code: torchrun's.
    """
    if not script.is_file():
        raise ConfigError(f"{script} does not exist; name a Python script (its arguments follow it)")
    if target is not None:
        _start_agent(target)
    if STORE_VARIABLE not in os.environ:
        typer.echo(f"hinan run: sets {STORE_VARIABLE}=1, so that restarted ranks do not meet killed ones", err=True)
    with tempfile.TemporaryDirectory(prefix="hinan-run-") as folder:
        stop_file = Path(folder) / "stop"
        command = [
            sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={nproc_per_node}",
            f"--max-restarts={max_restarts}", "-m", "hinan.trainer.entry", str(script), *context.args,
        ]  # fmt: skip
        environment = {STORE_VARIABLE: "1"} | os.environ | {STOP_FILE_VARIABLE: str(stop_file)}
        launcher = subprocess.Popen(command, env=environment)
        status = _wait(launcher, stop_file)
        if stop_file.exists():
            raise Fenced(f"not restarted: {stop_file.read_text()}")
    raise typer.Exit(status)


def _wait(launcher: subprocess.Popen[bytes], stop_file: Path) -> int:
    """Wait for the launcher; pass signals on; end it when the run was taken over."""

    def forward(number: int, _frame: object) -> None:
        launcher.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, forward)
    while True:
        try:
            status = launcher.wait(LOOK_EVERY_S)
        except subprocess.TimeoutExpired:
            if stop_file.exists():
                launcher.terminate()
                return launcher.wait()
            continue
        return status if status >= 0 else 128 - status


def _start_agent(target: Path) -> None:
    from hinan.cli.places import arena_of

    place = Target(target.absolute())
    place.open_or_create()
    start_agent(place.root, arena_of(place).root, node_name())
