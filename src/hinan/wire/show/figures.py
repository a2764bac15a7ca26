"""The figures of a report, row by row: what the terminal and the page both show.

Owns:      which figures there are, their order, labels and seconds.
Never:     computes a rate. What a source only reports (NVLink between GPU and CPU) has no seconds: nobody measured it.
"""

from __future__ import annotations

import msgspec

from hinan.wire.paths.shares import SHARING_UNKNOWN
from hinan.wire.show.answer import Report


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """way: what is carried, in full. name: the same in a column, empty below a row of the same name."""

    way: str
    name: str
    label: str
    bytes_per_s: float | None
    duration_s: float | None
    why: str


BY_CAPABILITY = "by capability, if nothing were lost"


def figures_of(report: Report) -> tuple[Figure, ...]:
    """Every way of the state to RAM: alone, then all at once."""
    whole = report.as_built_bytes_per_s if report.runs_below_capability else None
    alone = [
        ("to RAM", "to RAM", "ceiling", report.ceiling_bytes_per_s, report.seconds, _narrowest(report)),
        (f"to RAM, {BY_CAPABILITY}", "", "ceiling", whole, _seconds(report, whole), BY_CAPABILITY),
        ("to RAM, reported", "", "reported", report.reported_bytes_per_s, None, report.coherent_link or ""),
        ("to RAM, measured", "", "measured", report.measured_bytes_per_s, report.measured_seconds, _measured_by(report)),
    ]
    rows = [row for row in alone if row[3] or row[0] in ("to RAM", "to RAM, measured")]
    together, took, by = (
        report.all_ranks_measured_bytes_per_s, report.all_ranks_measured_seconds, report.all_ranks_measured_by or "",
    )  # fmt: skip
    if report.gpus > 1:
        count, share = f"all {report.gpus} GPUs", report.all_ranks_ceiling_bytes_per_s
        each = "each, when all evacuate at once"
        if share is None and report.ceiling_bytes_per_s is not None:
            each = f"each: {SHARING_UNKNOWN}"
        label = "share" if report.labels["all_ranks_ceiling_bytes_per_s"] == "share" else "ceiling"
        rows.append((f"{count} at once, each", count, label, share, report.all_ranks_seconds, each))
        if together is not None:
            rows.append((f"{count} at once, measured, each", "", "measured", together, took, f"each: {by}"))
    elif together is not None:
        rows.append((f"to RAM, measured by {by}", "one GPU", "measured", together, took, by))
    return tuple(
        Figure(way=way, name=name, label=label, bytes_per_s=rate, duration_s=duration, why=why)
        for way, name, label, rate, duration, why in rows
    )


def _seconds(report: Report, rate: float | None) -> float | None:
    return report.state_bytes / rate if report.state_bytes is not None and rate else None


def _narrowest(report: Report) -> str:
    mps = f"MPS {report.mps_bytes}" if report.mps_bytes else f"MPS {report.assumed_mps_bytes} assumed"
    return f"narrowest: {report.narrowest}, {mps}" if report.narrowest else "see below"


def _measured_by(report: Report) -> str:
    if not report.measured_by:
        return "91 to 97 % of the ceiling is usual" if report.ceiling_bytes_per_s else ""
    of = ""
    if report.measured_bytes_per_s and report.ceiling_bytes_per_s:
        of = f", {report.measured_bytes_per_s / report.ceiling_bytes_per_s:.1%} of the ceiling"
    return f"{report.measured_by}{of}"
