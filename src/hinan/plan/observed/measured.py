"""What a real run says about its own costs: facts of its target in, figures with their source out.

Owns:      how a figure follows from the facts (`attempts.py`), and which typed setting displaces which figure.
Promises:  pure. A figure of fewer than two samples is not claimed, and the reason is said; nothing is ever negative.
           A failure is a sample too: after one, what is thought of failures before any was seen outweighs it. Size is a
           count: one image is enough.
Relies on: clocks of hosts only as far as they agree: a difference that comes out negative is no sample.
Never:     guesses what retention has deleted.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from hinan.core.errors import ConfigError
from hinan.core.units import format_bytes, format_seconds
from hinan.plan.model.origin import Kind
from hinan.plan.model.rivals import SAYS_THE_SAME
from hinan.plan.observed.attempts import Attempt, Save, failures, lives_s, restarts_s

LEAST_SAMPLES = 2
_DISPLACED_BY: Mapping[str, tuple[str, ...]] = {
    **SAYS_THE_SAME,
    "shard-gpus": ("state-bytes", *SAYS_THE_SAME["state-bytes"]),
    "stall": (*SAYS_THE_SAME["stall"], "d2h"),
    "mtti": (*SAYS_THE_SAME["mtti"], "failures"),
}
"""Beside its own name: settings that say the same thing in other words. What is typed wins."""


@dataclass(frozen=True)
class RunFacts:
    """What the target of a run holds. `where` names the run in every source."""

    where: str
    attempts: Sequence[Attempt]
    saves: Sequence[Save]
    damaged_attempts: Sequence[str] = ()
    damaged_steps: Sequence[str] = ()


@dataclass(frozen=True)
class Figure:
    """A value and where it is from: the run, and how many samples; or the machine's links."""

    value: float
    source: str
    kind: Kind = Kind.MEASURED


@dataclass(frozen=True)
class MeasuredRun:
    """Figures in the names and units of the settings; for the others, why they are not claimed."""

    where: str
    figures: Mapping[str, Figure]
    unclaimed: Mapping[str, str] = field(default_factory=dict)
    damaged: Sequence[str] = ()
    notes_on_use: Sequence[str] = ()
    """What its reader must know if its figures are used."""

    def beside(self, typed: Collection[str]) -> dict[str, Figure]:
        """The figures that no typed setting displaces."""
        return {name: figure for name, figure in self.figures.items() if not _is_displaced(name, typed)}

    def summary(self, typed: Collection[str]) -> str:
        """The figures in use, in one line."""
        used = self.beside(typed)
        shown = ", ".join(f"{name} {_text(name, figure.value)}{_mark(figure)}" for name, figure in used.items())
        how = "measured in" if all(figure.kind is Kind.MEASURED for figure in used.values()) else "taken from"
        return f"{how} {self.where}: {shown or 'nothing that was not given'}"

    def notes(self, typed: Collection[str]) -> tuple[str, ...]:
        """What was not measured and not typed either, and what could not be read."""
        missing = [f"{name} ({why})" for name, why in self.unclaimed.items() if not _is_displaced(name, typed)]
        notes = [f"not measured in {self.where}: {'; '.join(missing)}"] if missing else []
        used = self.notes_on_use if self.beside(typed) else ()
        return (*notes, *used, *(f"unreadable, left out: {what}" for what in self.damaged))


def together(*parts: MeasuredRun | None) -> MeasuredRun | None:
    """What several sources know, as one; of two that know the same figure the first counts. None if there is none."""
    known = [part for part in parts if part is not None]
    if len(known) < 2:
        return known[0] if known else None
    figures = {name: figure for part in reversed(known) for name, figure in part.figures.items()}
    return MeasuredRun(
        " and ".join(part.where for part in known),
        figures,
        {name: why for part in known for name, why in part.unclaimed.items() if name not in figures},
        [what for part in known for what in part.damaged],
        [note for part in known for note in part.notes_on_use],
    )


def _text(name: str, value: float) -> str:
    if name == "d2h":
        return f"{value / 1e9:.4g} GB/s"
    if name in ("gpus", "shard-gpus"):
        return f"{value:g}"
    return format_bytes(value) if name == "state-bytes" else format_seconds(value)


def _mark(figure: Figure) -> str:
    return "" if figure.kind is Kind.MEASURED else f" ({figure.kind})"


def _is_displaced(name: str, typed: Collection[str]) -> bool:
    return name in typed or any(other in typed for other in _DISPLACED_BY.get(name, ()))


def measure(run: RunFacts) -> MeasuredRun:
    """Every figure that the facts bear out.

    Raises:
        ConfigError: no whole step stands on the target, so there is nothing to measure.
    """
    damaged = (*run.damaged_attempts, *run.damaged_steps)
    if not run.saves:
        raise ConfigError(
            f"{run.where}: no step stands on the target with the manifests of all ranks, so nothing can be measured"
            f"{''.join(f' (unreadable: {what})' for what in damaged[:3])}. Let it commit a few steps, or leave --from-run "
            "out and give --state-bytes, --step, --stall, --drain and --mtti"
        )
    newest = max(run.saves, key=lambda save: save.step_id)
    saves = sorted((s for s in run.saves if len(s.images) == len(newest.images)), key=lambda save: save.step_id)
    found = _Findings(run.where)
    found.count("gpus", len(newest.images), "ranks of the newest save")
    found.count("state-bytes", max(i.image_bytes for i in newest.images), "image of one rank of the newest save, whole")
    found.count("shard-gpus", 1, "every rank's image holds the whole state")
    step_s = found.middle("step", _steps_s(saves), "gap between saves of one attempt", "held times over steps")
    stalls_s = [s.stall_s for s in saves if s.stall_s is not None]
    found.middle("stall", stalls_s, "save", "longest rank, gate included; each save tells of the one before it")
    found.middle("drain", _drains_s(saves), "commit", "time of the COMMIT file less the last rank's held time")
    if run.damaged_attempts:
        why = f"records of attempts cannot be read: {', '.join(run.damaged_attempts)}"
        found.unclaimed |= {"restart": why, "mtti": why}
    else:
        attempts = sorted(run.attempts, key=lambda attempt: attempt.number)
        _restart(found, attempts, saves, step_s)
        _mtti(found, attempts, saves, step_s)
    return MeasuredRun(run.where, found.figures, found.unclaimed, damaged)


class _Findings:
    def __init__(self, where: str) -> None:
        self.where = where
        self.figures: dict[str, Figure] = {}
        self.unclaimed: dict[str, str] = {}

    def count(self, name: str, value: float, how: str) -> None:
        """A figure that needs no second sample."""
        if value > 0:
            self.figures[name] = Figure(value, f"{self.where}: {how}")
        else:
            self.unclaimed[name] = f"{how}: {value:g}"

    def middle(self, name: str, samples: Sequence[float], of: str, how: str) -> float | None:
        """The median, if the samples are enough."""
        usable = [sample for sample in samples if math.isfinite(sample) and sample >= 0]
        if len(usable) < LEAST_SAMPLES:
            self.unclaimed[name] = f"{len(usable)} usable x {of}, {LEAST_SAMPLES} are needed"
            return None
        value = median(usable)
        self.count(name, value, f"median of {len(usable)} x {of} ({how})")
        return value if value > 0 else None


def _steps_s(saves: Sequence[Save]) -> list[float]:
    """Time of a step between neighbouring saves of one attempt, saving included."""
    return [
        (later.held_at_s - earlier.held_at_s) / (later.step_id.step - earlier.step_id.step)
        for earlier, later in pairwise(saves)
        if earlier.step_id.attempt == later.step_id.attempt
        and earlier.held_at_s is not None
        and later.held_at_s is not None
    ]


def _drains_s(saves: Sequence[Save]) -> list[float]:
    return [s.committed_at_s - s.held_at_s for s in saves if s.committed_at_s is not None and s.held_at_s is not None]


def _restart(found: _Findings, attempts: Sequence[Attempt], saves: Sequence[Save], step_s: float | None) -> None:
    if step_s is None:
        found.unclaimed["restart"] = "the time of a step is not known"
        return
    how = "last held step to the next attempt's first, less its steps; what was redone is in it"
    found.middle("restart", restarts_s(attempts, saves, step_s), "restart with saves on both sides", how)


def _mtti(found: _Findings, attempts: Sequence[Attempt], saves: Sequence[Save], step_s: float | None) -> None:
    """Time alive over the attempts that ended without being closed and were followed by another."""
    count = failures(attempts).total
    if not count:
        found.unclaimed["mtti"] = "no attempt has failed and been followed by another"
        return
    lives = lives_s(attempts, saves, step_s)
    unknown = [number for number, life_s in lives.items() if life_s is None]
    if unknown:
        found.unclaimed["mtti"] = f"the saves of attempt {unknown[0]} are deleted, and a step's time is not known"
        return
    alive_s = sum(life_s for life_s in lives.values() if life_s is not None)
    if count < LEAST_SAMPLES:
        found.unclaimed["mtti"] = f"{count} failure in {alive_s:.4g} s alive, {LEAST_SAMPLES} are needed"
        return
    how = f"{alive_s:.4g} s alive over {count} failures (attempts not closed and "
    found.count("mtti", alive_s / count, how + "followed by another): process failures on one host")
