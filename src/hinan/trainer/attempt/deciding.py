"""What a restart decides by what stands, on rank 0: the tiers as they are seen, and seen again where a store is slow."""

from __future__ import annotations

import logging

from hinan.core.decide import Decision, decide, may_be_late
from hinan.host.mounts import wait_until_seen
from hinan.tiers.arena import Arena
from hinan.tiers.target import Target
from hinan.tiers.views import arena_view, target_view
from hinan.trainer.attempt.liaison import Place

log = logging.getLogger("hinan")


def decided(target: Target, arena: Arena, place: Place, world_size: int) -> Decision:
    """The decision. What a shared store may not show yet of another host's files is waited for (rule F1)."""
    decision, late = _decide(target, arena, place, world_size)
    if not late:
        return decision
    log.info("decide waits for what %s may not show yet of another host's files", target.root)

    def seen() -> bool:
        nonlocal decision
        decision, late = _decide(target, arena, place, world_size)
        return not late

    wait_until_seen(seen, target.root / "steps")
    return decision


def _decide(target: Target, arena: Arena, place: Place, world_size: int) -> tuple[Decision, bool]:
    """The decision by what is seen now, and whether it may be better when more is seen."""
    history, failures = target.history(), target.failures()
    views = (arena_view(arena, place.node), target_view(target, place.node))
    decision = decide(views, history, failures=failures, world_size=world_size)
    return decision, _others_have_written(target, place) and may_be_late(decision, history, failures)


def _others_have_written(target: Target, place: Place) -> bool:
    """Whether an earlier attempt was another host's, or is not seen; a host sees at once what it has written itself.

    How many there were is known by this attempt's number, which the store itself has given out.
    """
    claims = target.claims()
    here = {n for n, claim in claims.items() if claim is not None and claim.node == place.node}
    return not set(range(1, place.attempt)) <= here
