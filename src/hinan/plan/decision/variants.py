"""The ways to build it: where the copy lands, which tiers follow, how many slots; and what each needs of RAM.

Owns:      `Variant`, the list of all that machine and demands allow, its RAM sum, and how close its saves may be.
Promises:  every set of tiers is there; RAM is counted wherever images are in it, whether they stay there (a tier) or pass
           through. Of two variants that differ in slots alone, more slots only widen the ranges of the intervals.
Never:     chooses; `choice.py` does.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hinan.plan.decision import slots
from hinan.plan.intervals.joint import whole_steps
from hinan.plan.model import costs
from hinan.plan.model.failures import Tier
from hinan.plan.model.scenario import Scenario


@dataclass(frozen=True)
class Variant:
    """One way to build it: where the copy lands, which tiers follow, how many slots."""

    mode: str
    tiers: tuple[Tier, ...]
    own_slots: tuple[Tier, ...] = ()
    """Tiers whose drain may go on reading an older step, in a slot of its own. The others share (`slots.py`: how long)."""

    @property
    def peers(self) -> bool:
        """Whether a peer keeps a copy."""
        return Tier.PEER in self.tiers

    @property
    def way(self) -> str:
        """The way out of HBM by name, as `modes.py` compares them."""
        return f"{self.mode} + peer" if self.peers else self.mode


def drains_s(scenario: Scenario, variant: Variant) -> tuple[float, ...]:
    """Drain of each tier of a variant [s]; nothing drains behind a save that training waits for."""
    if waits_for_save(scenario):
        return (0.0,) * len(variant.tiers)
    return tuple(costs.drain(scenario, tier, variant.mode, peers=variant.peers)[0] for tier in variant.tiers)


def slots_of(scenario: Scenario, variant: Variant) -> slots.Slots:
    """What its slots make of the least intervals of a variant."""
    kept = Tier.RAM in variant.tiers
    free_saves = slots.FREE_SAVES_KEPT if kept else slots.FREE_SAVES_PASSING
    step_s, given_s = scenario.job.step_s if scenario.job.step_known else 0.0, scenario.demands.interval_s or 0.0
    if given_s and step_s:
        given_s = whole_steps(given_s, step_s) * step_s
    return slots.Slots(
        own=tuple(variant.tiers.index(tier) for tier in variant.own_slots),
        copy_s=_copy_s(scenario, variant.mode),
        closest_s=max(step_s, given_s),
        free_saves=free_saves if variant.mode == "ram" else math.inf,
    )


def least_intervals_s(scenario: Scenario, variant: Variant) -> tuple[float, ...]:
    """No two saves to a tier are closer than their copy out of HBM, nor than the drains they wait for [s]."""
    return slots_of(scenario, variant).least_s(drains_s(scenario, variant))


def slot_sets(scenario: Scenario, variant: Variant, tier: Tier, interval_s: float) -> bool:
    """Whether an interval is as short as slots allow, and neither copy, step nor its own drain forbids a shorter one."""
    room, index = slots_of(scenario, variant), variant.tiers.index(tier)
    alone_s = replace(room, own=tuple(range(len(variant.tiers)))).least_s(drains_s(scenario, variant))[index]
    least_s = least_intervals_s(scenario, variant)[index]
    step_s = scenario.job.step_s if scenario.job.step_known else 0.0
    return least_s > alone_s * 1.001 and interval_s < least_s * 1.001 + step_s


def _copy_s(scenario: Scenario, mode: str) -> float:
    """The copy out of HBM; with a stall given nobody knows it [s]."""
    if scenario.job.stall_s is not None:
        return 0.0
    return scenario.job.gpu_bytes / costs.copy_rate(scenario, mode).bytes_per_s


def variants(scenario: Scenario, lengths: tuple[float, float] = slots.AS_LONG) -> Iterator[Variant]:
    """All ways to build it that the machine and the demands allow, richest first; with slots for drains that may be so many
    times as long as they are, from the first to the second."""
    demands = scenario.demands
    modes = ("ram", "ring", "gds") if demands.mode == "auto" else (demands.mode,)
    for mode in modes:
        if mode != "ram" and scenario.machine.nvme_write_bytes_per_s == 0:
            continue
        if mode == "gds" and scenario.machine.gds_bytes_per_s == 0:
            continue
        usable = [tier for tier, why_not in costs.available_tiers(scenario, mode).items() if why_not is None]
        for tiers in _tier_sets(usable) if demands.tiers is None else [tuple(t for t in Tier if t in demands.tiers)]:
            if set(tiers) <= set(usable):
                yield from _with_slots(scenario, Variant(mode, tiers), lengths)


def _tier_sets(usable: Sequence[Tier]) -> Iterator[tuple[Tier, ...]]:
    """The store always; what else keeps most decides itself."""
    others = [tier for tier in usable if tier is not Tier.SHARED]
    for count in range(len(others), -1, -1):
        for pick in itertools.combinations(others, count):
            yield (*pick, Tier.SHARED)


def _with_slots(scenario: Scenario, variant: Variant, lengths: tuple[float, float]) -> Iterator[Variant]:
    """A variant with every choice of tiers that have slots of their own, most slots first. A drain that is over before any
    save can want its slot needs none, and one older image passes through the slots that there are without a RAM tier."""
    if variant.mode != "ram":
        yield variant
        return
    late = [variant.tiers[k] for k in slots_of(scenario, variant).late(drains_s(scenario, variant), lengths)]
    least = 0 if Tier.RAM in variant.tiers else min(1, len(late))
    for count in range(len(late), least - 1, -1):
        for own in itertools.combinations(late, count):
            yield replace(variant, own_slots=own)


def ram_of(scenario: Scenario, variant: Variant, older_steps: int | None = None) -> costs.Ram:
    """RAM sum of a variant, with all its slots or with so many older steps in them. Without a RAM tier nothing is kept
    there, but a copy that leaves HBM as fast as RAM takes it is there until it is drained; only a save that training waits
    for passes through chunk by chunk, as in a ring."""
    mode = "ring" if waits_for_save(scenario) else variant.mode
    kept = Tier.RAM in variant.tiers
    open_drains = len(variant.own_slots) if older_steps is None else older_steps
    return costs.ram_sum(scenario, mode, open_drains=open_drains, peers=variant.peers, kept=kept)


def ram_used(scenario: Scenario, variant: Variant, intervals_s: Sequence[float]) -> costs.Ram:
    """RAM sum of a variant with these intervals: slots that no moment of it fills are not counted."""
    room = slots_of(scenario, variant)
    return ram_of(
        scenario,
        variant,
        slots.older_steps(intervals_s, drains_s(scenario, variant), room.copy_s, room.free_saves),
    )


def waits_for_save(scenario: Scenario) -> bool:
    """Whether the stall given is the whole save: asked of the store alone, with no drain said, none goes on behind
    training. Of any other tiers a stall is what the copy out of HBM takes, and the drains go on as they would without."""
    return scenario.demands.tiers == (Tier.SHARED,) and scenario.job.stall_s is not None and scenario.store.drain_s is None
