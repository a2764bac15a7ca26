"""The third witness: an event-driven simulation of many lives of the job, one numpy lane per life.

Owns:      the stepping of lanes from failure to failure.
Promises:  the same seed gives the same numbers; imports nothing of the closed or exact forms, not even their levels.
Relies on: an arrival process from `arrivals.py` that says when the next failure comes and of which kind.
Never:     computes an expectation: every figure is an average over lives, with its standard error.

A life without failures runs along a fixed track: work, save, work, save ... with the saves of slower levels nested.
`track` is the wall time since the track began. A failure moves the job back to the newest usable save on the track;
between two failures everything is arithmetic, so one step of the simulation is one failure in every lane.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hinan.core.errors import ConfigError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Arrivals(Protocol):
    """When failures come: asked once per failure for all lanes."""

    def next(self, rng: np.random.Generator, lanes: int) -> tuple[Floats, Ints]:
        """Seconds until the next failure of each lane (> 0, inf = never), and the index of its cause."""
        ...


@dataclass(frozen=True)
class Track:
    """What is simulated, in plain numbers; level 0 is the fastest.

    work_s: training between saves of level 0.  multiples[k]: saves of level k in one of level k+1.
    stall_s[k]: what a save of level k takes.  Per cause: the level that answers it, its restart [s], its lag [s].
    """

    work_s: float
    multiples: tuple[int, ...]
    stall_s: tuple[float, ...]
    cause_level: tuple[int, ...]
    cause_restart_s: tuple[float, ...]
    cause_lag_s: tuple[float, ...]

    def walls_s(self) -> list[float]:
        """Wall time of one block of each level, its save included."""
        walls = [self.work_s + self.stall_s[0]]
        for multiple, stall_s in zip(self.multiples, self.stall_s[1:], strict=True):
            walls.append(walls[-1] * multiple + stall_s)
        return walls


@dataclass(frozen=True)
class Estimate:
    """A simulated figure: mean, standard error over lives, and how much was simulated."""

    ettr: float
    stderr: float
    failures: int
    lives: int
    wall_s: float
    """Simulated seconds of one life."""
    redo_ratio: float
    restart_ratio: float
    stall_ratio: float

    @property
    def low(self) -> float:
        """Lower end of the 95 % band."""
        return self.ettr - 1.96 * self.stderr

    @property
    def high(self) -> float:
        """Upper end of the 95 % band."""
        return self.ettr + 1.96 * self.stderr


def simulate(track: Track, arrivals: Arrivals, *, lives: int, wall_s: float, seed: int, settle_s: float = 0.0) -> Estimate:
    """Lives of `wall_s` each; the share of wall time that is training kept, with its standard error.

    Every life begins with a copy on every level. `settle_s` of it pass before anything counts: with long lags a young
    life is better off than an old one.
    Raises:
        ConfigError: fewer than two lives (no error could be given) or no time to simulate.
    """
    if lives < 2 or not wall_s > 0 or not math.isfinite(wall_s) or not 0 <= settle_s < math.inf:
        raise ConfigError(f"a simulation needs two lives and some time, not {lives} and {wall_s} s after {settle_s} s")
    run = _Run(track, lives, settle_s, settle_s + wall_s)
    rng = np.random.default_rng(seed)
    failures = 0
    while True:
        gap_s, cause = arrivals.next(rng, lives)
        struck = run.advance(gap_s)
        if not struck.any():
            break
        failures += int(struck.sum())
        run.fail(cause, struck)
    kept = run.kept_ratio()
    return Estimate(
        ettr=float(kept.mean()),
        stderr=float(kept.std(ddof=1) / math.sqrt(lives)),
        failures=failures,
        lives=lives,
        wall_s=wall_s,
        redo_ratio=float(run.redone_s.mean() / wall_s),
        restart_ratio=float(run.restarting_s.mean() / wall_s),
        stall_ratio=float(1 - kept.mean() - run.redone_s.mean() / wall_s - run.restarting_s.mean() / wall_s),
    )


class _Run:
    """State of all lanes: clock, place on the track, restart still to do, newest usable save per cause."""

    def __init__(self, track: Track, lives: int, begin_s: float, end_s: float) -> None:
        self.track, self.walls_s, self.begin_s, self.end_s = track, track.walls_s(), begin_s, end_s
        self.begin_work_s = np.zeros(lives)  # training done when counting begins
        self.clock_s = np.zeros(lives)
        self.place_s = np.zeros(lives)  # on the track; starts at a save of every level
        self.waiting_s = np.zeros(lives)  # of the restart
        self.answering = np.full(lives, -1)  # cause whose restart runs
        self.usable_s = np.zeros((len(track.cause_level), lives))
        self.redone_s = np.zeros(lives)
        self.restarting_s = np.zeros(lives)

    def advance(self, gap_s: Floats) -> NDArray[np.bool_]:
        """Lets `gap_s` pass in every lane, not past the end; true where the failure came before the end."""
        left_s = self.end_s - self.clock_s
        struck = gap_s < left_s
        gap_s = np.minimum(gap_s, left_s)
        waited_s = np.minimum(gap_s, self.waiting_s)
        early_s = np.clip(self.begin_s - self.clock_s, 0.0, gap_s)  # of the gap: passes before counting begins
        if early_s.any():
            begins = (self.clock_s < self.begin_s) & (self.clock_s + gap_s >= self.begin_s)
            work_s = self._work_at(self.place_s + np.maximum(0.0, early_s - waited_s))
            self.begin_work_s = np.where(begins, work_s, self.begin_work_s)
        self.clock_s += gap_s
        self.waiting_s -= waited_s
        self.restarting_s += waited_s - np.minimum(waited_s, early_s)
        self.place_s += gap_s - waited_s
        return struck

    def fail(self, cause: Ints, struck: NDArray[np.bool_]) -> None:
        """Moves struck lanes back to the newest save their failure leaves usable, and starts their restart."""
        levels = np.asarray(self.track.cause_level)
        running = self.waiting_s > 0
        # A failure during a restart: the slower of the two answers. The same or a faster one begins again.
        worse = levels[cause] >= np.where(running, levels[self.answering], -1)
        cause = np.where(running & ~worse, self.answering, cause)
        self._note_saves()
        lanes = np.arange(cause.size)
        back_s = np.minimum(self.usable_s[cause, lanes], self.place_s)
        lost_s = self._work_at(self.place_s) - self._work_at(back_s)
        self.redone_s += np.where(struck & (self.clock_s >= self.begin_s), lost_s, 0.0)
        self.place_s = np.where(struck, back_s, self.place_s)
        # The copy we came back from also serves every failure that a faster level answers; younger saves are gone.
        self.usable_s = np.where(struck, np.minimum(self.usable_s, self.place_s), self.usable_s)
        faster = struck & (levels[:, None] < levels[cause])
        self.usable_s = np.where(faster, self.place_s, self.usable_s)
        self.waiting_s = np.where(struck, np.asarray(self.track.cause_restart_s)[cause], self.waiting_s)
        self.answering = np.where(struck, cause, self.answering)

    def _note_saves(self) -> None:
        slower_s: Floats = np.zeros_like(self.place_s)  # newest copy on any slower level: it serves faster causes too
        for level in range(len(self.walls_s) - 1, -1, -1):
            own = [index for index, at in enumerate(self.track.cause_level) if at == level]
            for index in own:
                saved_s = self._last_save(self.place_s - self.track.cause_lag_s[index], level)
                self.usable_s[index] = np.maximum(self.usable_s[index], np.maximum(saved_s, slower_s))
            slower_s = np.maximum.reduce([slower_s, *(self.usable_s[index] for index in own)])

    def _last_save(self, place_s: Floats, level: int) -> Floats:
        """Newest completed save of `level` or slower at or before a place on the track."""
        at_s = np.zeros_like(place_s)
        rest_s = np.maximum(place_s, 0.0)
        top = len(self.walls_s) - 1
        for k in range(top, level - 1, -1):
            blocks = np.floor(rest_s / self.walls_s[k])
            if k < top:
                blocks = np.minimum(blocks, self.track.multiples[k])
            at_s += blocks * self.walls_s[k]
            rest_s = rest_s - blocks * self.walls_s[k]
        return at_s

    def _work_at(self, place_s: Floats) -> Floats:
        """Training done on the track up to a place."""
        work_s = np.zeros_like(place_s)
        rest_s = place_s
        block_work_s = self.track.work_s * math.prod(self.track.multiples)
        top = len(self.walls_s) - 1
        for k in range(top, -1, -1):
            blocks = np.floor(rest_s / self.walls_s[k])
            if k < top:
                blocks = np.minimum(blocks, self.track.multiples[k])
            work_s = work_s + blocks * block_work_s
            rest_s = rest_s - blocks * self.walls_s[k]
            if k:
                block_work_s /= self.track.multiples[k - 1]
        return work_s + np.minimum(rest_s, self.track.work_s)

    def kept_ratio(self) -> Floats:
        """Training kept per wall time, per lane. Work not yet saved at the end counts: nothing has taken it away."""
        return (self._work_at(self.place_s) - self.begin_work_s) / (self.end_s - self.begin_s)
