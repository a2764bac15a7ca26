"""`hinan wire`: reads the options, asks `hinan.wire`, prints.

`wire check` asks about the path (links, nodes, IOMMU, ACS); `verify` is for bytes at rest, `preflight` for the node,
`drill` for breaking things on purpose.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from hinan.core.errors import ConfigError
from hinan.core.units import parse_bytes

app = typer.Typer(
    name="wire",
    help="Which wires a checkpoint takes, how fast they can be, who shares them, and where its addresses lead.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

From = Annotated[list[Path] | None, typer.Option("--from", help="A captured machine; repeat to join several files.")]
Sample = Annotated[bool, typer.Option("--sample", help="A made-up HGX H100 server instead of this machine.")]
State = Annotated[str | None, typer.Option("--state", help="Bytes of one rank's state, such as 61.2GB.")]
AsJson = Annotated[bool, typer.Option("--json", help="For programs; unknown is null.")]
GpuOption = Annotated[str | None, typer.Option("--gpu", help="Index or PCI address.")]
Buffer = Annotated[int | None, typer.Option("--buffer-node", help="NUMA node on which the buffer lies.")]
Loaded = Annotated[bool, typer.Option("--under-load", help="The links were busy when they were read.")]


class Asked:
    """Options that may stand before or after the verb."""

    def __init__(self, sources: list[Path] | None, sample: bool, state: str | None, gpu: str | None) -> None:
        self.sources, self.sample, self.state, self.gpu = sources or [], sample, state, gpu

    def after(self, later: Asked) -> Asked:
        """These options, with what stands after the verb in front."""
        return Asked(
            later.sources or self.sources, later.sample or self.sample, later.state or self.state, later.gpu or self.gpu
        )


def _machine(asked: Asked) -> Any:
    from hinan.wire import sample, sources

    if asked.sample:
        return sample.machine()
    if asked.sources:
        return sources.read_paths(asked.sources)
    return sources.read_live()


def _state(asked: Asked) -> int | None:
    return parse_bytes(asked.state) if asked.state is not None else None


def _gpu(machine: Any, text: str | None) -> Any:
    """The GPU that was asked for; None when the machine has none.

    Raises:
        ConfigError: there are GPUs, but not this one.
    """
    from hinan.wire.address import parse_address

    if not machine.gpus:
        return None
    if text is None:
        return machine.gpus[0]
    address = parse_address(text)
    for gpu in machine.gpus:
        if str(gpu.index) == text or (address is not None and gpu.address == address):
            return gpu
    known = ", ".join(f"{gpu.index} ({gpu.address})" if gpu.address else str(gpu.index) for gpu in machine.gpus)
    raise ConfigError(f"there is no GPU {text!r}; there are {known}", gpu=text)


def _print(lines: list[str]) -> None:
    sys.stdout.write("\n".join(lines).rstrip() + "\n")


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


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
    legs: Annotated[bool, typer.Option("--legs", help="GPU to NVMe and NIC, with and without RAM, hop by hop.")] = False,
    svg: Annotated[Path | None, typer.Option("--svg", help="Draw the path into this file.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write a page with the picture and the figures.")] = None,
) -> None:
    """The path of a checkpoint from GPU memory to host RAM: hops, ceiling, sharers, seconds.

    Reads this machine, or with --from: lspci -vvv or -tv, hwloc XML, NCCL/RCCL XML, nvidia-smi topo -m, numactl -H,
    /proc/iomem, gdscheck, nvbandwidth, a capture file.
    """
    context.obj = Asked(sources, sample, state, gpu)
    if context.invoked_subcommand is not None:
        return
    from hinan.wire import render, report
    from hinan.wire.check import Question

    machine = _machine(context.obj)
    question = Question(state_bytes=_state(context.obj), buffer_node=buffer_node, under_load=under_load)
    one = _gpu(machine, gpu)
    if one is None:
        if svg is not None or html is not None:
            raise ConfigError("there is no GPU, so there is no path to draw; leave --svg and --html out, or try --sample")
        answer = report.report_without_gpu(machine, question)
        _print_json(report.to_builtins(answer)) if as_json else _print(render.render_without_gpu(answer, machine))
        return
    if every:
        answers = [report.report_gpu(machine, each, question) for each in machine.gpus]
        _print_json({"gpus": [report.to_builtins(a) for a in answers]}) if as_json else _print(render.render_all(answers))
        return
    if paths:
        _paths(machine, one, as_json)
        return
    answer = report.report_gpu(machine, one, question)
    _pictures(answer, svg, html)
    if as_json:
        _print_json(report.to_builtins(answer))
    else:
        _print(render.render_legs(answer) if legs else render.render(answer, machine))


def _paths(machine: Any, gpu: Any, as_json: bool) -> None:
    import msgspec

    from hinan.wire import hotpath

    found = hotpath.paths_of(machine, gpu)
    _print_json(msgspec.to_builtins(found)) if as_json else _print(hotpath.lines(found))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}", path=str(path)) from error


def _pictures(answer: Any, svg: Path | None, html: Path | None) -> None:
    from hinan.wire import picture

    if svg is not None:
        _write(svg, picture.svg(answer))
    if html is not None:
        _write(html, picture.html(answer))


@app.command()
def explain(
    context: typer.Context,
    address: Annotated[str | None, typer.Argument(help="A physical or bus address, such as 0x4012345000.")] = None,
    file: Annotated[Path | None, typer.Option("--file", help="A file in tmpfs: explain where its pages are.")] = None,
    size: Annotated[str, typer.Option("--size", help="Bytes that are written there.")] = "4KiB",
    sources: From = None,
    sample: Sample = False,
    gpu: GpuOption = None,
    device: Annotated[str | None, typer.Option("--device", help="PCI address of another sender: a drive, a NIC.")] = None,
    as_json: AsJson = False,
) -> None:
    """Why this address is the destination: windows at each hop, IOMMU walk, TLP bytes, and the same ideas in IP."""
    import msgspec

    from hinan.wire import explain as explain_

    asked = context.obj.after(Asked(sources, sample, None, gpu))
    machine = _machine(asked)
    number, label, pages = _destination(address, file)
    one, sender = _gpu(machine, asked.gpu), _device(machine, device)
    found = explain_.explain(machine, one, number, size_bytes=_size(size), label=label, pages=pages, device=sender)
    if as_json:
        plain = msgspec.to_builtins(msgspec.structs.replace(found, packets=()))
        _print_json(plain | {"packets": [packet.header().hex(" ") for packet in found.packets]})
        return
    _print(explain_.lines(found))


@app.command()
def dma(
    address: Annotated[str, typer.Argument(help="Bus address in host RAM, such as 0x4012345000.")],
    size: Annotated[str, typer.Option("--size", help="Bytes to copy.")] = "4KiB",
    to_device: Annotated[bool, typer.Option("--to-device", help="Host to device: reads and completions.")] = False,
    requester: Annotated[str, typer.Option("--device", help="PCI address of the sender.")] = "0000:00:00.0",
    gt_s: Annotated[float, typer.Option("--gt", help="GT/s per lane: 2.5, 5, 8, 16, 32 or 64.")] = 32.0,
    width: Annotated[int, typer.Option("--width", help="Lanes.")] = 16,
    mps: Annotated[int, typer.Option("--mps", help="Payload of a TLP in bytes.")] = 256,
    mrrs: Annotated[int, typer.Option("--mrrs", help="Bytes of a read request.")] = 512,
    tags: Annotated[int, typer.Option("--tags", min=1, max=1024, help="Reads on the way at once.")] = 32,
    semaphore: Annotated[str | None, typer.Option("--semaphore", help="Address of the word that says done.")] = None,
    as_json: AsJson = False,
) -> None:
    """A copy engine on paper: descriptor in, the TLPs and their times out. An illustration; nothing is copied."""
    import msgspec

    from hinan.wire import stream
    from hinan.wire.address import parse_address, requester_id
    from hinan.wire.dma import Descriptor, Wire

    sender = parse_address(requester)
    if sender is None:
        raise ConfigError(f"{requester!r} is not a PCI address such as 19:00.0", device=requester)
    done = _hex(semaphore) if semaphore is not None else None
    descriptor = Descriptor(
        address=_hex(address),
        size_bytes=_size(size),
        to_host=not to_device,
        requester=requester_id(sender),
        semaphore_address=done,
    )
    wire_ = Wire(gt_s=gt_s, width=width, mps_bytes=mps, mrrs_bytes=mrrs, tags=tags)
    found = stream.stream_of(descriptor, wire_)
    _print_json(msgspec.to_builtins(found)) if as_json else _print(list(stream.lines(found, wire_)))


def _hex(text: str | None) -> int:
    from hinan.wire.text import hex_number

    number = hex_number(text)
    if number is None:
        raise ConfigError("give a hexadecimal address such as 0x4012345000, or --file PATH", address=text)
    return number


def _device(machine: Any, text: str | None) -> str | None:
    from hinan.wire.address import parse_address

    address = parse_address(text) if text is not None else None
    if text is not None and address not in machine.functions:
        raise ConfigError(f"there is no device {text!r} in the source", device=text)
    return address


def _size(text: str) -> int:
    size_bytes = parse_bytes(text)
    if size_bytes > 1 << 24:
        raise ConfigError(f"{text} is more than is cut into TLPs one by one; 16 MiB at most", size=text)
    return size_bytes


def _destination(address: str | None, file: Path | None) -> tuple[int, str, Any]:
    """The address to explain, what it is, and the file's pages."""
    from hinan.wire import pages as pages_

    if file is not None:
        pages = pages_.pages_of(file)
        first = pages[0]
        if first.physical is not None:
            return first.physical, "read (page 0 of the file)", pages
        return first.virtual, "illustration (virtual: the physical one needs root)", pages
    return _hex(address), "illustration", ()


@app.command()
def check(
    context: typer.Context,
    sources: From = None,
    sample: Sample = False,
    state: State = None,
    as_json: AsJson = False,
    buffer_node: Buffer = None,
    under_load: Loaded = False,
) -> None:
    """What is wrong with the path: evidence, effect in seconds for this state, fix. Exit 1 on findings.

    For bytes at rest there is `hinan verify`, for the node `hinan preflight`, to break it on purpose `hinan drill`.
    """
    import msgspec

    from hinan.wire import render
    from hinan.wire.check import Question, check_machine

    asked = context.obj.after(Asked(sources, sample, state, None))
    machine = _machine(asked)
    question = Question(state_bytes=_state(asked), buffer_node=buffer_node, under_load=under_load)
    found = check_machine(machine, question)
    if as_json:
        _print_json({"findings": msgspec.to_builtins(found), "gpus": len(machine.gpus), "sources": list(machine.sources)})
    elif found:
        _print([line for finding in found for line in render.wrapped("!", render.sentence(finding))])
    else:
        _print([f"nothing found on the paths of {len(machine.gpus)} GPUs (read from: {', '.join(machine.sources)})"])
    if found:
        raise typer.Exit(1)


@app.command()
def capture(
    context: typer.Context,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write.")] = Path("machine.json"),
    sources: From = None,
) -> None:
    """Write one file from this node (or from several dumps) that all verbs read elsewhere; identities are replaced."""
    import socket

    from hinan.wire import capture as format_

    machine = _machine(context.obj.after(Asked(sources, False, None, None)))
    text = format_.write(machine, host=socket.gethostname())
    _write(out, text)
    _print([f"{out}: {len(machine.functions)} functions, {len(machine.gpus)} GPUs, {len(machine.nodes)} NUMA nodes"])
