"""From files to one machine: which reader reads what, and how several descriptions of one machine are joined.

Owns:      recognition by content. A text may hold several outputs (a pasted terminal): every text reader gets a look.
Promises:  the same files in any order give the same machine; the file's name plays no part.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from hinan.core.errors import ConfigError, FormatError
from hinan.wire.facts import text
from hinan.wire.facts.model import Machine
from hinan.wire.machine import assemble, capture
from hinan.wire.machine.merge import merge
from hinan.wire.readers import (
    gdscheck,
    hwloc,
    iomem,
    lspci_blocks,
    lspci_tree,
    nccl,
    numactl,
    nvbandwidth,
    stopwatches,
    sysfs,
    topo_matrix,
)
from hinan.wire.readers.plain import plain

STDIN = "-"
_TEXT_READERS = (
    lspci_blocks.read,
    lspci_tree.read,
    topo_matrix.read,
    numactl.read,
    iomem.read,
    iomem.read_srat,
    gdscheck.read,
    nvbandwidth.read_text,
    stopwatches.read,
)
KINDS = (
    "lspci -vvv, -tv or -nn; hwloc or NCCL/RCCL XML; nvidia-smi topo -m; numactl -H; /proc/iomem; gdscheck -p; "
    "nvbandwidth; a file of `hinan wire capture`; or a folder that holds sys/"
)


def read_text(raw: str) -> Machine | None:
    """Everything that is recognised in one text, not yet assembled; None when nothing is."""
    cleaned = textwrap.dedent(text.clean(raw))  # an output that was pasted with an indent is that output
    start = cleaned.lstrip("\ufeff \n\t")
    if start.startswith("<"):
        return nccl.read(start) or hwloc.read(start)
    if start.startswith("{"):
        return capture.read(start) or nvbandwidth.read_json(start)
    found = [machine for machine in (reader(cleaned) for reader in _TEXT_READERS) if machine is not None]
    return merge(found) if found else None


def read_path(path: Path) -> Machine:
    """One file ("-" is standard input), or a folder with sys/ and proc/ below it.

    Raises:
        ConfigError: missing, too large, or nothing in it is recognised.
    """
    try:
        if path.is_dir():
            if not (path / "sys").is_dir():
                raise ConfigError(
                    f"{path} is a folder without sys/; give files, or the root of a copied /sys", path=str(path)
                )
            return sysfs.read(path)
        data = _head(path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", path=str(path)) from error
    if len(data) > text.MAX_BYTES:
        raise ConfigError(f"{path} is larger than 64 MiB; no machine description is", path=str(path))
    try:
        machine = read_text(text.decode(data))
    except FormatError as error:
        raise ConfigError(f"{path}: {error}", path=str(path)) from error
    if machine is None:
        raise ConfigError(f"nothing in {path} is recognised; readable are: {KINDS}", path=str(path))
    return machine


def _head(path: Path) -> bytes:
    """The first bytes of a file, one more than any description has. Standard input stays open: it is the caller's."""
    if str(path) == STDIN:
        return sys.stdin.buffer.read(text.MAX_BYTES + 1)
    with path.open("rb") as file:
        return file.read(text.MAX_BYTES + 1)


def read_paths(paths: Sequence[Path]) -> Machine:
    """One assembled machine from several files.

    Raises:
        ConfigError: as `read_path`; or standard input is named twice, of which a second reading would find nothing.
    """
    if sum(str(path) == STDIN for path in paths) > 1:
        raise ConfigError("standard input (-) can be read once; leave one of them out", path=STDIN)
    return _assembled([read_path(path) for path in paths])


def read_texts(texts: Iterable[str]) -> Machine:
    """One assembled machine from texts; texts that nothing recognises are passed over."""
    return _assembled([machine for machine in map(read_text, texts) if machine is not None])


def read_live(root: Path = Path("/")) -> Machine:
    """This machine."""
    return assemble.assemble(plain(sysfs.read(root)))


def _assembled(machines: Sequence[Machine]) -> Machine:
    return assemble.assemble(merge([plain(machine) for machine in machines]))
