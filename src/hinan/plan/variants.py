"""The ways to build it: where the copy lands, which tiers follow, how many slots; and what each needs of RAM.

Owns:      `Variant`, the list of all that machine and demands allow, its RAM sum, and how close its saves may be.
Promises:  RAM is counted wherever images are in it, whether they stay there (a tier) or pass through.
Never:     chooses; `design.py` does.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hinan.plan import costs
from hinan.plan.failures import Tier
from hinan.plan.scenario import Scenario


@dataclass(frozen=True)
class Variant:
    """One way to build it: where the copy lands, which tiers follow, how many slots."""

    mode: str
    tiers: tuple[Tier, ...]
    open_drains: int
    """Slots beside the complete and the filling one; 0: the next evacuation waits for the drain."""

    @property
    def peers(self) -> bool:
        """Whether a peer keeps a copy."""
        return Tier.PEER in self.tiers

    @property
    def way(self) -> str:
        """The way out of HBM by name, as `modes.py` compares them."""
        return f"{self.mode} + peer" if self.peers else self.mode


def least_parts_s(scenario: Scenario, variant: Variant, tier: Tier) -> tuple[float, float]:
    """No two saves to a tier are closer than their copy out of HBM, nor than the drains they wait for [s]."""
    drain_s = costs.drain(scenario, tier, variant.mode)[0]
    if tier is not variant.tiers[0]:
        return 0.0, drain_s
    copy_s = 0.0
    if scenario.job.stall_s is None:
        copy_s = scenario.job.gpu_bytes / costs.copy_rate(scenario, variant.mode).bytes_per_s
    if variant.open_drains == 0 and variant.mode == "ram":
        return copy_s, max(costs.drain(scenario, each, variant.mode)[0] for each in variant.tiers)
    return copy_s, 0.0 if waits_for_save(scenario) else drain_s


def variants(scenario: Scenario) -> Iterator[Variant]:
    """All ways to build it that the machine and the demands allow, richest first."""
    demands = scenario.demands
    modes = ("ram", "ring", "gds") if demands.mode == "auto" else (demands.mode,)
    for mode in modes:
        if mode != "ram" and scenario.machine.nvme_write_bytes_per_s == 0:
            continue
        if mode == "gds" and scenario.machine.gds_bytes_per_s == 0:
            continue
        usable = [tier for tier, why_not in costs.available_tiers(scenario, mode).items() if why_not is None]
        if demands.tiers is not None:
            sets = [tuple(tier for tier in Tier if tier in demands.tiers)]
            if not set(sets[0]) <= set(usable):
                continue
        else:
            sets = _tier_sets(usable)
        for tiers in sets:
            for open_drains in open_drains_of(mode, tiers):
                yield Variant(mode, tiers, open_drains)
            if demands.tiers is None and _only_through(scenario, mode, tiers):
                yield Variant(mode, tiers[1:], 1)


def open_drains_of(mode: str, tiers: Sequence[Tier]) -> tuple[int, ...]:
    """The numbers of open drains worth a choice: RAM that keeps an image may do without."""
    return (1, 0) if mode == "ram" and Tier.RAM in tiers else (1,)


def _only_through(scenario: Scenario, mode: str, tiers: tuple[Tier, ...]) -> bool:
    """Whether RAM without room for an image to stay may have it for images on their way to the next tier."""
    return mode == "ram" and len(tiers) > 2 and not ram_of(scenario, Variant(mode, tiers, 1)).fits


def _tier_sets(usable: Sequence[Tier]) -> list[tuple[Tier, ...]]:
    """The landing tier and the store always; what lies between if it pays."""
    landing = Tier.RAM if Tier.RAM in usable else Tier.NVME
    between = [tier for tier in usable if tier not in (landing, Tier.SHARED)]
    picks = itertools.chain.from_iterable(itertools.combinations(between, count) for count in range(len(between), -1, -1))
    return [(landing, *pick, Tier.SHARED) for pick in picks]


def ram_of(scenario: Scenario, variant: Variant) -> costs.Ram:
    """RAM sum of a variant. Without a RAM tier nothing is kept there, but a copy that leaves HBM as fast as RAM takes it
    is there until it is drained; only a save that training waits for passes through chunk by chunk, as in a ring."""
    kept = Tier.RAM in variant.tiers
    mode = "ring" if not kept and waits_for_save(scenario) else variant.mode
    return costs.ram_sum(scenario, mode, open_drains=variant.open_drains, peers=variant.peers, kept=kept)


def waits_for_save(scenario: Scenario) -> bool:
    """Whether the stall given is the whole save: no drain is said, so none goes on behind training."""
    return scenario.job.stall_s is not None and scenario.store.drain_s is None
