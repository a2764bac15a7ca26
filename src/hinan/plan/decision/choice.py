"""From all ways of building it to the best one that keeps every demand.

Owns:      the choice between variants (mode, peers, slots, tiers in use).
Promises:  every demand filters what is chosen from before the best is picked: RAM and the bounds of the intervals on the
           way to a design, `limits.py` after it. Where nothing is left, the refusal is of the way that misses by least.
Relies on: `variants.py` for what there is, `design.py` for what each keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hinan.core.errors import ConfigError
from hinan.plan.decision import slots
from hinan.plan.decision.assumed import resting_on
from hinan.plan.decision.design import Design, build_levels, finish
from hinan.plan.decision.limits import DRAIN, LIMITS, STALL
from hinan.plan.decision.variants import Variant, ram_of, variants
from hinan.plan.model import costs
from hinan.plan.model.checks import Infeasible
from hinan.plan.model.failures import Tier
from hinan.plan.model.scenario import Scenario

WORTH_DRIVES = 1e-4
"""So much more than a way that keeps images in RAM must drives keep for the optimizer to wait for them [share of all time].
Half of it more must a way keep through which images only pass."""


def best_design(scenario: Scenario) -> Design:
    """The design that keeps most training and every demand.

    Every variant is searched, for demands and whole steps decide between them as much as costs do; one with more tiers
    wins only if it keeps more, and a ring or GDS only if it keeps noticeably more than RAM.
    Raises:
        Infeasible: nothing keeps the demands (the reason of the way that comes nearest).
    """
    with resting_on(scenario, *DRAIN, *STALL):
        designs = _searched(scenario)
    for limit in LIMITS:
        missed = [limit.refusal(scenario, design) for design in designs]
        keeping = [design for design, refusal in zip(designs, missed, strict=True) if refusal is None]
        if not keeping:
            with resting_on(scenario, *limit.rests_on):
                raise _nearest(refusal for refusal in missed if refusal is not None)
        designs = keeping
    return max(designs, key=lambda design: design.ettr + preference(design.variant))


def preference(variant: Variant) -> float:
    """What a variant may keep less than others and still be taken [share of all time]."""
    if variant.mode != "ram":
        return 0.0
    return WORTH_DRIVES if Tier.RAM in variant.tiers else WORTH_DRIVES / 2


def best_by_way(scenario: Scenario) -> dict[str, float]:
    """What the best design of each way out of HBM keeps, also of ways that the designer did not ask for; those that
    cannot keep the demands are not among them."""
    found: dict[str, float] = {}
    free = replace(scenario, demands=replace(scenario.demands, mode="auto"))
    for design in _finished(free, usable_variants(free)[0])[0]:
        if not any(limit.refusal(free, design) for limit in LIMITS):
            found[design.variant.way] = max(found.get(design.variant.way, 0.0), design.ettr)
    return found


def _searched(scenario: Scenario) -> list[Design]:
    """Designs of all variants that hold RAM, redo limit and stall budget.

    Raises:
        Infeasible: none does.
    """
    usable, refused = usable_variants(scenario)
    designs, broken = _finished(scenario, usable)
    if not designs and not (broken or refused):
        raise ConfigError("no tier can be used on this machine")
    if not designs:
        raise _nearest(broken or refused)
    return designs


def _nearest(refusals: Iterable[Infeasible]) -> Infeasible:
    """The one that misses by least; of several the last, which asks for fewest tiers and least RAM."""
    return min(reversed(list(refusals)), key=lambda reason: reason.missed_by)


def _finished(scenario: Scenario, usable: Sequence[Variant]) -> tuple[list[Design], list[Infeasible]]:
    designs, broken = [], []
    for variant in usable:
        try:
            designs.append(finish(scenario, variant))
        except Infeasible as error:
            broken.append(error)
    return designs, broken


def usable_variants(
    scenario: Scenario, lengths: tuple[float, float] = slots.AS_LONG
) -> tuple[list[Variant], list[Infeasible]]:
    """Variants that fit and leave a copy after every failure, and why the others do not; also for drains so many times as
    long. Of those that differ in slots alone only the ones with most: fewer slots only narrow the ranges of the
    intervals, and cannot keep more."""
    refused: list[Infeasible] = []
    usable: list[Variant] = []
    most_slots: dict[tuple[str, tuple[str, ...]], int] = {}
    for variant in variants(scenario, lengths):
        if len(variant.own_slots) < most_slots.get((variant.mode, variant.tiers), 0):
            continue
        ram = ram_of(scenario, variant)
        if not ram.fits:
            refused.append(_no_room(ram, variant))
            continue
        most_slots[variant.mode, variant.tiers] = len(variant.own_slots)
        try:
            build_levels(scenario, variant)
        except Infeasible as error:
            refused.append(error)
            continue
        usable.append(variant)
    return usable, refused


def _no_room(ram: costs.Ram, variant: Variant) -> Infeasible:
    return Infeasible(
        [
            f"RAM: {ram.slots} slots and {ram.peer_slots} peer slots of {ram.image_bytes / 1e9:.4g} GB need "
            f"{ram.needed_bytes / 1e9:.4g} GB, there are {ram.budget_bytes / 1e9:.4g} GB"
        ],
        {"ram": f"{ram.needed_bytes / 1e9 * 1.001:.4f}GB", "mode": variant.mode},
        missed_by=ram.needed_bytes / ram.budget_bytes,
    )
