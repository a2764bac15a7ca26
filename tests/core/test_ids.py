"""Names: what is formatted is what is parsed, and names sort as steps do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hinan.core import ids
from hinan.core.ids import StepId

steps = st.builds(StepId, st.integers(0, 999_999), st.integers(0, 9_999_999_999))


@given(steps)
def test_step_directory_round_trips(step_id: StepId) -> None:
    """A step's directory name stands for exactly that step."""
    assert ids.parse_step_directory(ids.step_directory(step_id)) == step_id


@given(st.lists(steps, max_size=6))
def test_directories_of_one_attempt_sort_as_numbers(found: list[StepId]) -> None:
    """A-KEEP-2: sorting by name or as text never puts 9000 after 10000."""
    same = [StepId(1, s.step) for s in found]
    assert sorted(ids.step_directory(s) for s in same) == [ids.step_directory(s) for s in sorted(same)]


@given(st.integers(0, 99_999), st.integers(0, 999_999))
def test_slot_and_rank_files_round_trip(rank: int, number: int) -> None:
    """Slot, image and manifest names carry the rank and give it back."""
    assert ids.parse_slot_name(ids.slot_name(rank, number)) == (rank, number)
    assert ids.parse_rank_file(ids.image_file(rank)) == (rank, "safetensors")
    assert ids.parse_rank_file(ids.manifest_file(rank)) == (rank, "json")


@pytest.mark.parametrize("name", ["", "lost+found", "120-3", "0000000120-000003.tmp", "0000000120-000003\n", "rank-0.json"])
def test_foreign_names_are_nobodys(name: str) -> None:
    """A-KEEP-4: what hinan did not name is not taken for a step, a slot or an image."""
    assert ids.parse_step_directory(name) is None
    assert ids.parse_slot_name(name) is None
    assert ids.parse_rank_file(name) is None
