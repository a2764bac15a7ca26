"""Calls one function in a fresh interpreter, so that no figure inherits memory, caches or threads of another."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.proc import end_all

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
            end_all(target)
            shutil.rmtree(target, ignore_errors=True)
            shutil.rmtree(ram, ignore_errors=True)

    def clear(self) -> None:
        """End and remove what a child has left behind that could not do it itself, for it was killed."""
        end_all(Path(self.directory))
        for root in (self.directory, self.ram):
            for left in Path(root).iterdir():
                shutil.rmtree(left, ignore_errors=True)


TIMEOUT_S = 1800.0


def finished(command: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> str:
    """What a program prints, run from the root of the repository.

    Raises:
        RuntimeError: it failed, or ran out of time and was ended; the message has its last words.
    """
    with subprocess.Popen(
        command, cwd=ROOT, env=os.environ | dict(environment), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        try:
            out, err = program.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as expired:
            program.kill()  # and no more is read: what it has started may hold the pipe
            err = (expired.stderr or b"").decode(errors="replace")
            raise RuntimeError(f"it took longer than {timeout_s:g} s:\n{err[-4000:]}") from None
        except BaseException:
            program.kill()
            raise
    if program.returncode != 0:
        raise RuntimeError(f"it ended with {program.returncode}:\n{err[-4000:]}")
    return out


def call(function: str, settings: Settings, environment: Mapping[str, str] | None = None, **arguments: Any) -> Any:
    """The JSON value of `module:function(settings, **arguments)`.

    Raises:
        RuntimeError: it failed or ran out of time; the message has its last words.
    """
    command = [sys.executable, "-m", "bench.child", function, json.dumps([asdict(settings), arguments])]
    try:
        out = finished(command, {"HINAN_AGENT_IDLE_S": "30"} | dict(environment or {}), TIMEOUT_S)
    except RuntimeError as error:
        raise RuntimeError(f"{function}: {error}") from None
    return json.loads(out.splitlines()[-1])


def main() -> None:
    module, _, name = sys.argv[1].partition(":")
    settings, arguments = json.loads(sys.argv[2])
    value = getattr(importlib.import_module(module), name)(Settings(**settings), **arguments)
    sys.stdout.write("\n" + json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
