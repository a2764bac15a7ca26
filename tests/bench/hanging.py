"""What a child runs that never ends: it has started a process with a target, and made an image."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from bench.child import Settings

MARK = "reached"


def hang(settings: Settings) -> None:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", f"{settings.directory}/target"])
    (Path(settings.ram) / "figure").mkdir()
    (Path(settings.ram) / "figure" / "image").touch()
    (Path(settings.directory).parent / MARK).touch()
    time.sleep(600)
