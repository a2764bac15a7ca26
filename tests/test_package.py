"""The public surface, and what importing costs."""

from __future__ import annotations

import subprocess
import sys

import hinan


def test_every_public_name_loads_and_is_documented() -> None:
    """`__all__` is the public surface: sorted, each name there, each with a docstring."""
    assert hinan.__all__ == sorted(hinan.__all__)
    for name in hinan.__all__:
        assert getattr(hinan, name).__doc__, name


def test_importing_does_nothing() -> None:
    """`import hinan`, the agent and the command load no torch."""
    code = (
        "import sys, hinan, hinan.agent.__main__, hinan.cli.main; assert 'torch' not in sys.modules; print(len(dir(hinan)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
