"""A policy to live a year with: how often to which tier, how many spares, when a slow node is thrown out.

Owns:      the value `Policy`, its TOML form, and the policy that the planner recommends for a scenario.
Promises:  unknown keys and impossible values are refused by name, with the least that is possible; what a file leaves out
           is the planner's choice, as near to it as nesting allows. The copy out of HBM is paid by whatever tier is first.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hinan.core.errors import ConfigError
from hinan.core.units import parse_seconds
from hinan.plan.decision.answer import spares
from hinan.plan.decision.demands import STEP_TOLERANCE_RATIO
from hinan.plan.decision.design import Design
from hinan.plan.intervals.joint import whole_steps
from hinan.plan.model import costs
from hinan.plan.model.checks import positive
from hinan.plan.model.failures import Tier
from hinan.plan.model.scenario import Scenario

_MOST_SPARES = 10_000_000
"""More nodes than any plan is about."""


@dataclass(frozen=True)
class TierPolicy:
    """One tier: training time between saves, slow-down by a drain, when its copy is usable, what loading takes [s]."""

    tier: Tier
    every_s: float
    stall_s: float
    drain_s: float
    load_s: float
    least_s: float = 0.0
    """Saves cannot follow each other faster than this."""

    def __post_init__(self) -> None:
        positive(every_s=self.every_s)


@dataclass(frozen=True)
class Landing:
    """The copy out of HBM, the same whatever tier it lands on [s]."""

    stall_s: float = 0.0
    copy_s: float = 0.0
    """Copies cannot follow each other faster than this."""
    step_s: float | None = None
    """Saves happen between steps; None: the step is not known, any interval will do."""


@dataclass(frozen=True)
class Policy:
    """What is decided before the year begins."""

    name: str
    tiers: tuple[TierPolicy, ...]
    spares: int
    evict_above: float = 1.1
    """A node that slows the job down by more than this factor is replaced ..."""
    evict_after_s: float = 600.0
    """... this long after it became slow, if a spare is there."""
    landing: Landing = Landing()

    @property
    def stalls_s(self) -> tuple[float, ...]:
        """Training time that a save to each tier takes: the first one pays the copy out of HBM [s]."""
        first, *others = (tier.stall_s for tier in self.tiers)
        return (first + self.landing.stall_s, *others)


def planned(scenario: Scenario, design: Design, *, name: str = "planned") -> Policy:
    """The planner's own recommendation as a policy."""
    job, mode = scenario.job, design.variant.mode
    copy_s = 0.0 if job.stall_s is not None else job.gpu_bytes / costs.copy_rate(scenario, mode).bytes_per_s
    landing = Landing(costs.stall_s(scenario, mode), copy_s, job.step_s if job.step_known else None)
    tiers = []
    for index, tier in enumerate(design.variant.tiers):
        drain_s = max(0.0, min((cause.lag_s for cause in design.levels[index].causes), default=0.0))
        drain_s = min(drain_s, costs.drain(scenario, tier, mode, peers=design.variant.peers)[0]) if drain_s else 0.0
        level = design.levels[index]
        own_s = level.stall_s if index else max(0.0, level.stall_s - landing.stall_s)
        load_s = costs.load_s(scenario, tier)
        tiers.append(TierPolicy(tier, design.interval_s(tier), own_s, drain_s, load_s, level.least_interval_s))
    return Policy(name, tuple(tiers), spares(scenario), landing=landing)


def read_policy(path: Path, base: Policy) -> Policy:
    """A policy from TOML: `spares`, `evict_above`, `evict_after`, and `[every]` with durations per tier ("5min").

    A tier set to "never" is not used. What is not said stays as in `base`.
    Raises:
        ConfigError: not TOML, unknown keys, or values that cannot be.
    """
    try:
        words = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"policy {path}: {error}") from error
    unknown = sorted(set(words) - {"name", "spares", "evict_above", "evict_after", "every"})
    if unknown:
        raise ConfigError(
            f"policy {path}: unknown {', '.join(unknown)}; known: name, spares, evict_above, evict_after, every"
        )
    policy = replace(base, name=str(words.get("name", path.stem)), tiers=_tiers(words.get("every", {}), base, path))
    if "spares" in words:
        policy = replace(policy, spares=_whole(words["spares"], path))
    if "evict_after" in words:
        policy = replace(policy, evict_after_s=_duration(words["evict_after"], "evict_after", path))
    if "evict_above" in words:
        value = words["evict_above"]
        if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value < math.inf:
            raise ConfigError(f"policy {path}: evict_above is a slow-down, 1 or more, not {value!r}")
        policy = replace(policy, evict_above=float(value))
    return policy


def _tiers(every: Any, base: Policy, path: Path) -> tuple[TierPolicy, ...]:
    if not isinstance(every, Mapping) or any(name not in list(Tier) for name in every):
        raise ConfigError(f"policy {path}: [every] takes {', '.join(Tier)}")
    known = {tier.tier: tier for tier in base.tiers}
    missing = [name for name, text in every.items() if Tier(name) not in known and text != "never"]
    if missing:
        raise ConfigError(f"policy {path}: tier {', '.join(missing)} is not used by the plan these policies start from")
    chosen: list[TierPolicy] = []
    for tier in base.tiers:
        text = every.get(str(tier.tier))
        if text == "never":
            continue
        given_s = None if text is None else _duration(text, f"[every] {tier.tier}", path)
        chosen.append(replace(tier, every_s=_nested_s(tier, given_s, chosen, base.landing, path)))
    if not chosen:
        raise ConfigError(f"policy {path}: no tier is left")
    if Tier.SHARED in known and chosen[-1].tier is not Tier.SHARED:
        raise ConfigError(f"policy {path}: [every] shared = 'never' leaves no copy after silent corruption or a lost rack")
    return tuple(chosen)


def _nested_s(tier: TierPolicy, given_s: float | None, below: list[TierPolicy], landing: Landing, path: Path) -> float:
    """The interval of a tier above those below: whole multiples of the one below, whole steps for the first [s].

    Raises:
        ConfigError: the interval given is shorter than what the tier, the copy, a step or the tier below allows.
    """
    unit_s, why = (below[-1].every_s, f"an interval of {below[-1].tier}") if below else (landing.step_s, "a step")
    least_s = tier.least_s if below else max(tier.least_s, landing.copy_s)
    if unit_s is not None:
        least_s = math.ceil(least_s / unit_s - 1e-9) * unit_s or unit_s
    if given_s is None:
        wanted_s = max(tier.every_s, least_s)
        return wanted_s if unit_s is None else whole_steps(wanted_s, unit_s) * unit_s
    if given_s < least_s * (1 - STEP_TOLERANCE_RATIO):
        limit = f"{why} ({unit_s:.6g} s), " if unit_s is not None else ""
        raise ConfigError(
            f"policy {path}: [every] {tier.tier} = {given_s:.6g} s cannot be: {limit}copy and drain "
            f"({max(tier.least_s, 0.0 if below else landing.copy_s):.4g} s) allow {least_s:.6g} s at least"
        )
    if unit_s is None:
        return given_s
    nearest_s = whole_steps(given_s, unit_s) * unit_s
    if not below and abs(nearest_s / given_s - 1) > STEP_TOLERANCE_RATIO:
        raise ConfigError(
            f"policy {path}: [every] {tier.tier} = {given_s:.6g} s is {given_s / unit_s:.3g} steps of {unit_s:.4g} s; "
            f"saves happen between steps: {nearest_s:.6g} s is the nearest"
        )
    return nearest_s


def _duration(value: object, key: str, path: Path) -> float:
    """Seconds above zero.

    Raises:
        ConfigError: names the file and the key.
    """
    try:
        found = parse_seconds(str(value))
    except ConfigError as error:
        raise ConfigError(f"policy {path}: {key}: {error}") from error
    if found <= 0:
        raise ConfigError(f"policy {path}: {key} is a duration above zero, not {value!r}")
    return found


def _whole(value: object, path: Path) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_SPARES:
        raise ConfigError(f"policy {path}: spares is a whole number from 0 to {_MOST_SPARES:,}, not {value!r}")
    return value
