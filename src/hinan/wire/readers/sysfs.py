"""The live machine: /sys and /proc below a root that can be injected.

Owns:      reading files. Config space beyond byte 64 (MPS, ACS) needs root; without it those stay unknown.
Promises:  reads only. A missing or unreadable file is an unknown value, never an error. The IOMMU is off only where no
           device is in a group; a group of which a copy lacks the type leaves the mode unknown.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from hinan.wire.facts.address import parse_address, split_address
from hinan.wire.facts.identity import coherent_evidence, gpu_name, role_of
from hinan.wire.facts.link import width_of
from hinan.wire.facts.model import Function, IommuMode, Link, Machine, NumaNode, Role, Sriov, Window
from hinan.wire.facts.text import clean, count, decode, hex_number, int_list, number
from hinan.wire.readers import config_space, iomem
from hinan.wire.readers.pages import node_blocks

_LEGACY_BYTES = 256  # what root sees of a device without PCI Express, its list of capabilities included
_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")  # a folder that holds what is at the root
_NODES = "sys/devices/system/node"
SILENT = "its config space reads all ones"
_GROUP_MODES = {"identity": IommuMode.PASSTHROUGH, "DMA": IommuMode.TRANSLATED, "DMA-FQ": IommuMode.TRANSLATED}


def read(root: Path = Path("/")) -> Machine:
    """What this machine tells about itself."""
    devices = root / "sys/bus/pci/devices"
    functions = dict(filter(None, (_function(entry) for entry in _listed(devices))))
    memory = iomem.read(_text(root / "proc/iomem") or "")
    cpuinfo = _text(root / "proc/cpuinfo") or ""
    model = re.search(r"^model name\s*: (.+)$", cpuinfo, re.M)
    power = re.search(r"^cpu\s*: (POWER[0-9].*)$", cpuinfo, re.M)
    product = (_text(root / "sys/class/dmi/id/product_name") or "").strip() or None
    modes = {f.iommu_mode for f in functions.values() if f.role is Role.GPU} - {None}
    grouped = any(os.path.lexists(devices / address / "iommu_group") for address in functions)
    return Machine(
        functions=functions,
        nodes=_nodes(root),
        node_set=int_list(_text(root / _NODES / "online") or ""),
        cpu_model=named[1] if (named := model or power) else None,
        cpu_arch="arm64" if "CPU implementer" in cpuinfo else "ppc64le" if power else "x86_64" if model else None,
        product=product,
        coherent_link=coherent_evidence(None, None, product),
        iommu_mode=(IommuMode.OFF if functions and not grouped else modes.pop() if len(modes) == 1 else None),
        iomem=memory.iomem if memory else (),
        virtual=("the CPU has the hypervisor flag",) if re.search(r"^flags\s*:.*\bhypervisor\b", cpuinfo, re.M) else (),
        nic_names=_nics(root, functions),
        sources=("sysfs",),
        notes=(memory.notes if memory else ()) + _notes(functions, devices),
    )


def _text(path: Path) -> str | None:
    try:
        return clean(decode(path.read_bytes()))
    except OSError:
        return None


def _int(path: Path) -> int | None:
    return count((_text(path) or "").strip())


def _speed(path: Path) -> float | None:
    match = re.match(r"([0-9]+(?:\.[0-9]+)?) GT/s", _text(path) or "")
    return number(match[1]) if match else None


def _function(entry: Path) -> tuple[str, Function] | None:
    address = parse_address(entry.name)
    if address is None:
        return None
    code24, vendor, device = (hex_number(_text(entry / name)) for name in ("class", "vendor", "device"))
    code = code24 >> 8 if code24 is not None else None
    place = _resolved(entry).parent.name
    above = parse_address(place)
    space = config_space.parse(_bytes(entry / "config"))
    role = role_of(code, vendor, device, None, bus=split_address(address)[1])
    group = entry / "iommu_group"
    width = width_of(_int(entry / "max_link_width"))
    now_width = width_of(_int(entry / "current_link_width"))
    physical = entry / "physfn"
    # Why not of a silent one: its link registers read as all ones too, which sysfs prints as 63 lanes.
    link = Link() if space.silent else Link(
        cap_gt_s=_speed(entry / "max_link_speed") if width else None, cap_width=width,
        now_gt_s=_speed(entry / "current_link_speed") if now_width else None, now_width=now_width,
    )  # fmt: skip
    return address, Function(
        address=address, role=role, port=space.port, parent=above,
        at_root=bool(_HOST_BRIDGE.fullmatch(place)) and role is not Role.GPU,  # a GPU's port is not told then (`ports`)
        class_code=code, vendor_id=vendor,
        device_id=device, name=gpu_name(vendor, device), numa_node=_int(entry / "numa_node"),
        link=link, off_bus=SILENT if space.silent else None,
        mps_bytes=space.mps_bytes, mps_cap_bytes=space.mps_cap_bytes, mrrs_bytes=space.mrrs_bytes, acs=space.acs,
        buses=space.buses if role is Role.BRIDGE else None, windows=space.windows if role is Role.BRIDGE else (),
        bars=_bars(entry / "resource", _OWN_BARS), sriov=_sriov(entry) if role is not Role.BRIDGE else None,
        subtractive=role is Role.BRIDGE and code24 == 0x060401,
        iommu_group=count(_target(group)),
        iommu_mode=_GROUP_MODES.get((_text(group / "type") or "").strip()),
        physical_function=parse_address(_target(physical) or ""),
        virtual_functions=_int(entry / "sriov_numvfs"),
        coherent_link=coherent_evidence(vendor, device) if role is Role.GPU else None,
    )  # fmt: skip


def _target(link: Path) -> str | None:
    """The name that a link leads to. Why not by following it: in a copy of /sys what it leads to may be missing."""
    try:
        return link.readlink().name
    except OSError:
        return None


def _listed(folder: Path) -> list[Path]:
    """What is in a folder, by name; nothing where it is missing, or may not be entered."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _resolved(path: Path) -> Path:
    """The file that a path leads to; the path itself where its links go round in a circle, or may not be followed."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


_OWN_BARS, _VF_BARS = slice(0, 6), slice(7, 13)
"""Lines of `resource` (pci.h of Linux: PCI_STD_RESOURCES, then the ROM, then PCI_IOV_RESOURCES)."""


def _sriov(entry: Path) -> Sriov | None:
    count, offset, stride = (_int(entry / f"sriov_{name}") for name in ("numvfs", "offset", "stride"))
    if count is None or offset is None or stride is None:
        return None
    bars = _bars(entry / "resource", _VF_BARS)
    return Sriov(enabled=count > 0, vfs=count, offset=offset, stride=stride, bars=bars, sized=True)


def _bars(path: Path, lines: slice) -> tuple[Window, ...]:
    """Memory BARs 0 to 5 of the `resource` file: start, end and flags (IORESOURCE_MEM 0x200, PREFETCH 0x2000)."""
    found = []
    for index, line in enumerate((_text(path) or "").splitlines()[lines]):
        words = [hex_number(word) for word in line.split()]
        if len(words) == 3 and all(word is not None for word in words):
            first, last, flags = (word or 0 for word in words)
            if flags & 0x200 and last > first > 0:
                found.append(Window(first, last, bool(flags & 0x2000), index))
    return tuple(found)


def _ranges(node: int, blocks: dict[int, int]) -> tuple[Window, ...]:
    """Physical ranges of a node from its memory blocks, neighbours joined."""
    size = blocks.get(-1, 0)
    joined: list[Window] = []
    for number_ in sorted(block for block, owner in blocks.items() if owner == node and block >= 0):
        first, last = number_ * size, (number_ + 1) * size - 1
        if joined and joined[-1].last + 1 == first:
            joined[-1] = Window(joined[-1].first, last)
        else:
            joined.append(Window(first, last))
    return tuple(joined)


def _nodes(root: Path) -> tuple[NumaNode, ...]:
    found = []
    blocks = node_blocks(root)
    for entry in _listed(root / _NODES):
        if not re.fullmatch(r"node[0-9]{1,5}", entry.name):
            continue
        index = int(entry.name[4:])
        info = dict(re.findall(r"(MemTotal|MemFree):\s+([0-9]{1,15}) kB", _text(entry / "meminfo") or ""))
        cpulist = _text(entry / "cpulist")
        distances = [value for word in (_text(entry / "distance") or "").split() if (value := count(word)) is not None]
        found.append((index, cpulist, info, distances))
    found.sort(key=lambda item: item[0])
    order = [item[0] for item in found]
    return tuple(
        NumaNode(
            index=index,
            cpus=None if cpulist is None else int_list(cpulist) or (),
            size_bytes=int(info["MemTotal"]) << 10 if "MemTotal" in info else None,
            free_bytes=int(info["MemFree"]) << 10 if "MemFree" in info else None,
            distances=dict(zip(order, distances, strict=True)) if len(distances) == len(order) else {},
            ranges=_ranges(index, blocks),
        )
        for index, cpulist, info, distances in found
    )


def _nics(root: Path, functions: dict[str, Function]) -> dict[str, str]:
    names = {}
    for kind in ("infiniband", "net"):
        for entry in _listed(root / "sys/class" / kind):
            place = _resolved(entry / "device")
            for each in (place, place.parent):  # a virtio device is a child of its function
                address = parse_address(each.name)
                if address in functions:
                    names[entry.name] = address
                    break
    return names


def _notes(functions: dict[str, Function], devices: Path) -> tuple[str, ...]:
    """Why no device on a path tells its MPS: the kernel showed 64 bytes only, or there is no capability that has it."""
    paths = [f for f in functions.values() if f.role in (Role.GPU, Role.NVME, Role.NIC)]
    if not paths or any(f.mps_bytes is not None for f in paths):
        return ()
    if all(len(_bytes(devices / f.address / "config")) >= _LEGACY_BYTES for f in paths):
        return ("MPS and ACS are unknown: no device has a PCI Express capability (usual for what a hypervisor emulates)",)
    return ("MPS and ACS are unknown: config space beyond byte 64 was not readable (it needs root)",)
