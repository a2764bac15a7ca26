"""A slow store as one process sees it: for a while some names below a directory are not there."""

from __future__ import annotations

import errno
import io
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


class Listing:
    """What os.scandir returns, without some names."""

    def __init__(self, entries: list[os.DirEntry[str]]) -> None:
        self._entries = entries

    def __iter__(self) -> Iterator[os.DirEntry[str]]:
        return iter(self._entries)

    def __enter__(self) -> Listing:
        return self

    def __exit__(self, *_: object) -> None:
        self._entries = []


def hide(names: list[Path], late_s: float) -> None:
    """From now on, for `late_s` seconds, these files and whatever lies below these directories is not seen here.

    A directory itself stays, and looks empty. What this process writes there meanwhile reaches the disk.
    """
    until = time.monotonic() + late_s
    texts = [str(name) for name in names]

    def hidden(path: Any) -> bool:
        if time.monotonic() >= until or not isinstance(path, str | os.PathLike):
            return False
        text = os.fspath(path)
        return any(text.startswith(f"{name}/") or (text == name and not _is_directory(name)) for name in texts)

    def refusing(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(path: Any, *rest: Any, **more: Any) -> Any:
            if hidden(path):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))
            return call(path, *rest, **more)

        return wrapped

    scandir, listdir = os.scandir, os.listdir
    os.stat, os.lstat, os.open, io.open = map(refusing, (os.stat, os.lstat, os.open, io.open))  # type: ignore[assignment]
    os.scandir = lambda path=".": Listing([e for e in scandir(path) if not hidden(e.path)])  # type: ignore[assignment]
    os.listdir = lambda path=".": [n for n in listdir(path) if not hidden(f"{path}/{n}")]  # type: ignore[assignment]


_stat = os.stat


def _is_directory(name: str) -> bool:
    try:
        return (_stat(name).st_mode & 0o170000) == 0o040000
    except FileNotFoundError:
        return False
