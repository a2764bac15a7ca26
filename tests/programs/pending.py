"""A loop of `overlap_loops.KINDS` that kills itself in mid-iteration, and writes what tells two runs apart.

It writes what `loop` writes, so that `resumes` and `assert_same_run` read it: a step's loss is a digest of all that lives.
"""

from __future__ import annotations

import hashlib
import logging
import os
import signal
from pathlib import Path
from typing import Any

import hinan
from tests.exact.twins import everything, seed
from tests.programs.lines import Lines
from tests.programs.loops_of_optimizers import Loop
from tests.programs.overlap_loops import KINDS


def main(
    target: str, out: str, kind: str, steps: int, every: int, die_at: int = 0, rank: int = 0, check: str = "off", **_: Any
) -> None:
    """Train one kind.

    Args:
        die_at: SIGKILL itself after that iteration's work, before its `evac.step()`.
    """
    logging.basicConfig(level=logging.INFO, format="%(name)s %(levelname)s %(message)s", force=True)
    seed(7)
    loop = Loop()
    iteration = KINDS[kind](loop)
    loop.evac = hinan.Evacuator(target, loop.state, every=every, commit_every=1000, check=check)
    loop.step = loop.evac.restore()
    lines = Lines(Path(out, f"rank-{rank}.jsonl"))
    while loop.step < steps:
        iteration()
        if loop.step + 1 == die_at:
            if loop.evac.last is not None:
                loop.evac.last.settle()  # which ones are held must not depend on how soon a thread seals them
            os.kill(os.getpid(), signal.SIGKILL)
        loop.step = loop.evac.step()
        resumed = loop.evac.resumed
        assert resumed is not None
        record = {"attempt": loop.evac.attempt, "step": loop.step, "loss": _digest(loop.state),
                  "resumed": resumed.step, "source": resumed.source}  # fmt: skip
        lines.write(record)
    Path(out, f"rank-{rank}.final").write_text(_digest(loop.state))
    loop.evac.close()


def _digest(state: dict[str, Any]) -> str:
    return hashlib.sha256(repr(everything(state)).encode()).hexdigest()
