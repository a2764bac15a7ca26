"""The directory a demo works in, and the signals that reach it: however a demo ends, it cleans up once and to the end."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hinan.core.errors import ConfigError


@contextmanager
def place(target: Path | None) -> Iterator[Path]:
    """The directory of a demo: a temporary one, or the user's, which stays."""
    if target is None:
        root = Path(tempfile.mkdtemp(prefix="hinan-demo-"))
        try:
            yield root
        finally:
            with deaf():
                shutil.rmtree(root, ignore_errors=True)
        return
    if target.is_dir() and any(target.iterdir()):
        raise ConfigError(f"--target {target} is not empty; name a new directory")
    target.mkdir(parents=True, exist_ok=True)
    yield target.absolute()


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP end the demo as Ctrl-C does: through the clean-up."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def deaf() -> Iterator[None]:
    """A clean-up that has begun is not interrupted; it is bounded by its own deadlines."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
