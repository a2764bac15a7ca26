"""`hinan wire`: reads the options, asks `hinan.wire`, prints.

`wire check` asks about the path (links, nodes, IOMMU, ACS); `verify` is for bytes at rest, `preflight` for the node,
`drill` for breaking things on purpose.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Annotated, Any

import typer

from hinan.cli import wire_address, wire_probe
from hinan.cli.arenas import slot_nodes
from hinan.cli.verbs import Verbs
from hinan.cli.wire_options import (
    STDOUT,
    AsJson,
    Asked,
    Buffer,
    From,
    GpuOption,
    Loaded,
    Sample,
    State,
    gpu_of,
    machine_of,
    node_of,
    out_path,
    refuse_before_verb,
    refuse_unused,
    show,
    show_json,
    state_of,
    write_file,
)
from hinan.core.errors import ConfigError

app = Verbs(
    name="wire",
    help="Which wires a checkpoint takes, how fast they can be, who shares them, and where its addresses lead.",
    epilog="Example: sudo lspci -vvv > dump; hinan wire --from dump --gpu 0 --state 61.2GB",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback(invoke_without_command=True)
def wire(
    context: typer.Context,
    sources: From = None,
    sample: Sample = False,
    gpu: GpuOption = None,
    state: State = None,
    every: Annotated[bool, typer.Option("--all", help="All GPUs at once, with shared uplinks.")] = False,
    as_json: AsJson = False,
    buffer_node: Buffer = None,
    under_load: Loaded = False,
    paths: Annotated[bool, typer.Option("--paths", help="The hot path of training beside the evacuation.")] = False,
    legs: Annotated[bool, typer.Option("--legs", help="GPU to NVMe and NIC, hop by hop; with --json everything.")] = False,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="PATH", parser=out_path, help="Draw the path into this file.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="PATH", parser=out_path, help="Write a page with the picture and the figures."),
    ] = None,
) -> None:
    """The path of a checkpoint from GPU memory to host RAM: hops, ceiling, sharers, seconds.

    Reads this machine, or with --from: lspci -vvv or -tv, hwloc XML, NCCL/RCCL XML, nvidia-smi topo -m, numactl -H,
    /proc/iomem, gdscheck, nvbandwidth, a capture file.
    """
    context.obj = Asked(sources, sample, state, gpu)
    views = {"--all": every, "--paths": paths, "--legs": legs, "--svg": svg is not None, "--html": html is not None}
    others = {"--json": as_json, "--buffer-node": buffer_node is not None, "--under-load": under_load}
    if context.invoked_subcommand is not None:
        refuse_before_verb(context.invoked_subcommand, context.obj, [name for name, on in (views | others).items() if on])
        return
    from hinan.wire.checks.case import Question
    from hinan.wire.show import render, report
    from hinan.wire.show.answer import summary, to_builtins

    refuse_unused(
        views | {"--legs": legs and not as_json}, others | {"--gpu": gpu is not None, "--state": state is not None}
    )
    machine = machine_of(context.obj)
    question = Question(state_bytes=state_of(context.obj), buffer_node=node_of(machine, buffer_node), under_load=under_load)
    keys = to_builtins if legs else summary
    if every and as_json:
        show_json({"gpus": [keys(report.report_gpu(machine, each, question)) for each in machine.gpus]})
        return
    one = gpu_of(machine, gpu)
    if one is None:
        if svg is not None or html is not None:
            raise ConfigError("there is no GPU, so there is no path to draw; leave --svg and --html out, or try --sample")
        answer = report.report_without_gpu(machine, question)
        show_json(keys(answer)) if as_json else show(render.render_without_gpu(answer, machine))
        return
    if every:
        show(render.render_all([report.report_gpu(machine, each, question) for each in machine.gpus]))
        return
    if paths:
        _paths(machine, one, as_json)
        return
    answer = report.report_gpu(machine, one, question)
    _pictures(answer, svg, html)
    if as_json:
        show_json(keys(answer))
    else:
        show(render.render_legs(answer) if legs else render.render(answer, machine))


def _paths(machine: Any, gpu: Any, as_json: bool) -> None:
    import msgspec

    from hinan.wire.paths import hotpath

    found = hotpath.paths_of(machine, gpu)
    show_json(msgspec.to_builtins(found)) if as_json else show(hotpath.lines(found))


def _pictures(answer: Any, svg: Path | None, html: Path | None) -> None:
    from hinan.wire.show import picture

    if svg is not None:
        write_file(svg, picture.svg(answer))
    if html is not None:
        write_file(html, picture.html(answer))


app.command()(wire_address.explain)
app.command()(wire_address.dma)
app.command()(wire_probe.probe)


@app.command()
def check(
    context: typer.Context,
    sources: From = None,
    sample: Sample = False,
    state: State = None,
    as_json: AsJson = False,
    buffer_node: Buffer = None,
    run: Annotated[Path | None, typer.Option("--run", help="Target of a run: where its slots really lie.")] = None,
    under_load: Loaded = False,
) -> None:
    """What is wrong with the path: evidence, effect in seconds for this state, fix. Exit 1 on findings.

    Where no GPU is known there is no path, and it exits 0: compare `gpus` of --json with what the node should have.

    For bytes at rest there is `hinan verify`, for the node `hinan preflight`, to break it on purpose `hinan drill`.
    """
    import msgspec

    from hinan.wire.checks.case import Question
    from hinan.wire.checks.check import check_machine
    from hinan.wire.checks.notes import notes_of_machine
    from hinan.wire.show import render

    asked = context.obj.after(Asked(sources, sample, state, None))
    machine = machine_of(asked)
    buffers = slot_nodes(run) if run is not None else {}
    question = Question(
        state_bytes=state_of(asked), buffer_node=node_of(machine, buffer_node), buffers=buffers, under_load=under_load
    )
    found = check_machine(machine, question)
    notes = notes_of_machine(machine, question)
    if as_json:
        plain = {"findings": msgspec.to_builtins(found), "gpus": len(machine.gpus), "sources": list(machine.sources)}
        show_json(plain | {"notes": list(notes)})
    elif found:
        show([line for f in found for line in render.wrapped("!", render.sentence(f))] + render.noted(notes))
    else:
        show([*textwrap.wrap(_nothing_found(len(machine.gpus), machine.sources), render.WIDTH), *render.noted(notes)])
    if found:
        raise typer.Exit(1)


def _nothing_found(gpus: int, sources: tuple[str, ...]) -> str:
    read = f"(read from: {', '.join(sources)})"
    if not gpus:
        return f"no GPU is known, so no path was checked {read}"
    return f"nothing found on the path{'s' if gpus > 1 else ''} of {gpus} GPU{'s' if gpus > 1 else ''} {read}"


@app.command()
def capture(
    context: typer.Context,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="PATH",
            parser=out_path,
            help="File to write (-: standard output); machine.json, if there is none.",
        ),
    ] = None,
    sources: From = None,
) -> None:
    """Write one file from this node (or from several dumps) that all verbs read elsewhere; identities are replaced."""
    import socket

    from hinan.wire.machine import capture as format_

    machine = machine_of(context.obj.after(Asked(sources, False, None, None)))
    text = format_.write(machine, host=socket.gethostname())
    path = out or Path("machine.json")
    if out is None and path.exists():
        raise ConfigError(f"{path} exists; name a file with -o, or that one to write over it", path=str(path))
    if path == STDOUT:
        show([text])
        return
    write_file(path, text)
    show([f"{path}: {len(machine.functions)} functions, {len(machine.gpus)} GPUs, {len(machine.nodes)} NUMA nodes"])
