"""The proof: two runs were the same run, bit for bit, by the diaries that their training loops wrote.

Compared: the loss of every step of every attempt and rank, also of steps that were made twice, as float hex; and the
SHA-256 of every parameter, moment, generator and plain value at the steps where the loops wrote them, the last included.
Nothing that is absent counts as equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from hinan.demo.diary import Line

At = tuple[int, int, int]
"""(rank, attempt, step)"""


@dataclass(frozen=True)
class Record:
    """What the loops of one run wrote down."""

    losses: Mapping[At, str]
    states: Mapping[At, Mapping[str, str]]

    def value(self, rank: int, step: int) -> str | None:
        """The last loss written for a step."""
        found = {attempt: loss for (r, attempt, s), loss in self.losses.items() if (r, s) == (rank, step)}
        return found[max(found)] if found else None


@dataclass(frozen=True)
class Comparison:
    """What was compared, and every difference in words."""

    losses: int
    values: int
    differences: tuple[str, ...]

    @property
    def equal(self) -> bool:
        return not self.differences


def record(diary: Iterable[Line]) -> Record:
    """The losses and digests in some diaries."""
    losses: dict[At, str] = {}
    states: dict[At, Mapping[str, str]] = {}
    for line in diary:
        if line["event"] in ("step", "state"):
            at = int(line["rank"]), int(line["attempt"]), int(line["step"])
            if line["event"] == "step":
                losses[at] = str(line["loss"])
            else:
                states[at] = line["digests"]
    return Record(losses, states)


def compare(reference: Record, run: Record, *, ranks: int, steps: int) -> Comparison:
    """Compare a run with the reference; an attempt's every line must be the reference's line of that step."""
    differences = _missing(reference, "the reference", ranks, steps) + _missing(run, "the run", ranks, steps)
    for (rank, attempt, step), loss in sorted(run.losses.items()):
        expected = reference.value(rank, step)
        if loss != expected:
            differences.append(f"loss of rank {rank}, attempt {attempt}, step {step}: {loss} instead of {expected}")
    expected_states = {(rank, step): state for (rank, _, step), state in reference.states.items()}
    values = 0
    for (rank, attempt, step), state in sorted(run.states.items()):
        expected_state = expected_states.get((rank, step), {})
        values += len(state)
        differences += [
            f"{name} of rank {rank}, attempt {attempt}, after step {step}"
            for name in sorted({*state, *expected_state})
            if state.get(name) != expected_state.get(name)
        ]
    return Comparison(len(run.losses), values, tuple(differences))


def _missing(record: Record, name: str, ranks: int, steps: int) -> list[str]:
    written = {(rank, step) for rank, _, step in record.losses}
    ended = {rank for (rank, _, step), state in record.states.items() if step == steps and state}
    missing = [
        f"{name} has no loss of rank {r}, step {s}"
        for r in range(ranks)
        for s in range(1, steps + 1)
        if (r, s) not in written
    ]
    return missing + [f"{name} has no final state of rank {r}" for r in range(ranks) if r not in ended]


def can_fail(reference: Record, *, ranks: int, steps: int) -> bool:
    """Whether this comparison notices the smallest changes: one bit of one loss, one digest, one line less."""
    if not reference.losses or not reference.states:
        return False
    at, state_at = max(reference.losses), max(reference.states)
    name = min(reference.states[state_at])
    changed = (
        replace(reference, losses={**reference.losses, at: _flip(reference.losses[at])}),
        replace(reference, losses={k: v for k, v in reference.losses.items() if k != at}),
        replace(reference, states={**reference.states, state_at: {**reference.states[state_at], name: "0" * 64}}),
        replace(reference, states={k: v for k, v in reference.states.items() if k != state_at}),
    )
    same = compare(reference, reference, ranks=ranks, steps=steps).equal
    return same and not any(compare(reference, other, ranks=ranks, steps=steps).equal for other in changed)


def _flip(loss: str) -> str:
    """The same number with the lowest bit of its binary32 form changed."""
    import struct

    (bits,) = struct.unpack("<I", struct.pack("<f", float.fromhex(loss)))
    (value,) = struct.unpack("<f", struct.pack("<I", bits ^ 1))
    return float(value).hex()


@dataclass(frozen=True)
class Bump:
    """How far the losses of a run that forgot something are from the reference, after the resume. Means over ranks."""

    step: int
    largest: float
    mean: float
    steps: int
    losses: tuple[tuple[int, float, float], ...]
    """(step, reference, run)"""


def bump(reference: Record, run: Record, *, ranks: int, steps: int, after: int) -> Bump:
    """The losses from step `after` + 1 on, side by side."""

    def mean(record: Record, step: int) -> float:
        values = [record.value(rank, step) for rank in range(ranks)]
        return sum(float.fromhex(v) for v in values if v is not None) / ranks

    losses = tuple((step, mean(reference, step), mean(run, step)) for step in range(after + 1, steps + 1))
    step, largest = max(((s, b - a) for s, a, b in losses), key=lambda item: item[1], default=(after, 0.0))
    return Bump(step, largest, sum(b - a for _, a, b in losses) / max(1, len(losses)), len(losses), losses)
