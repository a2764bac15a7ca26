"""What a demo found, as JSON for programs and as tables for people.

The JSON's names are an interface: `ok`, `acts` (each `kill`, `resumed_step`, `newest_committed_step`, `source` by rank,
`redo_steps`, `kill_to_first_step_s`, `bit_equal`), `stall_s_median`, `image_bytes`, `tiers`. Others may be added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from hinan.core.units import format_bytes, format_seconds
from hinan.demo.acts import Outcome
from hinan.demo.judge import Act
from hinan.demo.splits import PARTS

MOST_DIFFERENCES = 10
BAR_CELLS = 40
"""Cells of a bar for a difference in loss of 1."""


def to_json(outcome: Outcome, wall_s: float) -> dict[str, Any]:
    """The whole report."""
    return {
        "ok": outcome.ok,
        "acts": [_act(act) for act in outcome.acts],
        "stall_s_median": _median(outcome.stalls_s),
        "step_s_median": _median(outcome.steps_s),
        "stall_s": list(outcome.stalls_s),
        "torch_save_s": _median(outcome.save_s),
        "image_bytes": outcome.image_bytes,
        "tiers": {
            "ram": {"bytes": outcome.ram_bytes, "written_bytes": outcome.evacuated_bytes},
            "target": {"written_bytes": outcome.drained_bytes, "drain_s_median": _median(outcome.drain_s)},
        },
        "proof": {"can_fail": outcome.can_fail},
        "ranks": outcome.options.ranks,
        "steps": outcome.options.steps,
        "every": outcome.every,
        "commit_every": outcome.commit_every,
        "device": outcome.options.device,
        "forget": outcome.options.forget or None,
        "wall_s": wall_s,
    }


def _act(act: Act) -> dict[str, Any]:
    return {
        "kill": act.kill,
        "ok": not act.why,
        "why": list(act.why),
        "resumed_step": act.resumed_step,
        "newest_committed_step": act.newest_committed_step,
        "in_mid_step": act.in_mid_step,
        "source": list(act.source),
        "redo_steps": act.redo_steps,
        "kill_to_first_step_s": act.kill_to_first_step_s,
        "seconds": act.seconds,
        "read_bytes": act.read_bytes,
        "bit_equal": act.comparison.equal,
        "compared": {"losses": act.comparison.losses, "values": act.comparison.values},
        "differences": list(act.comparison.differences[:MOST_DIFFERENCES]),
        "bump": None if act.bump is None else asdict(act.bump),
    }


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def to_text(outcome: Outcome, wall_s: float) -> list[str]:
    """The report as lines."""
    return ["", *_table(_rows(outcome.acts)), "", *_costs(outcome), *_proof(outcome), "", _verdict(outcome, wall_s)]


def _rows(acts: Sequence[Act]) -> list[list[str]]:
    """One column an act."""
    rows = [["killed", *(act.kill for act in acts)]]
    rows.append(["killed in mid-step", *(_yes(act.in_mid_step) for act in acts)])
    rows.append(["newest committed step then", *(_number(act.newest_committed_step) for act in acts)])
    rows.append(["resumed at step", *(_number(act.resumed_step) for act in acts)])
    ranks = range(max((len(act.source) for act in acts), default=0))
    rows += [[f"  rank {r} from", *(act.source[r] if r < len(act.source) else "-" for act in acts)] for r in ranks]
    rows.append(["steps redone", *(_number(act.redo_steps if act.source else None) for act in acts)])
    rows.append(["kill to first new step", *(_time(act.kill_to_first_step_s) for act in acts)])
    rows += [[f"  {part}", *(_time(act.seconds.get(part)) for act in acts)] for part in PARTS]
    rows.append(["read to resume", *(_sizes(act.read_bytes) for act in acts)])
    rows.append(["bit-equal to the reference", *("yes" if act.comparison.equal else "NO" for act in acts)])
    return rows


def _yes(value: bool | None) -> str:
    return "-" if value is None else "yes" if value else "no"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _time(value: float | None) -> str:
    return "-" if value is None else format_seconds(value)


def _sizes(sizes: dict[str, int]) -> str:
    return ", ".join(f"{format_bytes(size)} {tier}" for tier, size in sorted(sizes.items())) or "-"


def _table(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for number, row in enumerate(rows):
        head, *cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join((head, *cells)).rstrip()
        if number == 0:
            yield "-" * (sum(widths) + 2 * (len(widths) - 1))


def _costs(outcome: Outcome) -> Iterator[str]:
    stall_s, save_s = _median(outcome.stalls_s), _median(outcome.save_s)
    step_s = _median(outcome.steps_s)
    if step_s is not None:
        yield f"one step                {format_seconds(step_s)} median" + (
            " (on the CPU, whose memory stands in for HBM)" if outcome.options.device == "cpu" else ""
        )
    if stall_s is not None:
        yield (
            f"stall per evacuation    {format_seconds(stall_s)} median, {format_seconds(max(outcome.stalls_s))} longest, "
            f"{len(outcome.stalls_s)} images of {format_bytes(outcome.image_bytes)}"
        )
    if save_s is not None:
        yield f"plain torch.save        {format_seconds(save_s)} of blocked training, same state (by rank 0, no fsync)"
    drain_s = _median(outcome.drain_s)
    in_all = format_bytes(outcome.evacuated_bytes)
    yield f"RAM                     {format_bytes(outcome.ram_bytes)} at most, {in_all} evacuated in all"
    yield f"target                  {format_bytes(outcome.drained_bytes)} persisted in all" + (
        f", {format_seconds(drain_s)} per drain in the background" if drain_s is not None else ""
    )


def _proof(outcome: Outcome) -> Iterator[str]:
    losses = sum(act.comparison.losses for act in outcome.acts)
    values = sum(act.comparison.values for act in outcome.acts)
    yield (
        f"proof                   {losses} losses and {values} digests of parameters, moments, RNG and values compared; "
        f"a changed bit {'is' if outcome.can_fail else 'IS NOT'} noticed"
    )
    for act in outcome.acts:
        if act.bump is not None:
            yield from _bump(act)
        for reason in act.why:
            yield f"WRONG after {act.kill!r}: {reason}"


def _bump(act: Act) -> Iterator[str]:
    bump = act.bump
    assert bump is not None
    yield ""
    yield f"Resumed without the optimizer's moments after {act.kill!r}: loss of the reference, of this run, the difference"
    for step, reference, loss in bump.losses:
        difference = loss - reference
        bar = "#" * min(60, max(0, round(difference * BAR_CELLS)))
        yield f"  step {step:>3}  {reference:.4f}  {loss:.4f}  {difference:+.4f}  {bar}".rstrip()
    yield (
        f"  up to {bump.largest:+.4f} at step {bump.step}, {bump.mean:+.4f} on average over {bump.steps} steps: "
        "what the moments, two thirds of the bytes, are kept for."
    )


def _verdict(outcome: Outcome, wall_s: float) -> str:
    if not outcome.ok:
        return f"FAILED: not everything that must hold holds ({format_seconds(wall_s)})"
    if outcome.options.forget:
        return f"ok: the run went on without the optimizer's moments; its losses are above ({format_seconds(wall_s)})"
    return f"ok: every killed run went on as if nothing had been, bit for bit ({format_seconds(wall_s)})"
