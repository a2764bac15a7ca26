"""What each tier costs on this machine: stall, drain, load, RAM, DRAM traffic. Bytes divided by bandwidths, no more.

Owns:      the arithmetic from machine and job to seconds; which way the bytes leave HBM (RAM, ring, GDS).
Promises:  every figure names the link that limits it.
Never:     chooses an interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hinan.plan.model.failures import Tier
from hinan.plan.model.scenario import Scenario

RING_BYTES = 8 * 2**30
"""Pinned ring of the small-RAM mode, per node: 4 chunks of 256 MiB for each of 8 GPUs."""
SLOT_OVERHEAD_RATIO = 0.01
"""Headers, padding, buckets and bounce buffers, as a share of an image."""

DRAM_TRAFFIC = {
    "ram": {"write": 1.0, "digest": 1.0, "drain": 1.0},
    "ring": {"write": 1.0, "digest": 1.0, "drain": 1.0},
    "gds": {},
}
"""Memory traffic per evacuated byte. RAM and ring move the same bytes; RAM may spread them over the interval, the ring
must move them while the optimizer waits. GDS goes past host memory (its digest is taken on the GPU)."""
PEER_TRAFFIC = {"send": 1.0, "receive": 1.0, "digest": 1.0}
"""Added on each node when a peer copy is made: its own image is read out, a partner's is written and proven."""


@dataclass(frozen=True)
class Rate:
    """A bandwidth and the link that sets it."""

    bytes_per_s: float
    link: str


@dataclass(frozen=True)
class Ram:
    """The RAM sum of a node [bytes]."""

    image_bytes: float
    slots: int
    peer_slots: int
    buffers_bytes: float
    budget_bytes: float

    @property
    def needed_bytes(self) -> float:
        """slots x image + peer copies + buffers."""
        return (self.slots + self.peer_slots) * self.image_bytes + self.buffers_bytes

    @property
    def fits(self) -> bool:
        """Whether the sum stays in the budget."""
        return self.needed_bytes <= self.budget_bytes


def dram_traffic_ratio(mode: str, peer_copies: int) -> float:
    """Bytes of DRAM traffic per evacuated byte on a node."""
    own = sum(DRAM_TRAFFIC[mode].values())
    return own + peer_copies * sum(PEER_TRAFFIC.values()) if mode == "ram" else own


def copy_rate(scenario: Scenario, mode: str) -> Rate:
    """HBM to where the copy lands, per GPU, all GPUs of the node at once [bytes/s]."""
    machine, gpus = scenario.machine, scenario.gpus_on_node
    if mode == "ring":
        rates = [
            Rate(machine.d2h_bytes_per_s, "pcie"),
            Rate(machine.nvme_write_bytes_per_s / gpus, "storage bandwidth"),
            Rate(machine.dram_bytes_per_s / dram_traffic_ratio("ring", 0) / gpus, "numa"),
        ]
    elif mode == "gds":
        rates = [
            Rate(machine.d2h_bytes_per_s, "pcie"),
            Rate(min(machine.gds_bytes_per_s, machine.nvme_write_bytes_per_s) / gpus, "storage bandwidth"),
        ]
    else:
        rates = [Rate(machine.d2h_bytes_per_s, "pcie"), Rate(machine.dram_bytes_per_s / gpus, "numa")]
    return min(rates, key=lambda rate: rate.bytes_per_s)


def stall_s(scenario: Scenario, mode: str) -> float:
    """Training time one evacuation takes: what does not hide behind forward and backward, and the floor [s].

    C = (1 - phi) s / B + c0.
    """
    job = scenario.job
    if job.stall_s is not None:
        return job.stall_s
    copy_s = job.gpu_bytes / copy_rate(scenario, mode).bytes_per_s
    return (1 - hidden_ratio(scenario, mode)) * copy_s + job.floor_s


def hidden_ratio(scenario: Scenario, mode: str) -> float:
    """phi, the share of the copy that hides: as given, or min(1, hideable time / (s / B)) [0-1]."""
    job = scenario.job
    if job.hidden_ratio is not None:
        return job.hidden_ratio
    return min(1.0, job.step_s * job.hideable_ratio * copy_rate(scenario, mode).bytes_per_s / job.gpu_bytes)


def drain(scenario: Scenario, tier: Tier, mode: str, *, peers: bool) -> tuple[float, str]:
    """Seconds until a copy is usable on `tier`, and the link that takes them. 0 for the tier the copy lands on, but for
    what drives take beyond a stall that was given. `peers`: a peer tier is in use, whose copies pass through DRAM too."""
    machine, image_bytes = scenario.machine, scenario.node_bytes
    if tier is Tier.RAM:
        return 0.0, "none"
    if tier is Tier.NVME and mode != "ram":
        # A stall that is computed is that of the drives. One that is given is shorter than they are: the rest goes on.
        rate = copy_rate(scenario, mode)
        rest_s = 0.0 if scenario.job.stall_s is None else scenario.job.gpu_bytes / rate.bytes_per_s - scenario.job.stall_s
        return (rest_s, rate.link) if rest_s > 0 else (0.0, "none")
    if tier is Tier.SHARED:
        if scenario.store.drain_s is not None:
            return scenario.store.drain_s, "storage bandwidth"
        links = {
            "storage bandwidth": scenario.job.state_bytes / scenario.store.write_bytes_per_s,
            "network": scenario.job.state_bytes / (machine.nic_bytes_per_s * scenario.nodes),
        }
    else:
        copies = scenario.demands.peer_copies if peers else 0
        links = (
            {"network": image_bytes * copies / machine.nic_bytes_per_s}
            if tier is Tier.PEER
            else {"storage bandwidth": image_bytes / machine.nvme_write_bytes_per_s}
        )
        links["numa"] = image_bytes * dram_traffic_ratio(mode, copies) / machine.dram_bytes_per_s
    slowest = max(links, key=lambda link: links[link])
    return links[slowest], slowest


def load_s(scenario: Scenario, tier: Tier) -> float:
    """Seconds to bring the state from `tier` back into HBM. Every rank of the job reads its own bytes at once."""
    machine = scenario.machine
    if scenario.restart.load_s is not None:
        return scenario.restart.load_s
    back_s = scenario.job.gpu_bytes / copy_rate(scenario, "ram").bytes_per_s
    if tier is Tier.RAM:
        return back_s
    if tier is Tier.PEER:
        return scenario.node_bytes / machine.nic_bytes_per_s + back_s
    if tier is Tier.NVME and machine.nvme_read_bytes_per_s > 0:
        return scenario.node_bytes / machine.nvme_read_bytes_per_s + back_s
    # The store serves each byte once; replicas get theirs from each other.
    per_s = min(scenario.store.read_bytes_per_s, machine.nic_bytes_per_s * scenario.nodes)
    fan_out_s = scenario.node_bytes / machine.nic_bytes_per_s if scenario.job.sharded_over < scenario.job.gpus else 0.0
    return scenario.job.state_bytes / per_s + fan_out_s + back_s


def ram_sum(scenario: Scenario, mode: str, *, open_drains: int, peers: bool, kept: bool = True) -> Ram:
    """What evacuation needs of a node's RAM.

    Slots: the newest complete step (where RAM is a tier: `kept`), the one being filled, and one for each older step that a
    drain may still read (`slots.py` counts them). Without a RAM tier the newest step is itself only there to be drained:
    two slots, and one for each older step beyond the first. A peer's copies take two more per copy.
    """
    budget = scenario.machine.ram_bytes
    if scenario.demands.ram_budget_bytes is not None:
        budget = scenario.demands.ram_budget_bytes
    image = scenario.node_bytes
    peer_slots = 2 * scenario.demands.peer_copies if peers else 0
    if mode != "ram":
        return Ram(image if peers else 0.0, 0, peer_slots, float(RING_BYTES), budget)
    slots = 2 + open_drains if kept else 1 + max(1, open_drains)
    return Ram(image, slots, peer_slots, image * SLOT_OVERHEAD_RATIO, budget)


def available_tiers(scenario: Scenario, mode: str) -> Mapping[Tier, str | None]:
    """Each tier, and None if it can be used or the reason why not."""
    none_nvme = None if scenario.machine.nvme_write_bytes_per_s > 0 else "the node has no NVMe"
    no_ram = None if mode == "ram" else f"{mode} mode keeps no image in RAM"
    if scenario.nodes < 2:
        peer: str | None = "one node has no peer"
    elif scenario.demands.peer_copies == 0:
        peer = "no peer copy wanted"
    elif scenario.demands.peer_copies >= scenario.nodes:
        copies, others = scenario.demands.peer_copies, scenario.nodes - 1
        peer = f"{copies} peer copies want as many other nodes, there {'is' if others == 1 else 'are'} {others}"
    else:
        peer = no_ram
    return {Tier.RAM: no_ram, Tier.PEER: peer, Tier.NVME: none_nvme, Tier.SHARED: None}
