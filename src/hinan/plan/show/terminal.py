"""The answer for people at a terminal: a table and a curve within 80 columns, plain text.

Owns:      layout. Never: computes; the curve is the exact form evaluated at a few intervals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hinan.core.units import format_seconds
from hinan.plan.decision.answer import Answer
from hinan.plan.show.curves import waste_curve

WIDTH = 80


def table(found: Answer) -> str:
    """Intervals, ETTR by three witnesses, losses, binding constraint, warnings."""
    scenario = found.scenario
    lines = [
        f"{scenario.size} ({scenario.machine.name}), interrupted every {format_seconds(scenario.mtti_s)}",
        f"state {_size(scenario.job.state_bytes)}, {_size(scenario.job.gpu_bytes)} per GPU, "
        f"mode {found.design.variant.mode}, {_slots(found)}",
        *([scenario.measured] if scenario.measured else []),
        "",
        *_tier_lines(found),
    ]
    lines += ["", *_witness_lines(found), "", *_loss_lines(found), "", *_class_lines(found), "", *_tail(found)]
    return "\n".join(wrapped for line in lines for wrapped in _wrap(line))


def _columns(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> list[str]:
    """Rows with the first column to the left and the others to the right, never without a space between. A cell that is
    wider than its column takes the room from columns that have some left."""
    needed = [max(len(cell) for cell in column) + 1 for column in zip(*rows, strict=True)]
    fitted = [max(pair) for pair in zip(needed, widths, strict=True)]
    over = sum(fitted) - sum(widths)
    for k, least in enumerate(needed):
        spared = min(over, fitted[k] - least)
        fitted[k], over = fitted[k] - spared, over - spared
    return [
        f"{row[0]:<{fitted[0]}}" + "".join(f"{c:>{w}}" for c, w in zip(row[1:], fitted[1:], strict=True)) for row in rows
    ]


def _tier_lines(found: Answer) -> list[str]:
    rows = [("tier", "every", "steps", "stall", "drain", "kept")]
    rows += [
        (
            str(tier.tier),
            format_seconds(tier.interval_s),
            str(tier.interval_steps),
            format_seconds(tier.stall_s),
            format_seconds(tier.drain_s),
            str(tier.generations),
        )
        for tier in found.tiers
    ]
    limited = ["limited by", *(tier.limited_by for tier in found.tiers)]
    return [f"{row}  {link}" for row, link in zip(_columns(rows, (8, 14, 9, 10, 12, 8)), limited, strict=True)]


def _size(size_bytes: float) -> str:
    """A size in the units that GPUs are sold in, down to a tenth of each."""
    by, unit = next((pair for pair in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")) if size_bytes >= pair[0] / 10), (1e3, "kB"))
    return f"{size_bytes / by:.4g} {unit}"


def _slots(found: Answer) -> str:
    ram = found.design.ram
    return f"{ram.slots} slots" + (f" and {ram.peer_slots} for peers" if ram.peer_slots else "")


def _witness_lines(found: Answer) -> list[str]:
    w = found.witnesses
    closed, exact = w.shown()
    band = 1.96 * w.simulated_stderr
    return [f"ETTR   closed form {closed}   exact {exact}   simulated {w.simulated:.4f} ± {band:.4f}"]


def _loss_lines(found: Answer) -> list[str]:
    rows = sorted(found.lost.items(), key=lambda item: -item[1].ratio)
    cells = [("lost to", "share", "GPU-hours/day", "USD/day", "MFU points")]
    total = sum(loss.ratio for loss in found.lost.values())
    hours = sum(loss.gpu_hours_per_day for loss in found.lost.values())
    usd = sum(loss.usd_per_day for loss in found.lost.values())
    points = sum(loss.mfu_points for loss in found.lost.values())
    sums = [(name, loss.ratio, loss.gpu_hours_per_day, loss.usd_per_day, loss.mfu_points) for name, loss in rows]
    sums = [row for row in sums if row[1] > 0] + [("all", total, hours, usd, points)]
    cells += [(name, f"{r:.3%}", f"{h:,.1f}", f"{u:,.0f}", f"{p:.3f}") for name, r, h, u, p in sums]
    return _columns(cells, (14, 9, 15, 12, 12))


def _class_lines(found: Answer) -> list[str]:
    rows = [(f"{'failure':<10}from", "a day", "redo mean", "redo worst", "back after")]
    rows += [
        (
            f"{each.failure:<10}{each.tier}",
            f"{each.per_day:.3g}",
            format_seconds(each.rpo_mean_s),
            format_seconds(each.rpo_worst_s),
            format_seconds(each.rto_s),
        )
        for each in found.classes
    ]
    return _columns(rows, (18, 9, 14, 14, 14))


def _tail(found: Answer) -> list[str]:
    lines = []
    if found.binding is not None:
        lines.append(f"binding: {found.binding.name}; {found.binding.what} buys {found.binding.gain_ratio:.4%} of all time")
    if found.design.verify_every_s is not None:
        lines.append(f"verify replicas every {format_seconds(found.design.verify_every_s)}")
    lines.append(f"spare nodes for 99 %: {found.spares}")
    if found.judged is not None:
        j, recommended = found.judged, format_seconds(found.judged.best_interval_s)
        if j.costs_nothing:
            lines.append(f"given interval: keeps {j.ettr:.4f}, no less than {recommended}, recommended without it")
        else:
            lines.append(f"given interval: keeps {j.ettr:.4f}; the best, {recommended}, keeps {j.best_ettr:.4f}")
        lines.append(j.right_where)
    return lines + [f"! {warning}" for warning in found.warnings]


def curve(found: Answer, *, height: int = 10) -> str:
    """Loss against the interval of the fastest tier, exact form, both axes logarithmic."""
    points = waste_curve(found.design, count=WIDTH - 12)
    values = [math.log(max(loss, 1e-6)) for _, loss in points]
    low, high = min(values), max(values)
    span = max(high - low, 1e-9)
    rows = [[" "] * len(points) for _ in range(height)]
    for column, value in enumerate(values):
        rows[round((value - low) / span * (height - 1))][column] = "•"
    best = min(range(len(points)), key=lambda i: abs(math.log(points[i][0] / found.design.pattern.work_s)))
    lines = ["loss against the interval of the fastest tier (^ = planned)"]
    for index in range(height - 1, -1, -1):
        label = math.exp(low + span * index / (height - 1))
        lines.append(f"{label:>9.3%} |{''.join(rows[index])}".rstrip())
    lines.append(" " * 11 + " " * best + "^")
    first, last = format_seconds(points[0][0]), format_seconds(points[-1][0])
    lines.append(f"{'':>11}{first}{last:>{max(1, len(points) - len(first))}}")
    return "\n".join(lines)


def _wrap(line: str) -> Sequence[str]:
    if len(line) <= WIDTH:
        return [line]
    words, lines, current = line.split(" "), [], ""
    for word in words:
        if current and len(current) + 1 + len(word) > WIDTH:
            lines.append(current)
            current = "  " + word
        else:
            current = f"{current} {word}" if current else word
    return [*lines, current]
