"""What only a live object can take back, refused where a restore looks at no live object, but makes values anew.

That is so inside what a `state_dict()`, a `get_extra_state()` or a codec says, in keys, in sets, in containers in a tuple.
"""

from __future__ import annotations

from enum import Enum

import torch
from torch import nn

from hinan.core.errors import CaptureError
from hinan.trainer.state.attributes import says_its_state
from hinan.trainer.state.enums import is_found_again
from hinan.trainer.state.loader import keeps_position
from hinan.trainer.state.rng import can_make, random_kind

_MOST = (torch.Tensor, dict, list, tuple)
"""What most values are: tens of thousands of them are asked at an evacuation."""


def refuse_unmakeable(path: str, value: object) -> None:
    """Asked at a save: at a restore it would be too late.

    Raises:
        CaptureError: a restore could not make this value anew.
    """
    if type(value) not in _MOST and (why := why_unmakeable(value)) is not None:
        raise CaptureError(f"{path} {why}", path=path)


def why_unmakeable(value: object) -> str | None:
    """What it is and the way out; None for everything that can be made, or is refused anyway."""
    named = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, Enum) and not is_found_again(type(value)):
        return (
            f"is a member of {named}, and a restore could not find that class again under this name. Make it a class of a "
            "module (or of a class there) and leave it its name; or store the member's name or value"
        )
    # Of whatever says its state, that would come back in its place, as a dict.
    if isinstance(value, nn.Module | torch.optim.Optimizer) or keeps_position(value) or says_its_state(value):
        return (
            f"is a {named} where a restore makes every value anew, and an object like this cannot be made. Put it into the "
            "state, beside what says it here; or say its state_dict() here"
        )
    if not _is_made_anew(value):
        return (
            f"is a {random_kind(value) or named} where a restore makes every value anew, and this kind of generator cannot "
            "be made. Put it into the state, beside what says it here; or say its state here"
        )
    return None


def _is_made_anew(value: object) -> bool:
    """False for a generator that is kept, and that only a live one like it takes back."""
    if isinstance(value, torch.Generator):
        return type(value) is torch.Generator
    kind = random_kind(value)
    return kind is None or can_make(kind)
