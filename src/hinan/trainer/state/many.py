"""Many tensors at once: are they what they were at the last evacuation, so that what was said of them still holds?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch

from hinan.formats.values import Json


@dataclass(frozen=True)
class Many:
    """What must be as it was for the JSON of many tensors to be as it was.

    Attributes:
        keys: of the members, one of any kind for each or for each group of them.
        paths: names of the members in the state.
        traits: what makes them storable (`traits_of`).
        json: what stands for all of them.
    """

    keys: Sequence[object]
    paths: list[str]
    traits: list[list[object]]
    json: Json

    def fits(self, keys: Sequence[object], items: Sequence[Any]) -> bool:
        """Whether these members under these keys would get the same JSON."""
        return (
            keys == self.keys
            and list(map(type, items)) == self.traits[0]
            and traits_of(items) == self.traits
            and all(map(torch.Tensor.is_contiguous, items))
        )


def traits_of(items: Sequence[torch.Tensor]) -> list[list[object]]:
    """What makes tensors storable as they are. Lists made by `map`: ten thousand tensors are looked at in milliseconds."""
    return [list(map(type, items)), *(list(map(trait, items)) for trait in _TRAITS)]


_TRAITS = [attrgetter(name) for name in ("device", "dtype", "layout", "is_nested", "is_quantized")]
