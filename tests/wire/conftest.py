"""Captured machines live outside the project: HINAN_SHARED names their folder, or `../shared` beside the checkout."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hinan.wire import sources
from hinan.wire.model import Machine

sys.path.insert(0, str(Path(__file__).parent))  # dumps.py: the project's own small machines


def shared_folder() -> Path | None:
    """The folder of captured machines, or None."""
    told = os.environ.get("HINAN_SHARED")
    folder = Path(told) if told else Path(__file__).parents[3] / "shared"
    return folder / "cases/wire" if (folder / "cases/wire").is_dir() else None


@pytest.fixture(scope="session")
def captured() -> Path:
    """The captured files; skips where they are not."""
    folder = shared_folder()
    if folder is None:
        pytest.skip("the captured machines are not here (set HINAN_SHARED)")
    return folder


@pytest.fixture
def read(captured: Path, tmp_path: Path) -> Callable[..., Machine]:
    """Read captured files as one machine, under names that say nothing."""

    def _read(*names: str) -> Machine:
        copies = []
        for order, name in enumerate(names):
            copies.append(tmp_path / f"dump{order}")
            shutil.copyfile(captured / name, copies[-1])
        return sources.read_paths(copies)

    return _read
