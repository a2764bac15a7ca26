"""Options, sources and printing that every verb of `hinan wire` shares."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from hinan.core.errors import ConfigError
from hinan.core.units import parse_bytes

From = Annotated[list[Path] | None, typer.Option("--from", help="A captured machine; repeat to join several files.")]
Sample = Annotated[bool, typer.Option("--sample", help="A made-up HGX H100 server instead of this machine.")]
State = Annotated[str | None, typer.Option("--state", help="Bytes of one rank's state, such as 61.2GB.")]
AsJson = Annotated[bool, typer.Option("--json", help="For programs; unknown is null.")]
GpuOption = Annotated[str | None, typer.Option("--gpu", help="Index or PCI address.")]
Buffer = Annotated[int | None, typer.Option("--buffer-node", min=0, help="NUMA node on which the buffer lies.")]
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


def machine_of(asked: Asked) -> Any:
    from hinan.wire import sample, sources

    if asked.sample:
        return sample.machine()
    if asked.sources:
        return sources.read_paths(asked.sources)
    return sources.read_live()


def state_of(asked: Asked) -> int | None:
    return parse_bytes(asked.state, bare=False) if asked.state is not None else None


def node_of(machine: Any, index: int | None) -> int | None:
    """The node that was asked for.

    Raises:
        ConfigError: the machine's nodes are known, and it has no such node.
    """
    known = sorted(node.index for node in machine.nodes)
    if index is not None and known and index not in known:
        raise ConfigError(f"there is no NUMA node {index}; there are {', '.join(map(str, known))}", buffer_node=index)
    return index


def gpu_of(machine: Any, text: str | None) -> Any:
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


def show(lines: list[str]) -> None:
    sys.stdout.write("\n".join(lines).rstrip() + "\n")


def show_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def write_file(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}", path=str(path)) from error
