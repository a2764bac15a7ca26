"""The one figure that others take from the wire: how fast a GPU's state reaches host RAM when all evacuate at once.

Owns:      the choice between measured, ceiling and reported, and the words that say which it is.
Promises:  never more than the GPU's share of links that it shares: a stopwatch that ran alone does not see the others.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from hinan.wire.report import Report


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """bytes_per_s: decimal, one direction, per GPU. label: measured, ceiling or reported. source: how it follows."""

    bytes_per_s: float
    label: str
    source: str


def rate_of(report: Report) -> Rate | None:
    """The evacuation rate of the GPU of a report; None when nothing is known."""
    gpu = report.gpu
    if gpu is None:
        return None
    who = f"GPU {gpu.index}" + (f" ({gpu.address})" if gpu.address else "")
    measured, share = report.measured_bytes_per_s, report.all_ranks_ceiling_bytes_per_s
    if measured is not None and (share is None or measured <= share):
        return Rate(bytes_per_s=measured, label="measured", source=f"{who}: {report.measured_by}")
    if share is not None:
        alone = f"; alone {measured / 1e9:.1f} GB/s were measured" if measured is not None else ""
        why = f"its share when all {report.gpus} GPUs evacuate{alone}"
        return Rate(bytes_per_s=share, label="ceiling", source=f"{who}: {why}")
    if report.ceiling_bytes_per_s is not None:
        why = "alone; who shares its links is not known"
        return Rate(bytes_per_s=report.ceiling_bytes_per_s, label="ceiling", source=f"{who}: {why}")
    if report.reported_bytes_per_s is not None:
        return Rate(bytes_per_s=report.reported_bytes_per_s, label="reported", source=f"{who}: {report.coherent_link}")
    return None


def slowest(rates: Iterable[Rate | None]) -> Rate | None:
    """What a node evacuates at: its slowest GPU, for which all others wait. None if any is unknown, or there is none."""
    known = list(rates)
    if not known or None in known:
        return None
    return min((rate for rate in known if rate is not None), key=lambda rate: rate.bytes_per_s)
