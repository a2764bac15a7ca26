"""`hinan wire explain` and `hinan wire dma`: what an address means, and which packets carry bytes to it.

Wire knows no arenas, and arenas know no wire: this verb finds the slot and hands its file over.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hinan.cli.arenas import HeldSlot, held_slot
from hinan.cli.wire_options import AsJson, Asked, From, GpuOption, Sample, gpu_of, machine_of, show, show_json
from hinan.core.errors import ConfigError
from hinan.core.units import format_bytes, parse_bytes

_Where = Annotated[
    str | None,
    typer.Argument(
        metavar="[ADDRESS|TARGET]",
        help="A physical or bus address, such as 0x4012345000; with --arena the target of a run.",
    ),
]
_ArenaFlag = Annotated[
    bool,
    typer.Option(
        "--arena", help="The newest step that an agent holds in RAM here; TARGET names the run if there are several."
    ),
]


def explain(
    context: typer.Context,
    where: _Where = None,
    arena: _ArenaFlag = False,
    file: Annotated[Path | None, typer.Option("--file", help="A file in tmpfs: explain where its pages are.")] = None,
    size: Annotated[
        str, typer.Option("--size", help="Bytes that are written there; parts of them may go elsewhere.")
    ] = "4KiB",
    sources: From = None,
    sample: Sample = False,
    gpu: GpuOption = None,
    device: Annotated[str | None, typer.Option("--device", help="PCI address of another sender: a drive, a NIC.")] = None,
    as_json: AsJson = False,
) -> None:
    """Why this address is the destination: windows at each hop, IOMMU walk, TLP bytes, and the same ideas in IP."""
    import msgspec

    from hinan.wire.show import explain as explain_
    from hinan.wire.show import explain_words

    asked = context.obj.after(Asked(sources, sample, None, gpu))
    machine = machine_of(asked)
    one, sender = gpu_of(machine, asked.gpu), _device(machine, device)
    live = not asked.sample and not asked.sources
    if sender is not None and asked.gpu is not None and not (arena and live):  # there it says whose slot is meant
        raise ConfigError("--device is the sender, and --gpu names another; leave one of them out", device=device)
    if file is not None and (arena or where is not None):
        raise ConfigError("give --file, or --arena, or an address; not both", file=str(file))
    number: int | None
    if arena:
        slot = _slot(where, one if live and asked.gpu is not None else None)
        number, told = _in_pages(slot.path, _words(slot), live=live)
        if live and asked.gpu is None:
            one = next((gpu for gpu in machine.gpus if gpu.address == slot.device), one)
    elif file is not None:
        number, told = _in_pages(file, f"first byte of {file}", live=live)
    else:
        number = _hex(where)
        told = explain_.Told(words="address given", label="illustration", machine="read" if live else "reported")
    found = explain_.explain(machine, one, number, size_bytes=_size(size), told=told, device=sender)
    if as_json:
        plain = msgspec.to_builtins(msgspec.structs.replace(found, packets=()))
        show_json(plain | {"packets": [packet.header().hex(" ") for packet in found.packets]})
        return
    show(explain_words.lines(found))


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

    from hinan.wire.facts.address import parse_address, requester_id
    from hinan.wire.packets import stream
    from hinan.wire.packets.dma import Descriptor, Wire

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
    show_json(msgspec.to_builtins(found)) if as_json else show(list(stream.lines(found, wire_)))


def _hex(text: str | None) -> int:
    from hinan.wire.facts.text import hex_number

    number = hex_number(text)
    if number is None:
        raise ConfigError("give a hexadecimal address such as 0x4012345000, --arena or --file PATH", address=text)
    if text is not None and text.strip().isdigit() and number > 9:
        decimal = int(text)
        raise ConfigError(
            f"{text} can be read in two ways; write 0x{text.strip()} if it is hexadecimal, {decimal:#x} if it is decimal",
            address=text,
        )
    return number


def _device(machine: Any, text: str | None) -> str | None:
    from hinan.wire.facts.address import parse_address

    address = parse_address(text) if text is not None else None
    if text is not None and address not in machine.functions:
        raise ConfigError(f"there is no device {text!r} in the source", device=text)
    return address


def _size(text: str) -> int:
    size_bytes = parse_bytes(text)
    if size_bytes == 0:
        raise ConfigError("--size 0 carries nothing; give 1 byte or more", size=text)
    if size_bytes > 1 << 24:
        raise ConfigError(f"{text} is more than is cut into TLPs one by one; 16 MiB at most", size=text)
    return size_bytes


def _slot(target: str | None, gpu: Any) -> HeldSlot:
    return held_slot(Path(target) if target is not None else None, device=gpu.address if gpu is not None else None)


def _words(slot: HeldSlot) -> str:
    keeper = f"kept by agent {slot.agent}" if slot.agent is not None else "no agent runs"
    writer = f", written by {slot.device}" if slot.device is not None else ""
    return (
        f"first byte of {slot.path}: step {slot.step} of rank {slot.rank}, attempt {slot.attempt}, "
        f"{format_bytes(slot.image_bytes)}{writer}, {keeper}"
    )


def _in_pages(path: Path, words: str, *, live: bool) -> tuple[int | None, Any]:
    """The physical address of the first byte of a file in RAM; None without root."""
    from hinan.wire.machine import sources
    from hinan.wire.readers import pages
    from hinan.wire.show.explain import Told

    here = sources.read_live()
    found = pages.pages_of(path)
    physical = found[0].physical
    return physical, Told(
        words=words,
        label="read" if physical is not None else "unknown",
        machine="read" if live else "illustration",
        pages=found,
        iomem=here.iomem,
        contiguous_bytes=pages.PAGE_BYTES,
        virtual=bool(here.virtual),
    )
