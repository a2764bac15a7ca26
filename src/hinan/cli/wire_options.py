"""Options, sources and printing that every verb of `hinan wire` shares."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
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
Loaded = Annotated[bool, typer.Option("--under-load", help="The links between GPUs and RAM were busy when they were read.")]


class Asked:
    """Options that may stand before or after the verb."""

    def __init__(self, sources: list[Path] | None, sample: bool, state: str | None, gpu: str | None) -> None:
        self.sources, self.sample, self.state, self.gpu = sources or [], sample, state, gpu

    def after(self, later: Asked) -> Asked:
        """These options, with what stands after the verb in front."""
        return Asked(
            later.sources or self.sources, later.sample or self.sample, later.state or self.state, later.gpu or self.gpu
        )


_OF_VERB = {
    "check": {"--from", "--sample", "--state"},
    "explain": {"--from", "--sample", "--gpu"},
    "capture": {"--from"},
}  # fmt: skip
"""Of the options that may stand before a verb, those that it uses."""


def refuse_before_verb(verb: str, asked: Asked, others: Sequence[str]) -> None:
    """Refuses options in front of a verb that would have no effect there.

    Args:
        others: options given that belong to `hinan wire` without a verb, or behind it.
    """
    given = {"--from": asked.sources, "--sample": asked.sample, "--state": asked.state, "--gpu": asked.gpu}
    unused = [name for name, value in given.items() if value and name not in _OF_VERB.get(verb, ())]
    if others or unused:
        names = " and ".join([*others, *unused])
        raise ConfigError(f"{names} before `{verb}` would have no effect; see `hinan wire {verb} --help` for what it takes")


def refuse_unused(views: dict[str, bool], others: dict[str, bool]) -> None:
    """Refuses what would silently win over something else that was asked for, or have no effect beside it."""
    shown = [name for name in ("--all", "--paths", "--legs") if views[name]]
    if len(shown) > 1:
        raise ConfigError(f"{' and '.join(shown)} are different views; ask for one after the other")
    if (views["--svg"] or views["--html"]) and shown and shown[0] != "--legs":
        raise ConfigError(f"--svg and --html draw the path of one GPU; leave {shown[0]} out, and say which with --gpu")
    useless = {"--all": ("--gpu",), "--paths": ("--state", "--buffer-node", "--under-load"),
               "--legs": ("--buffer-node",)}  # fmt: skip
    unused = [name for view in shown for name in useless[view] if others[name]]
    if unused:
        raise ConfigError(f"{' and '.join(unused)} would have no effect with {shown[0]}; leave one of them out")


def machine_of(asked: Asked) -> Any:
    """The machine that was asked for.

    Raises:
        ConfigError: two of them are asked for, or a source cannot be read.
    """
    if asked.sample and asked.sources:
        raise ConfigError("--sample is a machine of its own, and --from names another; leave one of them out")
    from hinan.wire.machine import sample, sources

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
        ConfigError: all nodes of the machine are known, and it has no such node.
    """
    from hinan.wire.facts.placement import has_all_nodes

    known = sorted(node.index for node in machine.nodes)
    if index is not None and index not in known and has_all_nodes(machine):
        raise ConfigError(f"there is no NUMA node {index}; there are {', '.join(map(str, known))}", buffer_node=index)
    return index


def gpu_of(machine: Any, text: str | None) -> Any:
    """The GPU that was asked for; None when the machine has none.

    Raises:
        ConfigError: there are GPUs, but not this one.
    """
    from hinan.wire.facts.address import parse_address

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
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


STDOUT = Path("-")


def out_path(text: str) -> Path:
    """A path that is `STDOUT` for "-" alone: "./-" names a file, and `Path` would drop the difference."""
    return Path(text) if text == "-" or Path(text) != STDOUT else Path.cwd() / "-"


def write_file(path: Path, text: str) -> None:
    """Writes a file beside what is printed.

    Raises:
        ConfigError: it cannot be written, or is standard output, which has the answer already.
    """
    if path == STDOUT:
        raise ConfigError("- is standard output, where the answer goes; name a file")
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}", path=str(path)) from error
