"""A run's places."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.place import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A target and an arena of one run."""
    return Place(tmp_path)
