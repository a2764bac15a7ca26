"""Fixtures that read captured machines; they skip where the files are not."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import wire_dumps as dumps
from wire_captured import shared_folder

from hinan.wire.facts.model import Machine
from hinan.wire.machine import sources

pytest.register_assert_rewrite("wire_answers_outputs", "wire_answers_topologies")  # asserts that fail with the values


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


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """A file with the `lspci -vvv` of a machine with two GPUs behind one switch."""
    path = tmp_path / "lspci"
    path.write_text(dumps.LSPCI_VVV)
    return path
