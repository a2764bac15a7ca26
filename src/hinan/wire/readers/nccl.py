"""NCCL and RCCL topology XML (`NCCL_TOPO_DUMP_FILE`, and the static files of cloud vendors).

Owns:      the attributes of <system>, <cpu>, <pci>, <gpu>, <net>.
Promises:  link_width "0" or an empty speed is unknown, although NCCL itself would assume values.
Relies on: NCCL merging the two ports of a switch into one <pci> (its topo.cc skips every second level), and printing
           the smaller capability of a link's two ends.
"""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element

from hinan.wire.facts.address import parse_address, split_address
from hinan.wire.facts.identity import coherent_evidence, gpu_name, role_of
from hinan.wire.facts.link import width_of
from hinan.wire.facts.model import Function, Link, Machine, NumaNode, Port, Role
from hinan.wire.facts.text import hex_number, number
from hinan.wire.readers.xml_tree import mask_bits, parse

_CPU_NVLINK_CLASS = "0x068001"  # NCCL's class of an NVLink whose other end is a CPU (POWER)


def read(text: str) -> Machine | None:
    """The machine of a <system> document; None when it is something else."""
    root, notes = parse(text)
    if root is None or root.tag != "system":
        return None
    functions: dict[str, Function] = {}
    nodes: list[NumaNode] = []
    nics: dict[str, str] = {}
    for cpu in root.iter("cpu"):
        node = _int(cpu.get("numaid"))
        if node is not None and all(known.index != node for known in nodes):
            nodes.append(NumaNode(index=node, cpus=mask_bits(cpu.get("affinity"))))
        _descend(cpu, node, functions, nics)
    first = root.find("cpu")
    return Machine(
        functions=functions,
        nodes=tuple(nodes),
        nic_names=nics,
        cpu_arch=first.get("arch") if first is not None else None,
        virtual=_virtual(functions),
        sources=("NCCL topology",),
        notes=notes,
    )


def _int(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,6}", text) else None


def _speed(text: str | None) -> float | None:
    match = re.match(r"\s*([0-9]+(?:[.,][0-9]+)?)\s*GT/s", text or "")
    return number(match[1]) if match else None


def _descend(cpu: Element, node: int | None, functions: dict[str, Function], nics: dict[str, str]) -> None:
    """Every <pci> below a <cpu>, depth first; without recursion, since a file may nest as deep as it likes."""
    stack: list[tuple[Element, str | None]] = [(pci, None) for pci in reversed(cpu.findall("pci"))]
    while stack:
        pci, parent = stack.pop()
        address = parse_address(pci.get("busid", ""))
        if address is None or address in functions:
            continue
        functions[address] = _function(pci, address, parent, node)
        for net in pci.findall("nic/net"):
            if net.get("name"):
                nics.setdefault(net.get("name", ""), address)
        stack.extend((child, address) for child in reversed(pci.findall("pci")))


def _function(pci: Element, address: str, parent: str | None, node: int | None) -> Function:
    code24 = hex_number(pci.get("class"))
    code = code24 >> 8 if code24 is not None else None
    vendor, device = hex_number(pci.get("vendor")), hex_number(pci.get("device"))
    vendor = None if vendor in (0, 0xFFFF) else vendor
    gpu = pci.find("gpu")
    role = Role.GPU if gpu is not None else role_of(code, vendor, device, None, bus=split_address(address)[1])
    width = width_of(_int(pci.get("link_width")))
    speed = _speed(pci.get("link_speed"))
    return Function(
        address=address,
        role=role,
        port=Port.SWITCH if role is Role.BRIDGE else Port.ENDPOINT,
        parent=parent,
        at_root=parent is None,
        class_code=code,
        vendor_id=vendor,
        device_id=device,
        name=gpu_name(vendor, device),
        numa_node=node,
        link=Link(cap_gt_s=speed or None, cap_width=width),
        gpu_index=_int(gpu.get("dev")) if gpu is not None else None,
        coherent_link=_coherent(gpu, vendor, device) if role is Role.GPU else None,
        nvlinks=_links(gpu) if gpu is not None else None,
        gpudirect=_gdr(pci),
    )


def _coherent(gpu: Element | None, vendor: int | None, device: int | None) -> str | None:
    if gpu is not None and gpu.find("c2c") is not None:
        return "NVLink-C2C (<c2c> in the topology)"
    if gpu is not None and any(link.get("tclass") == _CPU_NVLINK_CLASS for link in gpu.findall("nvlink")):
        return "NVLink between GPU and CPU (POWER)"
    return coherent_evidence(vendor, device)


def _links(gpu: Element) -> int | None:
    counts = [_int(link.get("count")) or 0 for tag in ("nvlink", "xgmi") for link in gpu.findall(tag)]
    return sum(counts) or None


def _gdr(pci: Element) -> bool | None:
    if pci.find("pci") is not None:
        return None
    flags = {item.get("gdr") for tag in ("gpu", "net") for item in pci.iter(tag)} & {"0", "1"}
    return flags == {"1"} if flags else None


def _virtual(functions: dict[str, Function]) -> tuple[str, ...]:
    """Signs of a tree that a hypervisor, not the hardware, drew."""
    signs = []
    if any(address.startswith("ffff:ff:") for address in functions):
        signs.append("bridges ffff:ff:* do not exist in hardware")
    return tuple(signs)
