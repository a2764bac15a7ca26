"""Small values are read before anything of the program's is asked; what is wrong with them then is the bytes' own fault."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from hinan.core.errors import FormatError
from hinan.trainer.restoring.parsing import parse_small


def parsed(document: Any) -> Any:
    text = document if isinstance(document, bytes) else msgspec.json.encode(document)
    return parse_small(SimpleNamespace(sealed=SimpleNamespace(small=msgspec.Raw(text), step_id="step 1")))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "document",
    [
        b"{", [], {"state": {}}, {"state": 3, "rng": {}}, {"state": {"a": {"$int": "x"}}, "rng": {}},
        {"state": {"a": {"$codec": ["c", {"$bytes": 3}]}}, "rng": {}},
        {"state": {"m": {"$module": {"tensors": [], "extras": {"e": {"$set": [[1]]}}}}}, "rng": {}},
        {"state": {"m": {"$module": 7}}, "rng": {}},
        {"state": {}, "rng": {"$array": ["i4", [2], ""]}},
        {"state": {}, "rng": {"$tensor": ["a", "cpu"]}},
    ],
)  # fmt: skip
def test_what_is_malformed_is_a_format_error(document: Any) -> None:
    with pytest.raises(FormatError):
        parsed(document)


def test_what_only_the_program_can_make_is_left_to_it() -> None:
    """A codec, a class, a tag of a newer hinan: none of it is looked up; names of the user's are no tags."""
    state = {
        "c": {"$set": [{"$codec": ["nobody's", {"a": 1}]}, {"$enum": ["Gone", "A", "gone"]}]},
        "n": {"$newer": [1, 2]},
        "m": {"$module": {"tensors": ["m.$int"], "extras": {"$int": "a text"}}},
        "$int": "a text",
    }
    assert parsed({"state": state, "rng": {"python": {"$tuple": [1]}}}) == (state, {"python": (1,)})
