"""`nvidia-smi topo -m`: which GPU is near which NIC and which NUMA node.

Owns:      the columns of the matrix. Cells are separated by tabs, by spaces, or by both; old versions have no NUMA column.
Promises:  NUMA affinity is taken only from a row with every column; a list ("0,3-9") stays a list.
Never:     turns a label into a bandwidth: PHB does not tell CPU lanes from chipset lanes, and on Grace everything is
           SYS.
"""

from __future__ import annotations

import re

from hinan.wire.facts.identity import NVIDIA
from hinan.wire.facts.model import Gpu, Machine
from hinan.wire.facts.text import int_list, whole_lines

_COLUMNS = re.compile(r"CPU Affinity|NUMA Affinity|GPU NUMA ID|\S+")
_NAME = re.compile(r"GPU[0-9]{1,3}")
_LABEL = re.compile(r"X|SYS|NODE|PHB|PXB|PIX|NV[0-9]{1,2}|OK|NS|N/A")
_LEGEND = re.compile(r"^\s*(NIC[0-9]+): ([A-Za-z0-9_.:-]+)\s*$")


def read(text: str) -> Machine | None:
    """GPUs with relations and nodes; None when there is no matrix."""
    lines, last = whole_lines(text)
    header: list[str] | None = None
    rows: list[tuple[list[str], bool]] = []
    names: dict[str, str] = {}
    for line, whole in [(line, True) for line in lines] + ([(last, False)] if last else []):
        cells = line.split()  # no cell has a space inside; header cells do
        if whole and (legend := _LEGEND.match(line)):
            names[legend[1]] = legend[2]
        elif header is None:
            if cells and _NAME.fullmatch(cells[0]) and "CPU Affinity" in line:
                header = _COLUMNS.findall(line)
        elif cells and _NAME.fullmatch(cells[0]) and any(_LABEL.fullmatch(cell) for cell in cells[1:]):
            rows.append((cells, whole))
    if header is None:
        return None
    gpus = _gpus(header, rows, names)
    return Machine(gpus=gpus, sources=("nvidia-smi topo -m",)) if gpus else None


def _gpus(header: list[str], rows: list[tuple[list[str], bool]], names: dict[str, str]) -> tuple[Gpu, ...]:
    trusted = {cells[-1] for cells, whole in rows if whole} | {"N/A"}
    found: dict[int, Gpu] = {}
    for cells, whole in rows:
        complete = len(cells) == len(header) + 1 and (whole or cells[-1] in trusted)
        readable = cells[1:] if whole or complete else cells[1:-1]  # the last cell of a cut line may be half a label
        named = dict(zip(header, readable, strict=False))
        relations = {
            names.get(other, other): label
            for other, label in named.items()
            if re.fullmatch(r"(?:GPU|NIC)[0-9]+|[a-z]\w*_?[0-9]+", other) and _LABEL.fullmatch(label) and label != "X"
        }
        affinity = int_list(named.get("NUMA Affinity", "")) if complete else None
        memory = int_list(named.get("GPU NUMA ID", "")) if complete else None
        index = int(cells[0][3:])
        found.setdefault(
            index,
            Gpu(
                index=index,
                vendor_id=NVIDIA,
                numa_node=affinity[0] if affinity else None,
                numa_affinity=affinity or (),
                memory_node=memory[0] if memory else None,
                relations=relations,
            ),
        )
    return tuple(found[index] for index in sorted(found))
