"""`loop.main` with points at which a test can hold a trainer (see `points`), and a record of each restore."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from hinan.host import spawn
from hinan.trainer import evacuator
from hinan.trainer.attempt import start
from hinan.trainer.evacuating import evacuation
from hinan.trainer.ports import hostport
from hinan.trainer.restoring import restore
from tests.programs import loop
from tests.programs.lines import Lines
from tests.programs.points import around, reach


def main(step_s: float = 0.0, **arguments: Any) -> None:
    """Train as `loop.main` does; each step takes at least `step_s`."""
    rank = arguments["rank"]
    tail = f"-{rank}"
    start_held_agents()
    around(start, "_claim", before="claiming", after="claimed")
    around(restore.Restore, "_look", before="looking", after="looked")
    around(restore.Restore, "_decided", after="decided", suffix=lambda *a: tail)
    around(restore.Restore, "_matched", after="prepared", suffix=lambda *a: tail)
    around(restore.Restore, "_all_ok", after="voted", suffix=lambda *a: tail)
    around(restore.Restore, "_publish_resume", after="resumed", suffix=lambda *a: tail)
    around(evacuation.Evacuation, "_seal", before="copied", after="sealed", suffix=lambda *a: tail)
    around(evacuator.Evacuator, "_say_closed", before="closing", suffix=lambda *a: tail)
    _hold_in_mid_copy(tail)
    _hold_in_mid_install(tail)
    _write_restores(Path(arguments["out"]), rank)
    _slow_down(step_s)
    loop.main(**arguments)


def start_held_agents() -> None:
    run = subprocess.run

    def held(command: list[str], **options: Any) -> Any:
        return run(["tests.programs.held_agent" if word == "hinan.agent" else word for word in command], **options)

    spawn.subprocess = type("Subprocess", (), {"run": staticmethod(held)})  # type: ignore[attr-defined]


def _hold_in_mid_copy(tail: str) -> None:
    whole = hostport.memmove

    def memmove(destination: int, source: int, size_bytes: int) -> None:
        half = size_bytes // 2
        whole(destination, source, half)
        if half > 1 << 12:
            reach("copying" + tail)
        whole(destination + half, source + half, size_bytes - half)

    hostport.memmove = memmove  # type: ignore[assignment]


def _hold_in_mid_install(tail: str) -> None:
    match = restore.Restore._matched

    def matched(*args: Any) -> list[Any]:
        writes = match(*args)
        middle = len(writes) // 2
        return [*writes[:middle], lambda: reach("installing" + tail), *writes[middle:]]

    restore.Restore._matched = matched  # type: ignore[method-assign]


def _write_restores(out: Path, rank: int) -> None:
    original = evacuator.Evacuator.restore

    def restored(self: evacuator.Evacuator) -> int:
        step = original(self)
        assert self.resumed is not None
        record = {"by": self.attempt, "step": step, "attempt": self.resumed.attempt, "source": self.resumed.source}
        Lines(out / f"rank-{rank}.restores").write(record)
        return step

    evacuator.Evacuator.restore = restored  # type: ignore[method-assign]


def _slow_down(step_s: float) -> None:
    original = evacuator.Evacuator.step

    def step(self: evacuator.Evacuator) -> int:
        time.sleep(step_s)  # the work of a larger model
        return original(self)

    evacuator.Evacuator.step = step  # type: ignore[method-assign]


if __name__ == "__main__":
    import os

    main(rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]), **json.loads(sys.argv[1]))
