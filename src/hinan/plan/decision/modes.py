"""RAM, ring or GDS: where an evacuation lands, by what each way keeps; its RAM sum, stall and DRAM traffic say why.

Owns:      the comparison, the break-even lines between the ways, and the reason for the one taken.
Promises:  every way is priced, also those that are not possible here, with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hinan.plan.decision.choice import best_by_way
from hinan.plan.decision.variants import Variant, ram_of
from hinan.plan.model import costs
from hinan.plan.model.failures import Tier
from hinan.plan.model.scenario import Scenario


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
    ettr: float | None = None
    """What the best design of this way keeps; None: it is not possible, or cannot keep the demands or the tiers given."""


def compare_modes(scenario: Scenario) -> list[ModeCost]:
    """RAM (with and without a peer copy), ring and GDS on this machine."""
    rows = [_ram(scenario, peers=True)] if costs.available_tiers(scenario, "ram")[Tier.PEER] is None else []
    rows += [_ram(scenario, peers=False), _direct(scenario, "ring"), _direct(scenario, "gds")]
    kept = best_by_way(scenario)
    return [replace(row, ettr=kept.get(row.mode)) for row in rows]


def why_not_ram(scenario: Scenario, rows: Sequence[ModeCost], mode: str) -> str:
    """Why the copy lands on drives (`mode` is ring or gds): asked for, no room, or more is kept."""
    if scenario.demands.mode == mode:
        return f"{mode} mode, as asked"
    in_ram = [row for row in rows if row.mode not in ("ring", "gds")]
    if not any(row.possible for row in in_ram):
        return f"no room for whole images in RAM: {mode} mode"
    best = max((row.ettr for row in in_ram if row.ettr is not None), default=None)
    if best is None:
        return f"images in RAM cannot keep what is demanded: {mode} mode"
    own = max(row.ettr for row in rows if row.mode == mode and row.ettr is not None)
    return f"{mode} mode keeps {own:.4f}, images in RAM {best:.4f}"


def _ram(scenario: Scenario, *, peers: bool) -> ModeCost:
    wanted = scenario.demands.tiers
    landing = (Tier.RAM,) if wanted is None or Tier.RAM in wanted else ()
    tiers = (*landing, Tier.PEER, Tier.SHARED) if peers else (*landing, Tier.SHARED)
    ways = ((Tier.SHARED,), ()) if landing else ((Tier.SHARED,),)
    sums = [ram_of(scenario, Variant("ram", tiers, own_slots)) for own_slots in ways]
    ram = next((each for each in sums if each.fits), sums[-1])
    traffic = costs.dram_traffic_ratio("ram", scenario.demands.peer_copies if peers else 0)
    why_not = None
    if not ram.fits:
        why_not = f"needs {ram.needed_bytes / 1e9:.4g} GB of {ram.budget_bytes / 1e9:.4g} GB"
    return ModeCost(
        "ram + peer" if peers else "ram",
        ram.fits,
        why_not,
        ram.needed_bytes,
        costs.stall_s(scenario, "ram"),
        stall_limit(scenario, "ram"),
        traffic,
        scenario.node_bytes * traffic / scenario.machine.dram_bytes_per_s,
        "fits up to " + ", ".join(_fits(scenario, each) for each in sums)
        if ram.slots
        else "no whole image waits in RAM: training waits for the save",
    )


def _fits(scenario: Scenario, ram: costs.Ram) -> str:
    """Up to which share of the node's HBM so many slots hold an image of it."""
    images = ram.slots + ram.peer_slots + costs.SLOT_OVERHEAD_RATIO
    kept = ram.budget_bytes / images / (scenario.gpus_on_node * scenario.machine.hbm_bytes)
    return f"{min(1.0, kept):.0%} of HBM kept with {ram.slots} slots" + (
        f" + {ram.peer_slots} of peers" if ram.peer_slots else ""
    )


def stall_limit(scenario: Scenario, mode: str) -> str:
    """What sets the stall: the slowest link on the way, or "given" or "measured"."""
    if scenario.job.stall_s is not None:
        return str(scenario.origins()["job.stall_s"].kind)
    return costs.copy_rate(scenario, mode).link


def _against_ram(scenario: Scenario, mode: str) -> str:
    """Up to which size of a node's image this way stalls no more than RAM does."""
    job, rate, ram = scenario.job, costs.copy_rate(scenario, mode), costs.copy_rate(scenario, "ram")
    if job.stall_s is not None:
        return f"the stall was {stall_limit(scenario, mode)}, the same for every way"
    if rate.bytes_per_s >= ram.bytes_per_s:
        return "stalls no more than RAM at any size"
    if job.hidden_ratio == 1:
        return "stalls no more than RAM at any size: all of it is hidden"
    if job.hidden_ratio is not None:
        longer = ram.bytes_per_s / rate.bytes_per_s
        return f"stalls more than RAM at any size: what is not hidden takes {longer:.3g} times as long"
    node_bytes = rate.bytes_per_s * scenario.gpus_on_node * job.step_s * job.hideable_ratio
    return f"stalls no more than RAM up to {node_bytes / 1e9:.4g} GB a node (what hides behind a step)"


def _direct(scenario: Scenario, mode: str) -> ModeCost:
    machine = scenario.machine
    reason = None
    if machine.nvme_write_bytes_per_s == 0:
        reason = "no NVMe"
    elif mode == "gds" and machine.gds_bytes_per_s == 0:
        reason = "no GPUDirect Storage"
    elif mode == "ring" and ram_of(scenario, Variant("ring", (Tier.NVME,))).budget_bytes < costs.RING_BYTES:
        reason = "no room for the ring"
    if reason:
        return ModeCost(mode, False, reason, 0.0, float("inf"), "storage bandwidth", 0.0, float("inf"), "never here")
    return ModeCost(
        mode,
        True,
        None,
        costs.RING_BYTES if mode == "ring" else 0.0,
        costs.stall_s(scenario, mode),
        stall_limit(scenario, mode),
        costs.dram_traffic_ratio(mode, 0),
        scenario.job.gpu_bytes / costs.copy_rate(scenario, mode).bytes_per_s,
        _against_ram(scenario, mode),
    )
