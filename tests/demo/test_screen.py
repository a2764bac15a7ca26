"""What people see: a live picture on a terminal, lines elsewhere."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from hinan.demo.lanes import LEGEND
from hinan.demo.screen import Screen, describe
from hinan.demo.trace import Kind, Moment, Trace
from tests.demo.test_lanes import MOMENTS


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    found = Trace(tmp_path, tmp_path / "target", 2)
    found.began = 0.0
    found.moments += MOMENTS
    return found


def test_in_a_pipe(trace: Trace) -> None:
    """One line a moment, no single steps, no control codes; the picture when the act is over."""
    stream = io.StringIO()
    with Screen(stream) as screen:
        screen.show("a title", trace, trace.moments)
    text = stream.getvalue()
    assert "Act 1: a title" in text
    assert "   7.0 s  committed  step 3" in text
    assert "resumed    step 6   rank 0  from ram" in text
    assert text.count(LEGEND) == 1
    assert "\x1b" not in text
    assert "step 7 " not in text


def test_on_a_terminal(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The picture is drawn while the act plays, and stays when it is over."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    stream = Terminal()
    with Screen(stream) as screen:
        screen.show("a title", trace, trace.moments)
        shown = stream.getvalue()
    assert "2 train on" in shown
    assert LEGEND[:10] in shown
    assert stream.getvalue().count("2 train on") > shown.count("2 train on")


def test_every_kind_of_moment_can_be_told() -> None:
    """Single steps are not; everything else has a line with its word."""
    for kind in Kind:
        line = describe(Moment(kind, 1.0, 3, 1, text="x"), 0.0)
        assert (line is None) if kind is Kind.STEP else (line is not None and kind.value in line)
