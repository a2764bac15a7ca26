"""Presets: what a node of a known machine can do, each number with its source.

Owns:      the table of machines.
Promises:  decimal bytes and bytes/s, one direction; every field of every machine has an origin.
Never:     guesses silently: a number nobody published carries `guessed` and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hinan.core.errors import ConfigError
from hinan.plan.model.checks import not_negative, positive
from hinan.plan.model.origin import Origin, default, guessed, measured

GB, TB = 10**9, 10**12


@dataclass(frozen=True)
class Machine:
    """One node. Bandwidths are one direction, decimal bytes per second."""

    name: str
    gpus_per_node: int
    hbm_bytes: float
    """HBM of one GPU."""
    ram_bytes: float
    """Host RAM of the node that evacuation may use."""
    d2h_bytes_per_s: float
    """HBM to pinned host RAM, one GPU alone."""
    numa_nodes: int
    dram_bytes_per_s: float
    """All memory traffic of the node, reads and writes together: channels x rate."""
    nvme_write_bytes_per_s: float
    """0 where the node has no local NVMe worth using."""
    nvme_read_bytes_per_s: float
    nic_bytes_per_s: float
    """All NICs of the node."""
    gds_bytes_per_s: float
    """HBM to NVMe by GPUDirect Storage, whole node; 0 where it is not there."""
    usd_per_gpu_hour: float
    origins: Mapping[str, Origin]

    def __post_init__(self) -> None:
        positive(gpus_per_node=self.gpus_per_node, hbm_bytes=self.hbm_bytes, ram_bytes=self.ram_bytes)
        positive(d2h_bytes_per_s=self.d2h_bytes_per_s, dram_bytes_per_s=self.dram_bytes_per_s)
        positive(numa_nodes=self.numa_nodes, nic_bytes_per_s=self.nic_bytes_per_s)
        not_negative(nvme_write_bytes_per_s=self.nvme_write_bytes_per_s, gds_bytes_per_s=self.gds_bytes_per_s)
        not_negative(nvme_read_bytes_per_s=self.nvme_read_bytes_per_s, usd_per_gpu_hour=self.usd_per_gpu_hour)

    def with_given(self, values: Mapping[str, float], origins: Mapping[str, Origin]) -> Machine:
        """The machine with some numbers replaced by those that were given or measured."""
        whole = {k: int(v) if k in ("gpus_per_node", "numa_nodes") else v for k, v in values.items()}
        return replace(self, origins={**self.origins, **origins}, **whole)  # type: ignore[arg-type]


_PRICE = guessed("rental prices vary between 2 and 12 USD; put in your own with --usd-per-gpu-hour")
_PAGE = "vendor data sheet"


def _origins(d2h: Origin, nvme: Origin, dram: Origin, nic: Origin, ram: Origin | None = None) -> dict[str, Origin]:
    sheet = default(_PAGE)
    return {
        "gpus_per_node": sheet,
        "hbm_bytes": sheet,
        "ram_bytes": ram or sheet,
        "d2h_bytes_per_s": d2h,
        "numa_nodes": sheet,
        "dram_bytes_per_s": dram,
        "nvme_write_bytes_per_s": nvme,
        "nvme_read_bytes_per_s": guessed("as fast as writing, or faster; measure it, and give it with --nvme-read"),
        "nic_bytes_per_s": nic,
        "gds_bytes_per_s": guessed("no more than the drives write; only driver counters prove GDS"),
        "usd_per_gpu_hour": _PRICE,
    }


_H100_D2H = measured("Azure/cluster-health-monitor, nvbandwidth_host_report.json: 55.12 GB/s, H100, PCIe gen5 x16")
_H200_D2H = measured("stas00/ml-engineering, network/README.md: 55.06 GB/s, 8 x H200, PCIe gen5 x16")
_SPR_DRAM = default("2 sockets x 8 channels DDR5-4800 = 614 GB/s peak, 80 % reachable assumed")
_NVME_8 = guessed("8 gen4 drives write 25 GB/s together; sequential, empty drives")

MACHINES: Mapping[str, Machine] = {
    machine.name: machine
    for machine in (
        Machine(
            "dgx-h100",
            8,
            80 * GB,
            2 * TB,
            55.12 * GB,
            2,
            490 * GB,
            25 * GB,
            50 * GB,
            400 * GB,
            20 * GB,
            4.0,
            _origins(_H100_D2H, _NVME_8, _SPR_DRAM, default("NVIDIA DGX H100 data sheet: 8 x 400 Gb/s")),
        ),
        Machine(
            "hgx-h200",
            8,
            141 * GB,
            2 * TB,
            55.06 * GB,
            2,
            490 * GB,
            25 * GB,
            50 * GB,
            400 * GB,
            20 * GB,
            4.5,
            _origins(_H200_D2H, _NVME_8, _SPR_DRAM, default("HGX H200 reference: 8 x 400 Gb/s")),
        ),
        Machine(
            "gb200",
            4,
            186 * GB,
            960 * GB,
            330 * GB,
            2,
            820 * GB,
            14 * GB,
            28 * GB,
            200 * GB,
            0.0,
            8.0,
            _origins(
                measured("pytorch/torchtitan PR 3519: about 330 GB/s over NVLink-C2C, local NUMA node (author's figure)"),
                guessed("a compute tray with 2-4 gen5 drives"),
                default("2 Grace x 512 GB/s LPDDR5X peak, 80 % reachable assumed"),
                default("GB200 NVL72 compute tray: 4 x 400 Gb/s"),
            ),
        ),
        Machine(
            "mi300x",
            8,
            192 * GB,
            2 * TB,
            52 * GB,
            2,
            490 * GB,
            25 * GB,
            50 * GB,
            400 * GB,
            0.0,
            3.5,
            _origins(
                guessed("PCIe gen5 x16 ceiling 57.6 GB/s times the 91-97 % band seen on other GPUs"),
                _NVME_8,
                _SPR_DRAM,
                default("8 x 400 Gb/s platform"),
            ),
        ),
        Machine(
            "small-cloud",
            8,
            40 * GB,
            1.1 * TB,
            24 * GB,
            2,
            300 * GB,
            4 * GB,
            8 * GB,
            50 * GB,
            0.0,
            2.0,
            _origins(
                measured("deepspeedai/DeepSpeed issue 1576: 24 GB/s with NUMA affinity on an A100 cloud node (PCIe gen4)"),
                guessed("cloud nodes ship a few local SSDs"),
                default("2 sockets x 8 channels DDR4-3200 = 410 GB/s peak, 73 % reachable assumed"),
                default("4 x 100 Gb/s"),
                guessed("common size of 8-GPU cloud nodes"),
            ),
        ),
    )
}


def machine(name: str) -> Machine:
    """A preset by name.

    Raises:
        ConfigError: unknown; the known names are listed.
    """
    if name not in MACHINES:
        raise ConfigError(f"no preset {name!r}; known: {', '.join(MACHINES)}", name=name)
    return MACHINES[name]
