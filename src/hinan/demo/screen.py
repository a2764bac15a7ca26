"""Shows a demo while it runs: the lanes, live, on a terminal; one line for each thing that happens, elsewhere."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from hinan.core.units import format_bytes, format_seconds
from hinan.demo.lanes import LEGEND, picture
from hinan.demo.trace import Kind, Moment, Trace

WIDTH = 110
REFRESH_S = 0.25
LAST_LINES = 6


def describe(moment: Moment, began: float) -> str | None:
    """A moment as a line; None for those that would only be noise (single steps)."""
    step = f"step {moment.step}"
    size = format_bytes(moment.size_bytes)
    rank = "" if moment.rank is None else f"rank {moment.rank}"
    match moment.kind:
        case Kind.STEP:
            return None
        case Kind.HELD:
            text = f"{step:<8} {rank}  {size} in RAM, stall {format_seconds(moment.stall_s)}"
        case Kind.DRAINING:
            text = f"{step:<8} {size} to the target"
        case Kind.PERSISTED:
            text = f"{step:<8} every rank's image would survive power loss"
        case Kind.COMMITTED:
            text = f"{step:<8} one record names every rank's image"
        case Kind.RESUMED:
            text = f"{step:<8} {rank}  from {moment.text or 'nothing: a fresh start'}"
        case Kind.CLOSED:
            text = f"{step if moment.step else '':<8} {rank}"
        case _:
            text = moment.text
    return f"{moment.at - began:6.1f} s  {moment.kind.value:<9}  {text}"


class Screen:
    """A context manager; `show` is called with each look at the run."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._console = Console(file=stream or sys.stdout, highlight=False, width=None if _is_terminal(stream) else WIDTH)
        self._live = Live(console=self._console, auto_refresh=False, transient=True) if _is_terminal(stream) else None
        self._title = ""
        self._trace: Trace | None = None
        self._last: deque[str] = deque(maxlen=LAST_LINES)
        self._shown_at = 0.0
        self._acts = 0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()
        self._end_act()

    def show(self, title: str, trace: Trace, fresh: Sequence[Moment]) -> None:
        """Show what is new in a run."""
        if trace is not self._trace:
            self._end_act()
            self._acts += 1
            self._title, self._trace = title, trace
            self._last.clear()
            self._print(f"\nAct {self._acts}: {title}")
        lines = [line for moment in fresh if (line := describe(moment, trace.began)) is not None]
        self._last.extend(lines)
        if self._live is None:
            for line in lines:
                self._print(line)
        elif time.monotonic() - self._shown_at > REFRESH_S:
            self._shown_at = time.monotonic()
            self._live.update(self._frame(trace, self._shown_at), refresh=True)

    def _frame(self, trace: Trace, now: float) -> Group:
        lanes = picture(trace.moments, began=trace.began, until=max(now, trace.began + 20), width=self._width)
        step = next((f"step {m.step}" for m in reversed(trace.moments) if m.kind is Kind.STEP), "starting")
        head = Text(f"\n{step}, {now - trace.began:.0f} s", style="bold")
        return Group(head, *map(_plain, [*lanes, "", LEGEND, "", *self._last]))

    def _end_act(self) -> None:
        """The whole picture of an act that is over stays on the screen."""
        if self._trace is None or not self._trace.moments:
            return
        until = max(moment.at for moment in self._trace.moments)
        for line in [*picture(self._trace.moments, began=self._trace.began, until=until, width=self._width), LEGEND]:
            self._print(line)
        self._trace = None

    @property
    def _width(self) -> int:
        return min(WIDTH, self._console.width - 1)

    def _print(self, line: str) -> None:
        self._console.print(_plain(line))


def _plain(line: str) -> Text:
    return Text(line, no_wrap=True, overflow="crop")


def _is_terminal(stream: TextIO | None) -> bool:
    return (stream or sys.stdout).isatty()
