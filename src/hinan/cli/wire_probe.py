"""`hinan wire probe`: measures this machine's GPUs, prints each beside its ceiling, and keeps the result for `--from`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hinan.cli.wire_options import AsJson, show, show_json, write_file
from hinan.core.units import parse_bytes

if TYPE_CHECKING:
    from hinan.wire.facts.model import Machine


def probe(
    size: Annotated[str, typer.Option("--size", help="Bytes of one copy.")] = "256MiB",
    copies: Annotated[int, typer.Option("--copies", min=1, help="Copies that count; the median is taken.")] = 10,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write, for --from and for plan --wire.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure HBM to pinned RAM with torch, GPU by GPU, on this machine. Exit 2 where there is no GPU.

    Nothing else should run meanwhile. The buffer lies on the GPU's NUMA node, as hinan's own slots do.
    """
    from hinan.trainer.ports.probe import TorchCopier
    from hinan.wire.checks.probe import measure
    from hinan.wire.machine import assemble, capture, sources
    from hinan.wire.machine.merge import merge

    here = sources.read_live()
    found = measure(TorchCopier(), here, size_bytes=parse_bytes(size), copies=copies)
    if out is not None:
        write_file(out, capture.write(found))
    print_measured(assemble.assemble(merge([here, found])), as_json=as_json)


def print_measured(machine: Machine, *, as_json: bool) -> None:
    """Each GPU of a machine with its measured rate, and the ceiling beside it."""
    from hinan.wire.checks.case import Question
    from hinan.wire.show.answer import summary
    from hinan.wire.show.render import render_all
    from hinan.wire.show.report import report_gpu

    answers = [report_gpu(machine, gpu, Question()) for gpu in machine.gpus]
    show_json({"gpus": [summary(answer) for answer in answers]}) if as_json else show(render_all(answers))
