"""Named points inside trainers and agents at which a test can hold a process: armed and released by files.

A test creates `<directory>/<name>`. The first process that comes by renames it to `<name>.reached` and waits there until
that file is removed, or until it is killed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

VARIABLE = "HINAN_TEST_POINTS"


def reach(name: str) -> None:
    """Wait here if the point is armed."""
    directory = os.environ.get(VARIABLE)
    if not directory:
        return
    reached = Path(directory) / f"{name}.reached"
    try:
        (Path(directory) / name).rename(reached)
    except FileNotFoundError:
        return
    while reached.exists():
        time.sleep(0.002)  # a held process has nothing to wait on but the file


def around(
    owner: Any, attribute: str, before: str = "", after: str = "", suffix: Callable[..., str] = lambda *a: ""
) -> None:
    """Put points before and after every call of a function or method."""
    original = getattr(owner, attribute)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        tail = suffix(*args)
        if before:
            reach(before + tail)
        result = original(*args, **kwargs)
        if after:
            reach(after + tail)
        return result

    setattr(owner, attribute, wrapped)
