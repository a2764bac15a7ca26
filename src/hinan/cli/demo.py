"""`hinan demo`: the main job, shown and proven on this machine."""

from __future__ import annotations

import json
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hinan.cli.output import Json
from hinan.core.errors import ConfigError, HinanError

EPILOG = "Example:  hinan demo --kill rank --kill host"
EXIT_INTERRUPTED = 130


class Kill(StrEnum):
    """What is killed."""

    rank = "rank"
    all = "all"
    agent = "agent"
    host = "host"
    none = "none"


class Forget(StrEnum):
    """What a resumed attempt goes on without."""

    optim = "optim"


def demo_verb(
    ranks: Annotated[int, typer.Option(min=1, help="Trainer processes.")] = 2,
    steps: Annotated[int, typer.Option(min=9, help="Steps of each run.")] = 30,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    kill: Annotated[
        list[Kill] | None,
        typer.Option(
            help="Which acts run; may be repeated. rank: one rank. all: everything but the agent. agent: the agent too. "
            "host: the RAM copies too. none: nothing. Without it: rank, then all."
        ),
    ] = None,
    forget: Annotated[Forget | None, typer.Option(help="Resume without this part, and see what it costs.")] = None,
    target: Annotated[
        Path | None, typer.Option(help="A new directory to work in; it stays. Without it a temporary one.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Train a small GPT, kill it, and prove that nothing was lost.

    A GPT of 10 million parameters trains on the Python standard library's own text under torchrun, and is evacuated to RAM
    every few steps. Then it is killed from outside, in mid-step, and must end bit-equal to a run that was left alone. Takes
    under 3 minutes on 2 cores; leaves nothing behind. With --json the report goes to stdout and progress to stderr. Exit
    code 1 if anything does not hold.
    """
    from hinan.demo.acts import Options, run_demo
    from hinan.demo.report import to_json, to_text
    from hinan.demo.screen import Screen

    if device.split(":")[0] not in ("cpu", "cuda"):
        raise ConfigError(f"--device {device} is not supported; use cpu or cuda")
    kills = tuple(k.value for k in kill or ([Kill.rank] if forget else [Kill.rank, Kill.all]))
    options = Options(ranks, steps, device, kills, forget.value if forget else "", target)
    began = time.monotonic()
    try:
        with Screen(sys.stderr if as_json else sys.stdout) as screen:
            outcome = run_demo(options, screen.show)
    except KeyboardInterrupt:
        sys.stderr.write("hinan: interrupted; nothing was left behind\n")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except HinanError as error:
        if as_json:
            print(json.dumps({"ok": False, "acts": [], "error": str(error)}))
        raise
    wall_s = time.monotonic() - began
    print(json.dumps(to_json(outcome, wall_s), indent=2) if as_json else "\n".join(to_text(outcome, wall_s)))
    raise typer.Exit(0 if outcome.ok else 1)
