"""Which numbers behind a refusal nobody gave: a refusal that rests on a guess is an occasion to measure.

Owns:      the words. Never: judges whether the guess is a good one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hinan.plan.model.checks import Infeasible
from hinan.plan.model.origin import Kind
from hinan.plan.model.scenario import Scenario

_NOT_KNOWN = (Kind.GUESSED, Kind.DEFAULT)


@contextmanager
def resting_on(scenario: Scenario, *names: str) -> Iterator[None]:
    """Adds to a refusal raised inside which of these inputs are guesses or defaults.

    Args:
        names: inputs as `Scenario.origins` names them.
    """
    try:
        yield
    except Infeasible as error:
        if not (words := assumed(scenario, *names)):
            raise
        reasons = [f"{reason} ({words})" for reason in error.impossible]
        raise Infeasible(reasons, error.nearest, missed_by=error.missed_by) from error


def assumed(scenario: Scenario, *names: str) -> str:
    """ "guessed: restart.parts; default: failures", or nothing."""
    origins = scenario.origins()
    groups = []
    for kind in _NOT_KNOWN:
        of_kind = [name for name, origin in sorted(origins.items()) if origin.kind is kind and name in names]
        if of_kind:
            groups.append(f"{kind}: {', '.join(of_kind)}")
    return "; ".join(groups)
