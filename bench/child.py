"""Calls one function in a fresh interpreter, so that no figure inherits memory, caches or threads of another."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.proc import end_agents

ROOT = Path(__file__).resolve().parent.parent
TMPFS = Path("/dev/shm")


@dataclass(frozen=True)
class Settings:
    """What every figure is told.

    Attributes:
        directory: where targets and floors are written; its file system is what is measured.
        ram: the directory on a tmpfs for arenas.
    """

    state_bytes: int
    evacuations: int
    directory: str
    ram: str

    @contextmanager
    def place(self) -> Iterator[tuple[Path, Path]]:
        """(a directory for targets, one for arenas), empty, and gone afterwards with whatever was started there."""
        target = Path(tempfile.mkdtemp(prefix="figure-", dir=self.directory))
        ram = Path(tempfile.mkdtemp(prefix="figure-", dir=self.ram))
        try:
            yield target, ram
        finally:
            end_agents(target)
            shutil.rmtree(target, ignore_errors=True)
            shutil.rmtree(ram, ignore_errors=True)


TIMEOUT_S = 1800.0


def call(function: str, settings: Settings, environment: Mapping[str, str] | None = None, **arguments: Any) -> Any:
    """The JSON value of `module:function(settings, **arguments)`.

    Raises:
        RuntimeError: it failed; the message has its last words.
    """
    done = subprocess.run(
        [sys.executable, "-m", "bench.child", function, json.dumps([asdict(settings), arguments])],
        cwd=ROOT, env=os.environ | {"HINAN_AGENT_IDLE_S": "30"} | dict(environment or {}), capture_output=True, text=True,
        check=False, timeout=TIMEOUT_S,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"{function} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    module, _, name = sys.argv[1].partition(":")
    settings, arguments = json.loads(sys.argv[2])
    value = getattr(importlib.import_module(module), name)(Settings(**settings), **arguments)
    sys.stdout.write("\n" + json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
