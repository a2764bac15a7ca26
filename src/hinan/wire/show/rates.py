"""The one figure that others take from the wire: how fast a GPU's state reaches host RAM when all evacuate at once.

Owns:      the choice between measured, ceiling and reported, and the words that say which it is.
Promises:  a stopwatch that ran on all GPUs at once saw also what no file tells (DRAM, sockets, how a switch divides its
           uplink), and goes before all, above the share too; only what no link can carry is left out, and said.
           Without one, never more than the GPU's share of the links that are known: a stopwatch that ran alone does not
           see the others, and a link that several GPUs cross does not grow because nobody tells what is above it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from hinan.wire.show.answer import Report

_SAME = 0.999


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """bytes_per_s: decimal, one direction, per GPU. label: measured, ceiling or reported. source: how it follows.

    note: why it is less than the machine is built for, or may be more than each gets; empty where neither is so.
    """

    bytes_per_s: float
    label: str
    source: str
    note: str = ""


def rate_of(report: Report) -> Rate | None:
    """The evacuation rate of the GPU of a report; None when nothing is known."""
    gpu = report.gpu
    if gpu is None:
        return None
    who = f"GPU {gpu.index}" + (f" ({gpu.address})" if gpu.address else "")
    measured, share = report.measured_bytes_per_s, report.all_ranks_ceiling_bytes_per_s
    together, known = report.all_ranks_measured_bytes_per_s, report.all_ranks_known_bytes_per_s
    if together is not None and report.all_ranks_impossible is None:
        all_of_them = f", all {report.gpus} GPUs at once" if report.gpus > 1 else ""
        source = f"{who}: {report.all_ranks_measured_by}{all_of_them}"
        return Rate(bytes_per_s=together, label="measured", source=source)
    if measured is not None and (known is None or measured <= known):
        source = f"{who}: {report.measured_by}{', alone' if _is_untold(report) else ''}"
        return Rate(bytes_per_s=measured, label="measured", source=source, note=_said(_unshared(report), _too_fast(report)))
    alone = f"; alone {measured / 1e9:.1f} GB/s were measured" if measured is not None else ""
    if share is not None:
        why = f"its share when all {report.gpus} GPUs evacuate" if report.gpus > 1 else "alone"
        return Rate(bytes_per_s=share, label="ceiling", source=f"{who}: {why}{alone}", note=_note(report))
    ceiling = report.ceiling_bytes_per_s
    if known is not None and (ceiling is None or known < ceiling * _SAME) and (measured is not None or ceiling is not None):
        why = f"its share of the links that are told when all {report.gpus} GPUs evacuate{alone}; others are not told"
        return Rate(bytes_per_s=known, label="ceiling", source=f"{who}: {why}", note=_note(report))
    if ceiling is not None:
        why = "alone; who shares its links is not known"
        return Rate(bytes_per_s=ceiling, label="ceiling", source=f"{who}: {why}", note=_note(report))
    if report.reported_bytes_per_s is not None:
        return Rate(bytes_per_s=report.reported_bytes_per_s, label="reported", source=f"{who}: {report.coherent_link}")
    return None


def _note(report: Report) -> str:
    return _said(_unshared(report), _lost(report), _too_fast(report))


def _said(*notes: str) -> str:
    return "; ".join(filter(None, notes))


def _is_untold(report: Report) -> bool:
    """Do others evacuate too, and nobody knows what they leave this GPU? Not where it shares no PCIe link with them."""
    return report.gpus > 1 and report.all_ranks_ceiling_bytes_per_s is None and report.coherent_link is None


def _unshared(report: Report) -> str:
    if not _is_untold(report) or report.gpu is None:
        return ""
    return (
        f"who shares the links of GPU {report.gpu.index} is not known, so all {report.gpus} at once may each be slower; "
        "measure all_to_host_memcpy_ce"
    )


def _too_fast(report: Report) -> str:
    together = report.all_ranks_measured_bytes_per_s
    if together is None or report.all_ranks_impossible is None or report.gpu is None:
        return ""
    said = f"{report.all_ranks_measured_by} says {together / 1e9:.1f} GB/s of GPU {report.gpu.index} while all copy"
    return f"{said}; {report.all_ranks_impossible}: not taken"


def _lost(report: Report) -> str:
    if not report.runs_below_capability or report.gpu is None:
        return ""
    whole = (report.as_built_bytes_per_s or 0.0) / 1e9
    return f"links of GPU {report.gpu.index} run below their capability of {whole:.1f} GB/s: see `hinan wire check`"


def slowest(rates: Iterable[Rate | None]) -> Rate | None:
    """What a node evacuates at: its slowest GPU, for which all others wait. None if any is unknown, or there is none."""
    known = list(rates)
    if not known or None in known:
        return None
    return min((rate for rate in known if rate is not None), key=lambda rate: rate.bytes_per_s)
