"""A run's target."""

from __future__ import annotations

from pathlib import Path

import pytest

from hinan.tiers.target import Target


@pytest.fixture
def target(tmp_path: Path) -> Target:
    found = Target(tmp_path / "target")
    found.open_or_create()
    return found
