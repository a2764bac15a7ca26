"""The typed model of a machine: what every reader fills and everything else reads.

Owns:      the vocabulary. A `Function` is one PCI function, a `Gpu` what is known of a GPU (perhaps without an
           address), a `NumaNode` a piece of host RAM, a `Measurement` somebody's stopwatch.
Promises:  values are immutable and survive JSON unchanged. None means unknown; empty means known to be none only where
           the field says so.
Units:     bytes, bytes per second (decimal), GT/s per lane. Addresses are canonical (`address.py`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0)]
Rate = Annotated[float, msgspec.Meta(ge=0)]
Payload = Annotated[int, msgspec.Meta(ge=128, le=16384, multiple_of=128)]
Bus = Annotated[int, msgspec.Meta(ge=0, le=255)]
Bar = Annotated[int, msgspec.Meta(ge=0, le=5)]
Address = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$")]
"""What a value can be at all. Readers never make others; a capture file is refused with one (`capture.read`)."""


class Role(StrEnum):
    """What a function is to a checkpoint."""

    GPU = "gpu"
    NVME = "nvme"
    NIC = "nic"
    BRIDGE = "bridge"
    NVSWITCH = "nvswitch"
    OTHER = "other"


class Port(StrEnum):
    """Which end of which link a function is. A SWITCH is both ports of a switch in one line, as NCCL writes them."""

    ROOT = "root port"
    UP = "upstream port"
    DOWN = "downstream port"
    SWITCH = "switch"
    LEGACY = "legacy bridge"
    ENDPOINT = "endpoint"


class IommuMode(StrEnum):
    """What stands between a DMA address and a physical address."""

    OFF = "off"
    PASSTHROUGH = "passthrough"
    TRANSLATED = "translated"


class Link(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A function's own view of its link.

    cap: what it can do. now: what it does at the moment of reading (an idle GPU lowers it, so it is no verdict).
    now_bytes_per_s: after encoding, one direction, for sources that print a bandwidth and no speed (hwloc).
    both: what its two ends can do together, where a source that tells of one end only says less than that end (NCCL).
    suspect: the source calls it capability, but nothing else in the machine agrees (see suspects.py).
    busy: it was read while a copy ran, so that `now` is a verdict (see ends.py).
    """

    cap_gt_s: Rate | None = None
    cap_width: Count | None = None
    both_gt_s: Rate | None = None
    both_width: Count | None = None
    now_gt_s: Rate | None = None
    now_width: Count | None = None
    now_bytes_per_s: Rate | None = None
    suspect: bool = False
    busy: bool = False

    @property
    def doubtful(self) -> bool:
        """Is it suspect, and no present rate that was read while a copy ran? Such a rate is what the link does."""
        return self.suspect and not (self.busy and self.now_bytes_per_s is not None)


class Acs(msgspec.Struct, frozen=True, kw_only=True):
    """Access Control Services that are switched on (ACSCtl)."""

    source_validation: bool = False
    request_redirect: bool = False
    completion_redirect: bool = False
    upstream_forwarding: bool = False
    egress_control: bool = False
    direct_translated: bool = False

    @property
    def redirects_requests(self) -> bool:
        """Does a write to a peer go to the root? Completion redirect moves answers only."""
        return self.request_redirect or self.egress_control

    @property
    def redirects(self) -> bool:
        """Is peer to peer no way for the kernel? Linux counts RR, CR and EC (p2pdma.c); not SrcValid, not UF."""
        return self.request_redirect or self.completion_redirect or self.egress_control


class Window(msgspec.Struct, frozen=True):
    """Addresses, both ends included, that a bridge passes down or a BAR claims."""

    first: Count
    last: Count
    prefetchable: bool = False
    bar: Bar | None = None

    def holds(self, address: int) -> bool:
        """Is `address` inside?"""
        return self.first <= address <= self.last

    @property
    def size_bytes(self) -> int:
        """Length of the range."""
        return self.last - self.first + 1


class Buses(msgspec.Struct, frozen=True):
    """Bus numbers of a bridge."""

    primary: Bus
    secondary: Bus
    subordinate: Bus


class Sriov(msgspec.Struct, frozen=True, kw_only=True):
    """The SR-IOV capability of a physical function.

    VF number n (from 1) has the requester ID of the physical function + offset + (n - 1) x stride. bars: of all VFs
    together. sized: False where the source tells where they begin and not how long they are; they then hold a page per VF.
    """

    enabled: bool
    vfs: Count
    offset: Count
    stride: Count
    bars: tuple[Window, ...] = ()
    sized: bool = False


class Function(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One PCI function."""

    address: Address
    role: Role = Role.OTHER
    port: Port | None = None
    parent: Address | None = None  # the next function towards the root complex
    gap_above: bool = False  # Invariant: True only if functions between this one and `parent` are missing in the source
    at_root: bool = False  # nothing but the root complex is above
    class_code: Count | None = None  # 16 bits, 0x0302 is a 3D controller
    vendor_id: Count | None = None
    device_id: Count | None = None
    name: str | None = None
    numa_node: Count | None = None
    numa_affinity: tuple[Count, ...] = ()  # equally near nodes, where the source tells several
    link: Link = Link()
    mps_bytes: Payload | None = None  # DevCtl: the size in use
    mps_cap_bytes: Payload | None = None  # DevCap: the size possible
    mrrs_bytes: Payload | None = None
    acs: Acs | None = None
    buses: Buses | None = None
    windows: tuple[Window, ...] = ()
    bars: tuple[Window, ...] = ()
    iommu_group: Count | None = None
    iommu_mode: IommuMode | None = None
    physical_function: Address | None = None  # set on an SR-IOV virtual function
    virtual_functions: Count | None = None
    sriov: Sriov | None = None
    subtractive: bool = False  # a bridge that takes what nobody else on its bus claims
    gpu_index: Count | None = None
    smi_index: Count | None = None  # nvidia-smi's or rocm-smi's number, where a source has it from there
    coherent_link: str | None = None  # the source says that this GPU reaches RAM by NVLink
    nvlinks: Count | None = None  # NVLinks (or XGMI links) that the source counts on this GPU
    gpudirect: bool | None = None  # NCCL's gdr attribute: the driver offers GPUDirect RDMA
    off_bus: str | None = None  # evidence that it does not answer on the bus; None: nothing says so
    disputed: dict[str, tuple[str, ...]] = {}  # field -> what sources said of it; it is None, and no source fills it


class Gpu(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A GPU as a rank sees it. `relations` are the cells of `nvidia-smi topo -m` (PIX, PXB, PHB, NODE, SYS, NV18)."""

    index: Count
    address: Address | None = None
    vendor_id: Count | None = None  # whose tools count it
    smi_index: Count | None = None  # as of a function
    name: str | None = None
    numa_node: Count | None = None
    numa_affinity: tuple[Count, ...] = ()
    memory_node: Count | None = None  # `GPU NUMA ID`: the GPU's own memory as a node; it has no CPUs
    relations: dict[str, str] = {}
    off_bus: str | None = None  # as of a function; or no bus source lists a GPU that another source names
    disputed: dict[str, tuple[str, ...]] = {}  # as of a function


class NumaNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A NUMA node. `cpus` None: not told; (): a node of memory only."""

    index: Count
    cpus: tuple[Count, ...] | None = None
    size_bytes: Count | None = None
    free_bytes: Count | None = None
    distances: dict[Count, Count] = {}
    disputed: dict[str, tuple[str, ...]] = {}  # as of a function
    ranges: tuple[Window, ...] = ()  # physical addresses that lie on this node, where a source tells them


class Measurement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A bandwidth that somebody measured.

    what: d2h, h2d, gds_write, gds_read, cpu_write, cpu_read; d2h_all, h2d_all: of one GPU while others copy too.
    at_once: how many GPUs copied in that run, itself included. run: which run that was, by what it printed; only figures of
    one run may be added.
    """

    what: str
    bytes_per_s: Rate
    source: str
    gpu_index: Count | None = None
    gpu_address: Address | None = None
    gpu_name: str | None = None
    vendor_id: Count | None = None  # whose GPUs the tool that measured counts
    numa_node: Count | None = None
    engine: str | None = None  # ce: copy engine, sm: a kernel
    size_bytes: Count | None = None
    at_once: Count | None = None
    run: str | None = None


class IomemRange(msgspec.Struct, frozen=True):
    """A line of /proc/iomem."""

    first: Count
    last: Count
    name: str


class Gds(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What gdscheck says: capability, not proof."""

    nvme_supported: bool | None = None
    compat_mode: bool | None = None
    iommu_off: bool | None = None
    gpus_supported: dict[int, bool] = {}
    bar1_bytes: dict[int, int] = {}


class Machine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """Everything one or several sources told. `dict`: for `memo`, and no part of the value."""

    functions: dict[Address, Function] = {}
    gpus: tuple[Gpu, ...] = ()
    nodes: tuple[NumaNode, ...] = ()
    node_set: tuple[Count, ...] | None = (
        None  # which nodes there are, where a source says so; `nodes` may lack some of them
    )
    cpu_arch: str | None = None
    cpu_model: str | None = None
    product: str | None = None
    packages: Count | None = None
    iommu_mode: IommuMode | None = None  # off: for all; else that of the GPUs (`iommu_mode.iommu_before`)
    coherent_link: str | None = None  # evidence that GPUs reach RAM by NVLink, not by PCIe alone
    coherent_bytes_per_s: Rate | None = None
    acs_unplaced: tuple[Acs, ...] = ()  # ACSCtl lines without an address
    iomem: tuple[IomemRange, ...] = ()
    gds: Gds | None = None
    measurements: tuple[Measurement, ...] = ()
    nic_names: dict[str, Address] = {}
    virtual: tuple[str, ...] = ()  # evidence that a hypervisor tells the tree
    disputed: dict[str, tuple[str, ...]] = {}  # as of a function
    mixed: str | None = None  # that the sources are, or may be, of different machines, and why
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def evacuating(self) -> tuple[str, ...]:
        """Addresses of the GPUs that copy when all evacuate at once, over whatever link."""
        return tuple(gpu.address for gpu in self.gpus if gpu.address and not gpu.off_bus)

    @property
    def has_iommu_groups(self) -> bool:
        """Does any function tell its IOMMU group? Then an IOMMU is on, in whatever mode."""
        return any(f.iommu_group is not None for f in self.functions.values())

    def children(self, address: str) -> tuple[Function, ...]:
        """Functions directly below, in address order."""
        return tuple(f for _, f in sorted(self.functions.items()) if f.parent == address)
