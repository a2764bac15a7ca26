"""The order of a drain, and when a commit record may be published."""

from __future__ import annotations

import pytest
from core_values import at, history
from hypothesis import given
from hypothesis import strategies as st

from hinan.core.commit import Do, DrainEffect, drain_effects, why_not_commit


@given(st.sets(st.integers(0, 20), max_size=5))
def test_each_image_survives_power_loss_before_its_manifest_and_all_before_the_commit(ranks: set[int]) -> None:
    """F1: bytes, name, manifest, commit; a kill or a power cut between any two leaves no lie behind."""
    effects = drain_effects(sorted(ranks))
    assert effects[-1] == DrainEffect(Do.PUBLISH_COMMIT, None)
    assert sum(e.do is Do.PUBLISH_COMMIT for e in effects) == 1
    for rank in ranks:
        own = [e.do for e in effects if e.rank == rank]
        assert own == [Do.WRITE_ASIDE, Do.SYNC, Do.NAME, Do.SYNC_DIRECTORY, Do.PUBLISH_MANIFEST]


COMPLETE = {"world_size": 2, "manifests": {0, 1}}


@pytest.mark.parametrize(
    ("case", "past", "served", "manifests", "reason"),
    [
        ("complete and on the lineage", history(None), 1, {0, 1}, None),
        ("a manifest is missing", history(None), 1, {1}, "no manifest of rank 0 yet"),
        ("a higher claim", history(None, unresumed=1), 1, {0, 1}, "fenced: attempt 2 has claimed the run"),
        ("own claim, no resume yet", history(None, unresumed=1), 2, {0, 1}, None),
        ("rolled back", history(None, at(1, 10)), 2, {0, 1}, "orphan: a later attempt resumed from step 10"),
        ("fresh start since", history(None, None), 2, {0, 1}, "orphan: attempt 1 is not on the lineage"),
        ("more manifests than ranks", history(None), 1, {0, 1, 2}, None),
    ],
)
def test_who_may_commit_step_20_of_attempt_1(
    case: str, past: object, served: int, manifests: set[int], reason: str | None
) -> None:
    """Complete, unfenced and on the lineage, else the reason says which is not (A5, F1)."""
    found = why_not_commit(at(1, 20), world_size=2, manifests=manifests, history=past, served=served)  # type: ignore[arg-type]
    assert found == reason, case
