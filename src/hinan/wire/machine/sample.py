"""A made-up HGX H100 server, so that every verb works on a laptop: `hinan wire --sample`.

Owns:      the machine. It was written from published facts, not captured: 8 H100 SXM5 (10de:2330, 80 GB, gen 5 x16),
           two sockets, one gen 5 switch per GPU with a gen 4 x4 drive and a 400 Gb/s NIC behind the same x16 uplink.
Promises:  the addresses are ours; the arithmetic is that of a real server. MPS 256, ACS off, IOMMU in pass-through.
"""

from __future__ import annotations

from hinan.wire.facts.model import Acs, Buses, Function, IomemRange, IommuMode, Link, Machine, NumaNode, Port, Role, Window
from hinan.wire.machine.assemble import assemble

_GIB, _TIB = 1 << 30, 1 << 40
_SWITCH = "PCIe gen 5 switch (made up)"


def machine() -> Machine:
    """The sample machine, assembled."""
    functions: dict[str, Function] = {}
    for index in range(8):
        for function in _branch(index):
            functions[function.address] = function
    nodes = tuple(
        NumaNode(
            index=socket,
            cpus=tuple(range(56 * socket, 56 * socket + 56)),
            size_bytes=1024 * _GIB,
            free_bytes=960 * _GIB,
            distances={0: 10 if socket == 0 else 21, 1: 21 if socket == 0 else 10},
            ranges=(Window(socket * _TIB, (socket + 1) * _TIB - 1),),
        )
        for socket in (0, 1)
    )
    return assemble(
        Machine(
            functions=functions,
            nodes=nodes,
            node_set=tuple(node.index for node in nodes),
            packages=2,
            cpu_arch="x86_64",
            cpu_model="two sockets of 56 cores (made up)",
            product="HGX H100 sample (made up)",
            iommu_mode=IommuMode.PASSTHROUGH,
            iomem=_iomem(functions),
            nic_names={f"mlx5_{index}": f"0000:{0x14 + 0x10 * index:02x}:00.0" for index in range(8)},
            sources=("sample machine",),
        )
    )


def _branch(index: int) -> list[Function]:
    """Root port, switch and devices of one GPU: buses 10+16n to 13+16n, memory from 0x200000000000 + n x 2^38."""
    bus, node = 0x10 + 0x10 * index, index // 4
    base, low = 0x2000_0000_0000 + (index << 38), 0x9000_0000 + (index << 24)
    windows = (Window(low, low + 0x4F_FFFF), Window(base, base + 160 * _GIB - 1, True))
    gen5, gen4x4 = _link(32.0, 16), _link(16.0, 4)
    root = _bridge(f"0000:{bus - 1:02x}:01.0", Port.ROOT, Buses(bus - 1, bus, bus + 4), gen5, node, windows, "root port")
    up = _bridge(f"0000:{bus:02x}:00.0", Port.UP, Buses(bus, bus + 1, bus + 4), gen5, node, windows, _SWITCH)
    places = (
        (0, gen5, Window(base, base + 128 * _GIB + 0x3FF_FFFF, True)),
        (1, _link(32.0, 4, now=16.0), Window(low, low + 0xF_FFFF)),
        (2, gen5, Window(base + 144 * _GIB, base + 144 * _GIB + 0x3FF_FFFF, True)),
    )
    ports = [
        _bridge(
            f"0000:{bus + 1:02x}:{n:02x}.0",
            Port.DOWN,
            Buses(bus + 1, bus + 2 + n, bus + 2 + n),
            link,
            node,
            (window,),
            _SWITCH,
        )
        for n, link, window in places
    ]
    # Bus numbers: GPU +2, drive +3, NIC +4, in the order of the ports.
    gpu = _device(
        f"0000:{bus + 2:02x}:00.0", Role.GPU, 0x0302, 0x10DE, 0x2330, "NVIDIA H100 SXM5 80GB", gen5, node, index,
        (Window(base, base + 128 * _GIB - 1, True, 2),
         Window(base + 128 * _GIB, base + 128 * _GIB + 0x1FF_FFFF, True, 4)),
    )  # fmt: skip
    drive = _device(
        f"0000:{bus + 3:02x}:00.0", Role.NVME, 0x0108, 0x1344, 0x51C3, "NVMe drive, gen 4 x4", gen4x4, node, None,
        (Window(low, low + 0x3FFF, False, 0),),
    )  # fmt: skip
    nic = _device(
        f"0000:{bus + 4:02x}:00.0", Role.NIC, 0x0207, 0x15B3, 0x1021, "ConnectX-7, 400 Gb/s", gen5, node, None,
        (Window(base + 144 * _GIB, base + 144 * _GIB + 0x1FF_FFFF, True, 0),),
    )  # fmt: skip
    return [root, up, *ports, gpu, drive, nic]


def _link(gt_s: float, width: int, now: float | None = None) -> Link:
    return Link(cap_gt_s=gt_s, cap_width=width, now_gt_s=now or gt_s, now_width=width)


def _bridge(
    address: str, port: Port, buses: Buses, link: Link, node: int, windows: tuple[Window, ...], name: str
) -> Function:
    return Function(
        address=address, role=Role.BRIDGE, port=port, at_root=port is Port.ROOT, class_code=0x0604, name=name,
        numa_node=node, link=link, mps_bytes=256, mps_cap_bytes=512, mrrs_bytes=512,
        acs=None if port is Port.UP else Acs(), buses=buses, windows=windows,
    )  # fmt: skip


def _device(
    address: str, role: Role, code: int, vendor: int, device: int, name: str, link: Link, node: int, index: int | None,
    bars: tuple[Window, ...],
) -> Function:  # fmt: skip
    return Function(
        address=address, role=role, port=Port.ENDPOINT, class_code=code, vendor_id=vendor, device_id=device, name=name,
        numa_node=node, link=link, mps_bytes=256, mps_cap_bytes=256, mrrs_bytes=4096, bars=bars, gpu_index=index,
        iommu_group=int(address[5:7], 16), iommu_mode=IommuMode.PASSTHROUGH,
        nvlinks=18 if role is Role.GPU else None, gpudirect=True if role is not Role.NVME else None,
    )  # fmt: skip


def _iomem(functions: dict[str, Function]) -> tuple[IomemRange, ...]:
    """RAM below 2 TiB (the upper half is node 1); windows and BARs as /proc/iomem lists them."""
    ranges = [
        IomemRange(0x1000, 0x9FFFF, "System RAM"),
        IomemRange(0x10_0000, 0x7FFF_FFFF, "System RAM"),
        IomemRange(0x1_0000_0000, 2 * _TIB - 1, "System RAM"),
    ]
    for address, function in sorted(functions.items()):
        if function.buses is not None:
            ranges += [
                IomemRange(w.first, w.last, f"PCI Bus 0000:{function.buses.secondary:02x}") for w in function.windows
            ]
        ranges += [IomemRange(w.first, w.last, address) for w in function.bars]
    return tuple(ranges)
