"""The picture: marks stand where the moments are, in any width."""

from __future__ import annotations

import pytest

from hinan.demo.lanes import picture
from hinan.demo.splits import PARTS, split
from hinan.demo.trace import Kind, Moment

MOMENTS = [
    Moment(Kind.LAUNCHED, 0.0),
    *(Moment(Kind.STEP, 2.0 + step, step, 1, 0, 1.0) for step in range(1, 9)),
    Moment(Kind.HELD, 5.0, 3, 1, 0, 0.2),
    Moment(Kind.HELD, 5.1, 3, 1, 1, 0.2),
    Moment(Kind.DRAINING, 5.5, 3, 1),
    Moment(Kind.PERSISTED, 7.0, 3, 1),
    Moment(Kind.COMMITTED, 7.01, 3, 1),
    Moment(Kind.HELD, 8.0, 6, 1, 0, 0.2),
    Moment(Kind.KILLED, 10.5),
    Moment(Kind.RESUMED, 15.0, 6, 2, 0, text="ram"),
    *(Moment(Kind.STEP, 9.0 + step, step, 2, 0, 1.0) for step in range(7, 11)),
]


def test_the_picture() -> None:
    """Read it: three lanes, labels below their marks, a step made twice looks different."""
    lines = picture(MOMENTS, began=0.0, until=20.0, width=66)
    assert "\n".join(lines) == (
        "                         0 s       5 s       10 s      15 s   20 s\n"
        "1 evacuate  HBM → RAM    ··········▲·····▲····✗···················\n"
        "                                   3     6\n"
        "2 train on               ····━━━━━━━━━━━━━━━━━✗········↻╍╍╍━━━━━··\n"
        "                                                   step 6 from ram\n"
        "3 drain  RAM → target    ···········▒▒◆●··························\n"
        "                                       3"
    )


@pytest.mark.parametrize("width", [40, 60, 80, 110, 200])
def test_every_width_holds_every_mark(width: int) -> None:
    """No line is longer than asked for; held, persisted, committed, the kill and the resume are never hidden."""
    text = picture(MOMENTS, began=0.0, until=20.0, width=width)
    assert max(map(len, text)) <= max(width, 45)
    for mark in "▲◆●✗↻╍━":
        assert mark in "".join(text)


def test_an_open_drain_and_an_empty_run() -> None:
    """A drain without a commit is painted up to now; no moments give empty lanes."""
    lines = picture([Moment(Kind.DRAINING, 5.0, 3, 1)], began=0.0, until=10.0, width=65)
    assert lines[5].endswith("▒" * 10)
    assert "●" not in lines[5]
    assert len(picture([], began=0.0, until=0.0)) == 7


def test_the_parts_add_up() -> None:
    """From the kill to the first new step of the slowest rank, nothing is lost or counted twice."""
    diary = [{"event": "step", "rank": 0, "at": 9.0, "step": 5}]
    for rank, late in ((0, 0.0), (1, 0.5)):
        diary += [
            {"event": "imported", "rank": rank, "at": 14.0, "spawned_at": 11.0},
            {"event": "met", "rank": rank, "at": 15.0},
            {"event": "built", "rank": rank, "at": 16.0},
            {"event": "resumed", "rank": rank, "at": 18.0, "seconds": {"decide": 0.5, "read": 1.0, "install": 0.25}},
            {"event": "step", "rank": rank, "at": 19.0 + late, "step": 5},
            {"event": "step", "rank": rank, "at": 20.0, "step": 6},
        ]
    parts = split(sorted(diary, key=lambda line: float(line["at"])), 10.0)  # type: ignore[arg-type]
    assert tuple(parts) == PARTS
    assert sum(parts.values()) == pytest.approx(9.5)
    assert (parts["launcher"], parts["imports"], parts["vote"], parts["step"]) == (1.0, 3.0, 0.25, 1.5)
    assert split(diary, 30.0) == {}
