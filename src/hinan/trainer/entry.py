"""Runs a training script under `hinan run`: as `python script.py` would, but a fenced trainer ends with exit code 93.

torchrun restarts on any exit code. So the fact is also left where `hinan run` looks, and it stops the launcher.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from hinan.core.errors import Fenced

EXIT_FENCED = 93
STOP_FILE_VARIABLE = "HINAN_RUN_STOP_FILE"


def main() -> None:
    """`python -m hinan.trainer.entry script.py [arguments]`."""
    script = sys.argv[1]
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(script).resolve().parent)
    try:
        runpy.run_path(script, run_name="__main__")
    except Fenced as error:
        sys.stderr.write(f"hinan: {error}\n")
        stop_file = os.environ.get(STOP_FILE_VARIABLE)
        if stop_file:
            Path(stop_file).write_text(str(error))
        sys.exit(EXIT_FENCED)


if __name__ == "__main__":
    main()
