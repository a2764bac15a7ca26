"""A policy to live a year with: how often to which tier, how many spares, when a slow node is thrown out.

Owns:      the value `Policy`, its TOML form, and the policy that the planner recommends for a scenario.
Promises:  unknown keys and impossible values are refused by name; what a file leaves out is the planner's choice.
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
from hinan.plan import costs
from hinan.plan.answer import spares
from hinan.plan.checks import positive
from hinan.plan.design import Design
from hinan.plan.failures import Tier
from hinan.plan.scenario import Scenario


@dataclass(frozen=True)
class TierPolicy:
    """One tier: training time between saves, what a save costs, when its copy is usable, what loading takes [s]."""

    tier: Tier
    every_s: float
    stall_s: float
    drain_s: float
    load_s: float

    def __post_init__(self) -> None:
        positive(every_s=self.every_s)


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


def planned(scenario: Scenario, design: Design, *, name: str = "planned") -> Policy:
    """The planner's own recommendation as a policy."""
    tiers = []
    for index, tier in enumerate(design.variant.tiers):
        drain_s = max(0.0, min((cause.lag_s for cause in design.levels[index].causes), default=0.0))
        drain_s = min(drain_s, costs.drain(scenario, tier, design.variant.mode)[0]) if drain_s else 0.0
        level = design.levels[index]
        tiers.append(TierPolicy(tier, design.interval_s(tier), level.stall_s, drain_s, costs.load_s(scenario, tier)))
    return Policy(name, tuple(tiers), spares(scenario))


def read_policy(path: Path, base: Policy) -> Policy:
    """A policy from TOML: `spares`, `evict_above`, `evict_after`, and `[every]` with durations per tier ("5min").

    A tier set to "never" is not used. What is not said stays as in `base`.
    Raises:
        ConfigError: not TOML, unknown keys, or values that cannot be.
    """
    try:
        words = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
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
    chosen = []
    for tier in base.tiers:
        text = every.get(str(tier.tier))
        if text != "never":
            chosen.append(tier if text is None else replace(tier, every_s=_duration(text, f"[every] {tier.tier}", path)))
    if not chosen:
        raise ConfigError(f"policy {path}: no tier is left")
    return tuple(chosen)


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
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(f"policy {path}: spares is a whole number from 0, not {value!r}")
    return value
