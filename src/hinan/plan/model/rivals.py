"""Words that say the same thing: a designer who gives two of them asks two questions, and is told so.

Owns:      which settings say the same thing, and the refusal of both at once. One rule: never does one silently win.
Promises:  the refusal names both words, and the nearest question leaves out the one that says it less directly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hinan.plan.model.checks import Infeasible
from hinan.plan.model.failures import Tier

SAYS_THE_SAME: Mapping[str, tuple[str, ...]] = {
    "state-bytes": ("params", "keep"),
    "params": ("keep",),
    "mtti": ("rate",),
    "restart": ("detect", "reschedule", "load", "init", "init-growth", "replay"),
    "stall": ("hidden", "floor"),
    "drain": ("store-bandwidth",),
}
"""A figure, and the settings from which it would follow."""


def check_rivals(values: Mapping[str, Any], *, fitted: bool) -> None:
    """Checks that what is given says everything once.

    Args:
        values: the settings given, parsed.
        fitted: a failure table was fitted to a trace.
    Raises:
        Infeasible: two settings say the same thing; nearest takes the indirect one away.
    """
    pairs = [(name, other) for name, others in SAYS_THE_SAME.items() for other in others if {name, other} <= values.keys()]
    impossible = [f"--{name} and --{other} say the same thing: which one is meant?" for name, other in pairs]
    away = [other for _, other in pairs]
    if fitted and "failures" in values:
        impossible.append("--trace and --failures say the same thing: which one is meant?")
        away.append("failures")
    if values.get("peers") and Tier.PEER not in values.get("tiers", tuple(Tier)):
        impossible.append(
            f"--peers {values['peers']} and --tiers {','.join(values['tiers'])}: no peer is among these tiers"
        )
        away.append("peers")
    if values.get("peers") == 0 and Tier.PEER in values.get("tiers", ()):
        impossible.append(f"--peers 0 and --tiers {','.join(values['tiers'])} contradict each other: a peer, or none?")
        away.append("peers")
    if impossible:
        raise Infeasible(impossible, dict.fromkeys(away, ""))
