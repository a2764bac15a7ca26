"""`loop.main` that pauses itself after six steps, until its pause file is removed."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from hinan.trainer import evacuator
from tests.programs import loop


def main(pause_file: str, **arguments: Any) -> None:
    original = evacuator.Evacuator.step

    def step(self: evacuator.Evacuator) -> int:
        done = original(self)
        if done == 6:
            Path(pause_file).touch()
            while os.path.exists(pause_file):
                time.sleep(0.01)  # a long step
        return done

    evacuator.Evacuator.step = step  # type: ignore[method-assign]
    loop.main(**arguments)
