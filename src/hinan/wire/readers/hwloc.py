"""hwloc XML (`lstopo --of xml`), versions 1 to 3: plain XML, and no library that reads it runs on Python 3.11.

Owns:      the attributes of Package, NUMANode, Bridge, PCIDev and OSDev objects, and the distance matrices.
Promises:  pci_link_speed is kept as what it is: the *current* bandwidth of the link, not its capability. 0 is unknown.
Relies on: a bridge or device being nested in the object it is local to, whose nodeset says the NUMA node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element

import msgspec

from hinan.wire.facts.address import parse_address, split_address
from hinan.wire.facts.families import max_gt_s_of_gpu
from hinan.wire.facts.identity import coherent_evidence, gpu_name, role_of
from hinan.wire.facts.link import speeds_of_raw
from hinan.wire.facts.model import Buses, Function, Link, Machine, NumaNode, Role
from hinan.wire.facts.text import count, number
from hinan.wire.readers.xml_tree import mask_bits, parse

_TYPE = re.compile(r"(?P<cls>[0-9a-f]{4})(?:[0-9a-f]{2})? \[(?P<vendor>[0-9a-f]{4}):(?P<device>[0-9a-f]{4})\]", re.I)
_BUSES = re.compile(r"[0-9a-f]{4,8}:\[(?P<sec>[0-9a-f]{2})-(?P<sub>[0-9a-f]{2})\]", re.I)


@dataclass
class _Found:
    functions: dict[str, Function] = field(default_factory=dict)
    nodes: dict[int, NumaNode] = field(default_factory=dict)
    nics: dict[str, str] = field(default_factory=dict)
    gp_index: dict[str, str] = field(default_factory=dict)  # "OSDev:332" -> PCI address, "Package:3" -> "package"
    infos: dict[str, str] = field(default_factory=dict)
    packages: int = 0


def read(text: str) -> Machine | None:
    """The machine of a <topology> document; None when it is something else."""
    root, notes = parse(text)
    if root is None or root.tag != "topology":
        return None
    found = _Found()
    _descend(root, found)
    nodes = _distances(root, found.nodes)
    product = found.infos.get("DMIProductName") or found.infos.get("PlatformModel")
    model = found.infos.get("CPUModel")
    link, bandwidth = _nvlink_to_cpu(root, found)
    node_set = _node_set(root)
    return Machine(
        functions=found.functions,
        nodes=tuple(nodes[index] for index in sorted(nodes)),
        node_set=node_set,
        packages=found.packages or None if set(node_set or ()) <= nodes.keys() else None,  # a cut file lacks some of them
        cpu_model=model,
        product=product,
        nic_names=found.nics,
        coherent_link=link or coherent_evidence(None, None, product, model),
        coherent_bytes_per_s=bandwidth,
        sources=("hwloc XML",),
        notes=notes,
    )


def _node_set(root: Element) -> tuple[int, ...] | None:
    """Which nodes there are, as the machine's object says, also those that the program was not allowed to use."""
    for item in root.findall("object"):
        if item.get("type") == "Machine":
            return mask_bits(item.get("complete_nodeset")) or mask_bits(item.get("nodeset"))
    return None


def _descend(root: Element, found: _Found) -> None:
    """Every object, depth first, in the file's order; without recursion, since a file may nest as deep as it likes."""
    stack: list[tuple[Element, str | None, tuple[int, ...]]] = [
        (item, None, ()) for item in reversed(root.findall("object"))
    ]
    while stack:
        item, parent, near = stack.pop()
        below, near = _object(item, parent, near, found)
        stack.extend((child, below, near) for child in reversed(item.findall("object")))


def _object(item: Element, parent: str | None, near: tuple[int, ...], found: _Found) -> tuple[str | None, tuple[int, ...]]:
    """One object; the PCI function and the nodes that its children are below."""
    kind = item.get("type", "")
    bits = mask_bits(item.get("nodeset"))
    if bits is not None:
        near = bits
    if kind in ("Package", "Socket"):
        found.packages += 1
    if kind == "NUMANode":
        _numa_node(item, found)
    found.gp_index[f"{kind}:{item.get('gp_index')}"] = parent or ("package" if kind in ("Package", "Socket") else "")
    for info in item.findall("info"):
        found.infos.setdefault(info.get("name", ""), info.get("value", ""))
    address = parse_address(item.get("pci_busid", ""))
    if address is not None and address not in found.functions:
        found.functions[address] = _function(item, address, parent, near)
    if kind == "OSDev" and parent is not None:
        _os_device(item, parent, found)
    return address or parent, near


def _numa_node(item: Element, found: _Found) -> None:
    index = count(item.get("os_index"), digits=5)
    if index is None:
        return
    found.nodes[index] = NumaNode(
        index=index,
        cpus=mask_bits(item.get("cpuset")),
        size_bytes=count(item.get("local_memory"), digits=18),
    )


def _function(item: Element, address: str, parent: str | None, near: tuple[int, ...]) -> Function:
    kinds = _TYPE.match(item.get("pci_type", ""))
    code = int(kinds["cls"], 16) if kinds else None
    vendor = int(kinds["vendor"], 16) if kinds else None
    device = int(kinds["device"], 16) if kinds else None
    names = {info.get("name"): info.get("value") for info in item.findall("info")}
    name = item.get("name") or names.get("PCIDevice") or gpu_name(vendor, device)
    bridge = item.get("type") == "Bridge"
    role = Role.BRIDGE if bridge else role_of(code, vendor, device, name, bus=split_address(address)[1])
    if item.get("subtype") == "NVSwitch":
        role = Role.NVSWITCH
    raw = number(item.get("pci_link_speed"))
    buses = _BUSES.fullmatch(item.get("bridge_pci", ""))
    return Function(
        address=address,
        role=role,
        parent=parent,
        at_root=parent is None and role is not Role.GPU,  # a GPU's port is not told then (`ports`)
        class_code=code,
        vendor_id=vendor,
        device_id=device,
        name=name,
        numa_node=near[0] if len(near) == 1 else None,
        numa_affinity=near if len(near) > 1 else (),
        link=_link(raw * 1e9 if raw else None, max_gt_s_of_gpu(vendor, device) if role is Role.GPU else None),
        buses=Buses(split_address(address)[1], int(buses["sec"], 16), int(buses["sub"], 16)) if buses else None,
        coherent_link=coherent_evidence(vendor, device, name) if role is Role.GPU else None,
    )


def _link(raw_bytes_per_s: float | None, limit_gt_s: float | None) -> Link:
    """The current link. Speed and width only where one pair alone fits the bandwidth and the GPU's generation."""
    if raw_bytes_per_s is None:
        return Link()
    pairs = speeds_of_raw(raw_bytes_per_s)
    if limit_gt_s is not None:
        pairs = tuple((speed, width) for speed, width in pairs if speed <= limit_gt_s and width <= 16)
    speed, width = pairs[0] if len(pairs) == 1 else (None, None)
    return Link(now_gt_s=speed, now_width=width, now_bytes_per_s=raw_bytes_per_s)


def _os_device(item: Element, parent: str, found: _Found) -> None:
    name = item.get("name", "")
    function = found.functions[parent]
    infos = {info.get("name"): info.get("value") for info in item.findall("info")}
    index = re.fullmatch(r"(nvml|cuda|rsmi)([0-9]{1,3})", name)
    if index is not None and function.role is Role.GPU:
        named = msgspec.structs.replace(function, name=infos.get("GPUModel") or function.name)
        found.functions[parent] = _numbered(named, int(index[2]), by_smi=index[1] != "cuda")
    if function.role is Role.NIC and name:
        found.nics.setdefault(name, parent)


def _numbered(function: Function, index: int, *, by_smi: bool) -> Function:
    """With the number of nvidia-smi or rocm-smi; with CUDA's, which a program may have chosen, where neither is told."""
    smi = index if by_smi else function.smi_index
    return msgspec.structs.replace(
        function, gpu_index=index if smi is None else smi, smi_index=smi,
        coherent_link=function.coherent_link or coherent_evidence(function.vendor_id, function.device_id, function.name),
    )  # fmt: skip


def _values(item: Element) -> list[float]:
    joined = " ".join(part.text or "" for part in item.findall("u64values"))
    return [value for value in (number(word) for word in joined.split()) if value is not None]


def _distances(root: Element, nodes: dict[int, NumaNode]) -> dict[int, NumaNode]:
    """Latencies between NUMA nodes, where their matrix is whole."""
    for order, values in (*_matrices_2(root), *_matrices_1(root)):
        if len(values) != len(order) ** 2 or not order:
            continue
        for row, index in enumerate(order):
            if index in nodes:
                line = {other: round(values[row * len(order) + column]) for column, other in enumerate(order)}
                nodes[index] = msgspec.structs.replace(nodes[index], distances=line)
    return nodes


_Matrix = tuple[list[int], list[float]]
"""Nodes in the order of rows and columns, and the values row by row."""


def _matrices_2(root: Element) -> Iterator[_Matrix]:
    """NUMALatency of hwloc 2 and 3."""
    for item in root.findall("distances2"):
        if item.get("type") == "NUMANode" and "Latency" in (item.get("name") or "Latency"):
            words = [word for part in item.findall("indexes") for word in (part.text or "").split()]
            order = [index for index in (count(word, digits=5) for word in words) if index is not None]
            yield order, _values(item)


def _matrices_1(root: Element) -> Iterator[_Matrix]:
    """hwloc 1: `<distances nbobjs relative_depth latency_base>` in an object, about those that many levels below it.

    Values are in units of latency_base, 10 for what the firmware tells (hwloc's tests/hwloc/xml/16amd64-4distances.v1.xml).
    """
    for item in root.iter("object"):
        for matrix in item.findall("distances"):
            depth, base = matrix.get("relative_depth", ""), number(matrix.get("latency_base"))
            values = [number(cell.get("value")) for cell in matrix.findall("latency")]
            if not re.fullmatch(r"[0-9]{1,2}", depth) or base is None or None in values:
                continue
            about = [item]
            for _ in range(int(depth)):
                about = [child for parent in about for child in parent.findall("object")]
            order = [each.get("os_index", "") for each in about if each.get("type") == "NUMANode"]
            if matrix.get("nbobjs") == str(len(order)) and all(re.fullmatch(r"[0-9]{1,6}", index) for index in order):
                yield [int(index) for index in order], [base * value for value in values if value is not None]


def _nvlink_to_cpu(root: Element, found: _Found) -> tuple[str | None, float | None]:
    """Evidence of NVLink between a GPU and a package (POWER), and its bandwidth [bytes/s]; hwloc reports MB/s."""
    for item in root.findall("distances2hetero"):
        order = [word for part in item.findall("indexes") for word in (part.text or "").split()]
        values = _values(item)
        if "NVLink" not in (item.get("name") or "") or len(values) != len(order) ** 2:
            continue
        for row, left in enumerate(order):
            for column, right in enumerate(order):
                value = values[row * len(order) + column]
                if left.startswith("OSDev:") and right.startswith("Package:") and value > 0:
                    return "NVLink between GPU and CPU (NVLinkBandwidth in the XML)", value * 1e6
    return None, None
