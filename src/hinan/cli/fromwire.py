"""`hinan plan --wire SOURCE`: hands what `hinan wire` knows of a machine's links to the planner, which knows no wire."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hinan.cli.wire_options import Asked, gpu_of, machine_of
from hinan.core.errors import ConfigError
from hinan.plan.model.origin import Kind
from hinan.plan.observed.measured import Figure, MeasuredRun

_OTHERWISE = "give --d2h, or sources that `hinan wire` reads a ceiling or a measurement from"


def wired(sources: Sequence[str], gpu: str | None) -> MeasuredRun:
    """Bandwidth from HBM to RAM on the machine that these files describe.

    Args:
        sources: files as for `hinan wire --from`; "live" for this machine, "sample" for the made-up one.
        gpu: index or PCI address; None for the slowest, for which all ranks wait.
    Raises:
        ConfigError: a source cannot be read, there is no such GPU, or nothing tells how fast it is.
    """
    from hinan.wire.checks.case import Question
    from hinan.wire.show.rates import rate_of, slowest
    from hinan.wire.show.report import report_gpu

    alone = len(sources) == 1
    live, sample = alone and sources[0] == "live", alone and sources[0] == "sample"
    machine = machine_of(Asked([] if live or sample else [Path(source) for source in sources], sample, None, gpu))
    where = f"wire of {'this machine' if live else 'the sample machine' if sample else ', '.join(sources)}"
    one = gpu_of(machine, gpu)
    if one is None:
        raise ConfigError(f"--wire: no GPU is known in the {where}; {_OTHERWISE}")
    asked = machine.gpus if gpu is None else (one,)
    rate = slowest(rate_of(report_gpu(machine, each, Question())) for each in asked)
    if rate is None:
        which = "every GPU is" if gpu is None else f"GPU {gpu} is"
        raise ConfigError(f"--wire: the {where} does not tell how fast {which}; {_OTHERWISE}")
    figure = Figure(rate.bytes_per_s, f"{where}: {rate.source}", Kind(rate.label))
    return MeasuredRun(
        where, {"d2h": figure}, notes_on_use=_caution(figure) + ((f"d2h: {rate.note}",) if rate.note else ())
    )


def _caution(figure: Figure) -> tuple[str, ...]:
    if figure.kind is not Kind.CEILING:
        return ()
    return ("d2h is a ceiling: copies measure 91 to 97 % of it; measure with nvbandwidth, and give its JSON to --wire too",)
