"""The nearest feasible design: correct what is impossible, ask again, until the question has an answer.

Owns:      the loop. Promises: what it returns was fed back and found feasible, or it says that nothing near is.
Relies on: `edge.py` for how little of each correction is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from hinan.core.errors import ConfigError
from hinan.plan.decision.demands import checked_design
from hinan.plan.decision.design import Design
from hinan.plan.decision.edge import at_the_edge
from hinan.plan.model.checks import Infeasible
from hinan.plan.model.failures import FailureTable
from hinan.plan.model.scenario import Scenario
from hinan.plan.model.settings import Unreadable
from hinan.plan.observed.from_settings import scenario_from
from hinan.plan.observed.measured import MeasuredRun

_ROUNDS = 40


def solve_settings(
    settings: Mapping[str, str], *, fitted: FailureTable | None = None, measured: MeasuredRun | None = None
) -> tuple[Scenario, Design]:
    """Scenario and best design of these settings, beside a fitted failure table and what a run has measured.

    Raises:
        Infeasible: everything that is impossible about them, and the corrections that make them possible: applied to
            the settings they have been tried, and have an answer.
        Unreadable: words of which no question can be made.
    """
    attempt = partial(_attempt, fitted=fitted, measured=measured)
    try:
        return attempt(settings)
    except Infeasible as error:
        impossible, corrections = [*error.impossible], dict(error.nearest)
    current = {k: t for k, t in {**settings, **corrections}.items() if t}
    tried = set(corrections.items())  # two checks may want the same setting up and down: then a demand has to go
    for _ in range(_ROUNDS):
        try:
            attempt(current)
        except Infeasible as error:
            impossible += [reason for reason in error.impossible if reason not in impossible]
            fresh = {k: t for k, t in error.nearest.items() if current.get(k) != t and (k, t) not in tried}
            step = fresh or _loosened(current, settings)
            tried |= fresh.items()
            corrections |= step
            current = {k: t for k, t in {**current, **step}.items() if t}
        else:
            needed = _pruned(settings, {k: current.get(k, "") for k in corrections}, attempt)
            raise Infeasible(impossible[:6], at_the_edge(settings, needed, partial(_possible, attempt)))
    raise Infeasible([*impossible[:6], "and nothing near it was found to be possible"], {})


def _pruned(
    settings: Mapping[str, str], corrections: Mapping[str, str], attempt: Callable[[Mapping[str, str]], object]
) -> dict[str, str]:
    """Corrections without those that turn out not to be needed; an empty text means "take the setting away"."""
    kept = {name: text for name, text in corrections.items() if text != settings.get(name, "")}
    for name in list(kept):
        fewer = {k: t for k, t in kept.items() if k != name}
        if _possible(attempt, {k: t for k, t in {**settings, **fewer}.items() if t}):
            kept = fewer
    return kept


def _attempt(
    settings: Mapping[str, str], *, fitted: FailureTable | None, measured: MeasuredRun | None
) -> tuple[Scenario, Design]:
    try:
        scenario = scenario_from(settings, fitted=fitted, measured=measured)
        return scenario, checked_design(scenario)
    except (Infeasible, Unreadable):
        raise
    except ConfigError as error:
        raise Infeasible([str(error)], {}) from error


def _possible(attempt: Callable[[Mapping[str, str]], object], settings: Mapping[str, str]) -> bool:
    try:
        attempt(settings)
    except ConfigError:
        return False
    return True


_LOOSEN = ("max-redo", "max-stall", "max-rto", "budget", "interval", "ram", "tiers", "mode", "shard-gpus")


def _loosened(current: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """No correction known: drop one demand (an empty text takes the setting away)."""
    del settings
    name = next((name for name in _LOOSEN if name in current), None)
    return {name: ""} if name else {}
