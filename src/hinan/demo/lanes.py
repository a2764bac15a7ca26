"""The picture: three lanes over time, as text. Evacuate from HBM to RAM, train on, drain from RAM to the target.

Pure: moments in, lines out. The same lines are shown live and printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hinan.demo.trace import Kind, Moment

LEGEND = "▲ held  ◆ persisted  ● committed  ✗ SIGKILL  ↻ resumed  ━ training  ╍ steps redone  ▒ draining"
_LABEL_WIDTH = 25


@dataclass(frozen=True)
class Scale:
    """Time to cells: `began` is cell 0, `until` the last one."""

    began: float
    until: float
    cells: int

    def cell(self, at: float) -> int:
        """The cell of a time, kept within the picture."""
        share = (at - self.began) / max(self.until - self.began, 1e-9)
        return min(self.cells - 1, max(0, int(share * (self.cells - 1) + 0.5)))


class Row:
    """One line of cells."""

    def __init__(self, cells: int, fill: str = " ") -> None:
        self._cells = [fill] * cells

    def fill(self, first: int, last: int, sign: str) -> None:
        """Paint cells from first to last, both included."""
        for cell in range(first, last + 1):
            self._cells[cell] = sign

    def put(self, cell: int, sign: str) -> None:
        """Put one sign."""
        self._cells[cell] = sign

    def write(self, cell: int, text: str) -> bool:
        """Write a text, with room around it; False, and nothing written, where another one stands."""
        first = min(cell, len(self._cells) - len(text))
        around = self._cells[max(0, first - 1) : first + len(text) + 1]
        if first < 0 or any(sign != " " for sign in around):
            return False
        self._cells[first : first + len(text)] = text
        return True

    def __str__(self) -> str:
        return "".join(self._cells)


def picture(moments: Sequence[Moment], *, began: float, until: float, width: int = 100) -> list[str]:
    """The lanes as lines of at most `width` characters.

    Args:
        moments: of one run, in any order.
        began: left edge, on the monotonic clock.
        until: right edge.
    """
    scale = Scale(began, until, max(20, width - _LABEL_WIDTH))
    ordered = sorted(moments, key=lambda moment: moment.at)
    lines = [
        ("", _axis(scale)),
        *zip(("1 evacuate  HBM → RAM", ""), _evacuations(ordered, scale), strict=True),
        *zip(("2 train on", ""), _training(ordered, scale), strict=True),
        *zip(("3 drain  RAM → target", ""), _drains(ordered, scale), strict=True),
    ]
    return [f"{label:<{_LABEL_WIDTH}}{row}".rstrip() for label, row in lines]


def _axis(scale: Scale) -> Row:
    row = Row(scale.cells)
    duration_s = scale.until - scale.began
    apart_s = next((a for a in (1, 2, 5, 10, 20, 60, 120) if duration_s / a <= scale.cells / 8), 300)
    for second in range(0, int(duration_s) + 1, apart_s):
        row.write(scale.cell(scale.began + second), f"{second} s")
    return row


def _evacuations(moments: list[Moment], scale: Scale) -> tuple[Row, Row]:
    """Copies as blocks, each ending in *held* of the last rank; the step below."""
    lane, labels = Row(scale.cells, "·"), Row(scale.cells)
    last: dict[tuple[int, int], Moment] = {}
    for moment in moments:
        if moment.kind is Kind.HELD:
            last[moment.attempt, moment.step] = moment
    for moment in last.values():
        lane.fill(scale.cell(moment.at - moment.span_s), scale.cell(moment.at), "█")
        lane.put(scale.cell(moment.at), "▲")
        labels.write(scale.cell(moment.at), str(moment.step))
    _kills(moments, scale, lane)
    return lane, labels


def _training(moments: list[Moment], scale: Scale) -> tuple[Row, Row]:
    """Steps of rank 0, those made before in another pattern; kills and resumes."""
    lane, labels = Row(scale.cells, "·"), Row(scale.cells)
    newest = 0
    for moment in (m for m in moments if m.kind is Kind.STEP and m.rank == 0):
        redone = moment.step <= newest
        newest = max(newest, moment.step)
        lane.fill(scale.cell(moment.at - moment.span_s), scale.cell(moment.at), "╍" if redone else "━")
    for moment in moments:
        if moment.kind is Kind.RESUMED and moment.rank == 0 and moment.step:
            lane.put(scale.cell(moment.at), "↻")
            labels.write(scale.cell(moment.at), f"step {moment.step} from {moment.text}")
    _kills(moments, scale, lane)
    return lane, labels


def _drains(moments: list[Moment], scale: Scale) -> tuple[Row, Row]:
    """From the opening of a drain to its commit; a mark for persisted and one for committed, the step below."""
    lane, labels = Row(scale.cells, "·"), Row(scale.cells)
    by_step: dict[tuple[int, int], dict[Kind, float]] = {}
    for moment in moments:
        if moment.kind in (Kind.DRAINING, Kind.PERSISTED, Kind.COMMITTED):
            by_step.setdefault((moment.attempt, moment.step), {})[moment.kind] = moment.at
    for (_, step), times in by_step.items():
        end = max(times.values()) if Kind.COMMITTED in times else scale.until
        last = scale.cell(end)
        if Kind.DRAINING in times:
            lane.fill(scale.cell(times[Kind.DRAINING]), last, "▒")
        if Kind.PERSISTED in times:
            # Persisted comes a moment before committed; where one cell would hide it, it stands in the one before.
            lane.put(max(0, min(scale.cell(times[Kind.PERSISTED]), last - 1)), "◆")
        if Kind.COMMITTED in times:
            lane.put(last, "●")
            labels.write(last, str(step))
    return lane, labels


def _kills(moments: list[Moment], scale: Scale, lane: Row) -> None:
    for moment in moments:
        if moment.kind is Kind.KILLED:
            lane.put(scale.cell(moment.at), "✗")
