"""RAM, ring or GDS: where an evacuation lands, decided by the RAM sum, the stall and the DRAM traffic.

Owns:      the comparison and the break-even lines between the ways.
Promises:  every way is priced, also those that are not possible here, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass

from hinan.plan import costs
from hinan.plan.design import Variant, ram_of
from hinan.plan.failures import Tier
from hinan.plan.scenario import Scenario


@dataclass(frozen=True)
class ModeCost:
    """One way out of HBM."""

    mode: str
    possible: bool
    why_not: str | None
    ram_needed_bytes: float
    stall_s: float
    limited_by: str
    dram_traffic_ratio: float
    """Bytes of DRAM traffic per evacuated byte (write, digest, drain, peer)."""
    least_interval_s: float
    """Below this the memory traffic or the drives would not keep up."""
    break_even: str


def compare_modes(scenario: Scenario) -> list[ModeCost]:
    """RAM (with and without a peer copy), ring and GDS on this machine."""
    rows = [_ram(scenario, peers=True)] if scenario.nodes > 1 and scenario.demands.peer_copies else []
    return [*rows, _ram(scenario, peers=False), _direct(scenario, "ring"), _direct(scenario, "gds")]


def _ram(scenario: Scenario, *, peers: bool) -> ModeCost:
    tiers = (Tier.RAM, Tier.PEER, Tier.SHARED) if peers else (Tier.RAM, Tier.SHARED)
    sums = [ram_of(scenario, Variant("ram", tiers, drains)) for drains in (1, 0)]
    ram = next((each for each in sums if each.fits), sums[-1])
    traffic = costs.dram_traffic_ratio("ram", scenario.demands.peer_copies if peers else 0)
    keep = (ram.budget_bytes / ((ram.slots + ram.peer_slots) * (1 + costs.SLOT_OVERHEAD_RATIO))) / (
        scenario.gpus_on_node * scenario.machine.hbm_bytes
    )
    why_not = None
    if not ram.fits:
        why_not = f"needs {ram.needed_bytes / 1e9:.4g} GB of {ram.budget_bytes / 1e9:.4g} GB"
    return ModeCost(
        "ram + peer" if peers else "ram",
        ram.fits,
        why_not,
        ram.needed_bytes,
        costs.stall_s(scenario, "ram"),
        costs.copy_rate(scenario, "ram").link,
        traffic,
        scenario.node_bytes * traffic / scenario.machine.dram_bytes_per_s,
        f"fits up to {min(1.0, keep):.0%} of HBM kept",
    )


def _direct(scenario: Scenario, mode: str) -> ModeCost:
    machine = scenario.machine
    reason = None
    if machine.nvme_write_bytes_per_s == 0:
        reason = "no NVMe"
    elif mode == "gds" and machine.gds_bytes_per_s == 0:
        reason = "no GPUDirect Storage"
    elif mode == "ring" and ram_of(scenario, Variant("ring", (Tier.NVME,), 1)).budget_bytes < costs.RING_BYTES:
        reason = "no room for the ring"
    if reason:
        return ModeCost(mode, False, reason, 0.0, float("inf"), "storage bandwidth", 0.0, float("inf"), "never here")
    rate = costs.copy_rate(scenario, mode)
    hidden_s = scenario.job.step_s * scenario.job.hideable_ratio
    node_rate = rate.bytes_per_s * scenario.gpus_on_node
    return ModeCost(
        mode,
        True,
        None,
        costs.RING_BYTES if mode == "ring" else 0.0,
        costs.stall_s(scenario, mode),
        rate.link,
        costs.dram_traffic_ratio(mode, 0),
        scenario.job.gpu_bytes / rate.bytes_per_s,
        f"stalls no more than RAM up to {node_rate * hidden_s / 1e9:.4g} GB a node (what hides behind a step)",
    )
